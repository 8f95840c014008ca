"""Calls of functions that a model defines and a user declares become calls of the declared operator.

The model's function must compute the same as the declaration. Both are compared step by step, for the attributes of
each call. Names do not matter; opsets may differ if the pinned one only extends the operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard

import numpy as np
import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.read.sources import UncheckedModel
from eqsat.model.validate.extent import all_nodes
from eqsat.model.validate.order import needed_first
from eqsat.model.write.written_definitions import define
from eqsat.ops.evaluate import constant_value
from eqsat.schema import opset
from eqsat.schema.attributes import default_attrs, op_key, plain_value
from eqsat.schema.declared_operators import DeclaredOperator, Function, declared_here, declared_name, find_declared
from eqsat.schema.types import CAST_LIKE, CONSTANT, Attrs, AttrValue, GraphAttr, OpKey
from eqsat.schema.versions import means_same

_Key = tuple[str, str, str]


def use_declarations(source: UncheckedModel) -> None:
    """Turns calls of such functions into calls of the declared operators, and removes the functions.

    Raises:
        ModelError: A function of a declared name computes something else.
    """
    if not declared_here():
        return
    model = source.proto
    functions = {_key(f.domain, f.name, f.overload): f for f in model.functions}
    calls: dict[_Key, list[onnx.NodeProto]] = {}
    for node in _nodes(model):
        calls.setdefault(_key(node.domain, node.op_type, node.overload), []).append(node)
    known: dict[_Key, OpKey] = {}
    callees = {
        key: [_key(n.domain, n.op_type, n.overload) for n in all_nodes(function.node)]
        for key, function in functions.items()
    }
    for key in needed_first(callees)[0]:
        operator = _operator(key)
        if operator is None:
            continue
        problem = next(filter(None, (_difference(functions[key], operator, c, known) for c in calls.get(key, ()))), "")
        if not problem:
            known[key] = operator.op
        elif key[1] == operator.op.name:
            raise ModelError(
                f"a function that computes what the declaration of {operator.op} at {operator.place} says is required",
                place=source.at(f"function {operator.op}"),
                actual=problem,
                hint="remove the function from the model, or declare the operator as the function has it",
            )
    for key, op in known.items():
        model.functions.remove(functions[key])
        for node in calls.get(key, ()):
            node.op_type = op.name
    _import(model, {op.domain for op in known.values()})


def _key(domain: str, name: str, overload: str) -> _Key:
    return opset.canonical_domain(domain), name, overload


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from all_nodes(model.graph.node)
    for function in model.functions:
        yield from all_nodes(function.node)


def _operator(key: _Key) -> DeclaredOperator | None:
    """The operator that a function defines, by its name; eqsat numbers the functions for several attributes."""
    domain, name, overload = key
    found = find_declared(declared_name(OpKey(domain, name)))
    return found if found is not None and found.place and not overload else None


def _import(model: onnx.ModelProto, domains: set[str]) -> None:
    scopes = [model, *model.functions]
    for scope in scopes:
        present = {e.domain for e in scope.opset_import}
        for domain in sorted(domains - present):
            scope.opset_import.add(domain=domain, version=1)


# ---- comparison ----------------------------------------------------------------------------------


def _difference(
    function: onnx.FunctionProto, operator: DeclaredOperator, call: onnx.NodeProto, known: Mapping[_Key, OpKey]
) -> str:
    """How a function differs from the declaration, for the attributes of a call; empty where it does not."""
    if not isinstance(operator, Function):
        return "a function, where a Python function is declared"
    if len(function.input) != len(operator.inputs) or len(call.input) != len(operator.inputs):
        return f"{len(function.input)} inputs instead of {len(operator.inputs)}"
    given = {a.name: plain_value(ir.from_proto(a)) for a in call.attribute if not a.ref_attr_name}
    if len(given) < len(call.attribute):
        return "a call with attributes of the function around it"
    unknown = sorted(set(given) - set(dict(operator.attributes)))
    if unknown:
        return f"the attribute `{unknown[0]}`"
    defaults = {a.name: plain_value(ir.from_proto(a)) for a in function.attribute_proto}
    body = operator.body(dict(operator.complete(tuple(given.items()))))
    if len(function.output) != len(body.results):
        return f"{len(function.output)} results instead of {len(body.results)}"
    version = next((e.version for e in function.opset_import if not e.domain), opset.PINNED_OPSET)
    found = _program(ir.from_proto(function), defaults | given, version, known)
    wanted = _program(define(operator.op, body, operator.inputs), {}, opset.PINNED_OPSET, {})
    if isinstance(found, str) or isinstance(wanted, str):
        return found if isinstance(found, str) else str(wanted)
    for i, (mine, said) in enumerate(zip(found[0], wanted[0], strict=False)):
        if mine != said:
            return (
                f"`{mine[0]}` as operator {i + 1}, where the declaration has `{said[0]}` with other operands"
                if (mine[0] == said[0])
                else f"`{mine[0]}` as operator {i + 1} instead of `{said[0]}`"
            )
    if len(found[0]) != len(wanted[0]):
        return f"{len(found[0])} operators instead of {len(wanted[0])}"
    return "" if found[1] == wanted[1] else "other results"


_Step = tuple[OpKey, object, tuple[object, ...]]


def _program(
    function: ir.Function, bound: Mapping[str, AttrValue], version: int, known: Mapping[_Key, OpKey]
) -> tuple[list[_Step], tuple[object, ...]] | str:
    """The steps of a function that depend on its operands, and its results; a text if it cannot be compared.

    Constants are part of the steps that read them, and identities are left out.
    """
    names: dict[ir.Value | None, object] = {None: None}
    for i, value in enumerate(function.inputs):
        names[value] = i
    steps: list[_Step] = []
    for node in function:
        op = known.get(_key(node.domain, node.op_type, node.overload), op_key(node))
        if not means_same(op, version):
            return f"`{op}` of opset {version}, which has changed since"
        attrs = _attributes(op, node, bound)
        if any(isinstance(value, GraphAttr) for _, value in attrs):
            return f"`{op}`, control flow"
        if op == CONSTANT:
            value = constant_value(attrs)
            names[node.outputs[0]] = "?" if value is None else _shown(value)
            continue
        operands = tuple(names[v] for v in node.inputs)
        if op == OpKey("", "Identity"):
            names[node.outputs[0]] = operands[0]
            continue
        if op == CAST_LIKE and isinstance(operands[0], tuple) and operands[0][0] == "constant":
            # The stored type of a number does not matter if the number is the same.
            names[node.outputs[0]] = ("cast like", operands[0][2:], operands[1])
            continue
        for k, value in enumerate(node.outputs):
            names[value] = (len(steps), k)
        steps.append((op, attrs, _numbers(op, operands)))
    return steps, tuple(names[v] for v in function.outputs)


def _numbers(op: OpKey, operands: tuple[object, ...]) -> tuple[object, ...]:
    """Operands in which a constant is a number alone if another operand of the operator says its element type."""
    schema = opset.find_schema(op)
    if schema is None or not schema.inputs:
        return operands
    kinds = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(operands))]
    tensors = {k for k, x in zip(kinds, operands, strict=True) if x is not None and not _is_cast(x)}
    return tuple(("number", x[1]) if _is_cast(x) and k in tensors else x for k, x in zip(kinds, operands, strict=True))


def _is_cast(operand: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(operand, tuple) and operand[0] == "cast like"


def _shown(array: np.ndarray) -> tuple[object, ...]:
    number = array.astype(np.float64) if array.dtype.kind in "biuf" else array
    content = tuple(number.ravel().tolist())
    return "constant", array.dtype.name, array.shape, content


def _attributes(op: OpKey, node: ir.Node, bound: Mapping[str, AttrValue]) -> Attrs:
    """The attributes of a node, references filled in with the function's values; those without one are absent."""
    values = dict(default_attrs(op))
    for name, attribute in node.attributes.items():
        if not attribute.ref_attr_name:
            values[name] = plain_value(attribute)
        elif attribute.ref_attr_name in bound:
            values[name] = bound[attribute.ref_attr_name]
    return tuple(sorted(values.items(), key=lambda pair: pair[0]))
