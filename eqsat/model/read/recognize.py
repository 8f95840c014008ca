"""Recognizes calls of eqsat's own operators in files, under the names that they have in eqsat.

A file defines each combination of an operator and its attributes by a function of its own: ``CastHint`` and
``CastHint_1`` (see :mod:`eqsat.model.write.written_definitions`). If such a function equals the one that eqsat would
write, its calls become calls of the operator again and the definition is removed; any other function of such a name
stays.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.model.write.written_definitions import define
from eqsat.schema import opset
from eqsat.schema.attributes import default_attrs, op_key, to_attrs
from eqsat.schema.declared_operators import find_function, function_body
from eqsat.schema.types import OpKey

_Identifier = ir.OperatorIdentifier
_Names = dict[_Identifier, OpKey]


def recognize(model: ir.Model) -> None:
    """Gives calls of our operators their names back and drops the definitions, in place."""
    families: dict[OpKey, list[ir.Function]] = {}
    for function in model.functions.values():
        if (op := _operator(function)) is not None:
            families.setdefault(op, []).append(function)
    if not families:
        return
    calls: dict[_Identifier, list[ir.Node]] = {}
    for scope in (*model.functions.values(), ir.traversal.RecursiveGraphIterator(model.graph)):
        for node in scope:
            calls.setdefault(node.op_identifier(), []).append(node)
    known: _Names = {}
    # Files list functions before their callers, so that inner calls are known when a definition is compared.
    for op, family in families.items():
        if all(_is_definition(f, op, c, known) for f in family for c in calls.get(f.identifier(), ())):
            known.update((f.identifier(), op) for f in family)
    for identifier, op in known.items():
        del model.functions[identifier]
        for node in calls.get(identifier, ()):
            node.op_type = op.name


def _operator(function: ir.Function) -> OpKey | None:
    """The operator that a function defines, by its name."""
    if function.domain != opset.EQSAT or function.overload:
        return None
    base, _, number = function.name.rpartition("_")
    names = [function.name, base] if number.isdigit() else [function.name]
    return next((OpKey(opset.EQSAT, n) for n in names if find_function(OpKey(opset.EQSAT, n))), None)


def _is_definition(function: ir.Function, op: OpKey, call: ir.Node, known: _Names) -> bool:
    """Whether a function equals eqsat's definition of the operator, for the attributes of a call."""
    found = find_function(op)
    if found is None or any(a.ref_attr_name for a in call.attributes.values()):
        return False
    given = dict(to_attrs(call))
    if set(given) - set(dict(found.attributes)):
        return False
    attrs = found.complete(tuple(given.items()))
    body = function_body(op, attrs)
    if body is None or len(function.inputs) != body.inputs:
        return False
    return _signature(function, known) == _signature(define(op, body, found.inputs), known)


def _signature(function: ir.Function, known: _Names) -> tuple[object, ...] | None:
    """The computation of a function, without names; None if attributes refer to attributes of the function."""
    number: dict[ir.Value | None, int] = {None: -1}
    for value in function.inputs:
        number[value] = len(number)
    nodes = []
    for node in function:
        if any(a.ref_attr_name for a in node.attributes.values()):
            return None
        op = known.get(node.op_identifier(), op_key(node))
        attrs = dict(default_attrs(op)) | dict(to_attrs(node))
        nodes.append((op, sorted(attrs.items()), tuple(number[v] for v in node.inputs)))
        for value in node.outputs:
            number[value] = len(number)
    return tuple(nodes), tuple(number[v] for v in function.outputs)
