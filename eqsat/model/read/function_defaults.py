"""Adds omitted attributes to calls of functions, because ``onnx.inliner`` ignores their defaults."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from eqsat.model.unused_names import unused
from eqsat.model.validate.extent import all_nodes
from eqsat.schema import opset

_Key = tuple[str, str, str]


def state_defaults(model: onnx.ModelProto, functions: Iterable[onnx.FunctionProto]) -> list[onnx.FunctionProto]:
    """Adds to each call the attributes that it leaves to the defaults of a function.

    A function may pass an attribute without a default on to another function. If a call omits it, the default of the
    other function counts; such a call then calls a copy that does not pass it on.

    Args:
        model: Changed in place.
        functions: Functions of the model whose calls are completed.

    Returns:
        The copies, which are functions of the model.
    """
    known = {(opset.canonical_domain(f.domain), f.name, f.overload): f for f in functions}
    taken = {f.name for f in model.functions}
    copies: dict[tuple[_Key, frozenset[str]], onnx.FunctionProto] = {}
    waiting = [*all_nodes(model.graph.node), *(node for f in model.functions for node in all_nodes(f.node))]
    while waiting:
        node = waiting.pop()
        key = _called(node)
        function = known.get(key)
        if function is None:
            continue
        given = {a.name for a in node.attribute}
        node.attribute.extend(a for a in function.attribute_proto if a.name not in given)
        absent = frozenset(function.attribute) - given
        if not any(_called(n) in known and _refers(n, absent) for n in all_nodes(function.node)):
            continue
        copy = copies.get((key, absent))
        if copy is None:
            copy = copies[key, absent] = _without(function, absent, unused(function.name, taken))
            known[key[0], copy.name, copy.overload] = copy
            waiting += all_nodes(copy.node)
        node.op_type = copy.name
    model.functions.extend(copies.values())
    return list(model.functions[len(model.functions) - len(copies) :])


def _without(function: onnx.FunctionProto, absent: frozenset[str], name: str) -> onnx.FunctionProto:
    """A copy that does not know some attributes."""
    copy = onnx.FunctionProto.FromString(function.SerializeToString())
    copy.name = name
    del copy.attribute[:]
    copy.attribute.extend(a for a in function.attribute if a not in absent)
    for node in all_nodes(copy.node):
        for attribute in [a for a in node.attribute if a.ref_attr_name in absent]:
            node.attribute.remove(attribute)
    return copy


def _called(node: onnx.NodeProto) -> _Key:
    return opset.canonical_domain(node.domain), node.op_type, node.overload


def _refers(node: onnx.NodeProto, names: frozenset[str]) -> bool:
    return any(a.ref_attr_name in names for a in node.attribute)
