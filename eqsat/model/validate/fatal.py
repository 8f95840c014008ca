"""Refuses attributes that would crash the process inside the ``onnx`` package.

Shape inference of the package runs in the checker, the inliner and the version converter as well, and each of them
gives a function's attributes the values of a call. So calls of functions that pass an attribute on are checked as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from eqsat.errors import ModelError
from eqsat.model.validate.extent import all_nodes
from eqsat.schema.attributes import attr
from eqsat.schema.opset import canonical_domain
from eqsat.schema.types import Attrs, OpKey

LEAST: Mapping[OpKey, Mapping[str, int]] = {OpKey("", "GatherND"): {"batch_dims": 0}}
"""The least value of attributes; below them inference reads foreign memory (onnx 1.23)."""

CalledName = tuple[str, str, str]
"""Domain, name and overload of a function."""


def require_least(attributes: Iterable[onnx.AttributeProto], least: Mapping[str, int], place: str) -> None:
    """Checks attributes of a node, of a call, or the defaults of a function.

    Raises:
        ModelError: One is below the least value that it may have.
    """
    for attribute in attributes if least else ():
        value = least.get(attribute.name)
        if value is not None and not attribute.ref_attr_name and attribute.i < value:
            raise _below(attribute.name, value, attribute.i, place)


def require_least_of(op: OpKey, attrs: Attrs, place: str) -> None:
    """Checks an operator with attributes in eqsat's form."""
    for name, value in LEAST.get(op, {}).items():
        found = attr(attrs, name, value)
        if isinstance(found, int) and found < value:
            raise _below(name, value, found, place)


def _below(name: str, least: int, found: int, place: str) -> ModelError:
    return ModelError(f"`{name}` of {least} or more is required", place=place, actual=str(found))


def least_of_calls(functions: Sequence[onnx.FunctionProto]) -> dict[CalledName, dict[str, int]]:
    """The least values of functions' attributes: those of the nodes that receive them, also inside called functions."""
    handed: dict[tuple[CalledName, str], list[tuple[CalledName, str]]] = {}
    for function in functions:
        for node in all_nodes(function.node):
            for attribute in node.attribute:
                if attribute.ref_attr_name:
                    handed.setdefault((call(node), attribute.name), []).append(
                        ((canonical_domain(function.domain), function.name, function.overload), attribute.ref_attr_name)
                    )
    found: dict[CalledName, dict[str, int]] = {}
    waiting = [
        ((op.domain, op.name, ""), name, value) for op, values in LEAST.items() for name, value in values.items()
    ]
    while waiting:
        callee, name, value = waiting.pop()
        for caller, attribute in handed.get((callee, name), ()):
            known = found.setdefault(caller, {})
            if attribute not in known or known[attribute] < value:
                known[attribute] = value
                waiting.append((caller, attribute, value))
    return found


def call(node: onnx.NodeProto) -> CalledName:
    """The function that a node calls, if it calls one."""
    return canonical_domain(node.domain), node.op_type, node.overload
