"""Binds attributes of functions to the values of their calls, where an older opset does not have these attributes.

A node of a function may refer to an attribute that its operator got later; only the value shows whether the node can be
written without it. Calls of one function that give different values then call functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from eqsat.model.unused_names import unused
from eqsat.model.write.runnable import scopes


def bind_references(model: ir.Model, wanted: Callable[[ir.Node], AbstractSet[str]]) -> None:
    """Replaces references to attributes of functions by values.

    Args:
        model: Changed in place.
        wanted: The attributes of a node of a function whose references are replaced. References that a call itself
            takes from the enclosing function stay.
    """
    functions: list[ir.Function] = []
    taken = {f.name for f in model.functions.values()}
    for function in model.functions.values():
        functions.append(function)
        found = [node.attributes[name] for node in function for name in wanted(node)]
        names = sorted({attribute.ref_attr_name for attribute in found if attribute.ref_attr_name})
        if not names:
            continue
        calls = [n for scope in scopes(model) for n in scope if n.op_identifier() == function.identifier()]
        if any(call.attributes[name].is_ref() for call in calls for name in names if name in call.attributes):
            continue
        groups: dict[str, list[ir.Node]] = {}
        for call in calls:
            groups.setdefault(repr([_given(function, call, name) for name in names]), []).append(call)
        copies = [function, *(function.clone() for _ in range(len(groups) - 1))]
        for copy, group in zip(copies, groups.values(), strict=False):
            if copy is not function:
                copy.name = unused(function.name, taken)
                functions.append(copy)
            _bind(copy, group[0], names)
            for call in group:
                call.op_type = copy.name
                for name in names:
                    call.attributes.pop(name, None)
    model.functions.clear()
    model.functions.update((f.identifier(), f) for f in functions)


def _attribute(function: ir.Function, call: ir.Node, name: str) -> ir.Attr | None:
    """The attribute of a call, otherwise the function's default."""
    return call.attributes.get(name) or function.attributes.get(name)


def _given(function: ir.Function, call: ir.Node, name: str) -> object:
    attribute = _attribute(function, call, name)
    return None if attribute is None else attribute.value


def _bind(function: ir.Function, call: ir.Node, names: Iterable[str]) -> None:
    for name in names:
        given = _attribute(function, call, name)
        for node in function:
            for attribute in [a for a in node.attributes.values() if a.ref_attr_name == name]:
                node.attributes.pop(attribute.name)
                if given is not None and given.value is not None:
                    node.attributes[attribute.name] = ir.Attr(attribute.name, given.type, given.value)
        function.attributes.pop(name, None)
