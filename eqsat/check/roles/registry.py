"""The table of roles."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.check.node import Node
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import MICROSOFT, attribute_types, find_schema, required_attributes
from eqsat.schema.types import OpKey

Role = Callable[[Node], None]

_ROLES: dict[OpKey, Role] = {}


def role(*names: str, domain: str = "") -> Callable[[Role], Role]:
    """Registers a function as the role of operators."""

    def register(function: Role) -> Role:
        for name in names:
            _ROLES[OpKey(domain, name)] = function
        return function

    return register


def role_of(op: OpKey) -> Role:
    """The role of an operator; one of ONNX Runtime's shares that of its ONNX namesake."""
    found = _ROLES.get(op)
    if found is None and op.domain == MICROSOFT:
        found = _ROLES.get(OpKey("", op.name))
    return found or plain


def plain(node: Node) -> None:
    """All operands of one shape, attributes at their defaults or anything."""
    attributes(node)
    shape = node.shape
    for i in range(node.count):
        if node.known(i) is not None:
            shape = node.known(i)
    for i in range(node.count):
        if node.has(i):
            shape = node.draw(i, shape)


def attributes(node: Node) -> None:
    """Attributes that need no thought: floats are anything, required integers small."""
    if find_schema(node.op) is None:
        return
    required = required_attributes(node.op)
    defaults = dict(default_attrs(node.op))
    for name, kind in attribute_types(node.op).items():
        if kind.name == "FLOAT" and (name in required or node.chance.happens(0.5)):
            default = defaults.get(name)
            node.real(name, *([default] if isinstance(default, float) else []))
        elif name in required and kind.name == "INT":
            node.attr(name, node.chance.number(0, 2))
