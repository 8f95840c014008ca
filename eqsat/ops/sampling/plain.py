"""Operands of one shape, and arbitrary attributes, for operators without a sampler of their own."""

from __future__ import annotations

from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import attribute_types, find_schema, required_attributes


def plain(node: SampledNode) -> None:
    """All operands of one shape, attributes at their defaults or anything."""
    attributes(node)
    shape = node.shape
    for i in range(node.count):
        if node.known(i) is not None:
            shape = node.known(i)
    for i in range(node.count):
        if node.has(i):
            shape = node.draw(i, shape)


def attributes(node: SampledNode) -> None:
    """Attributes that need no thought: floats are anything, required integers small."""
    if find_schema(node.op) is None:
        for name, default in default_attrs(node.op):
            if isinstance(default, float) and node.chance.happens(0.5):
                node.real(name, default)
        return
    required = required_attributes(node.op)
    defaults = dict(default_attrs(node.op))
    for name, kind in attribute_types(node.op).items():
        if kind.name == "FLOAT" and (name in required or name in node.asked or node.chance.happens(0.5)):
            default = defaults.get(name)
            node.real(name, *([default] if isinstance(default, float) else []))
        elif name in required and kind.name == "INT":
            node.attr(name, node.chance.number(0, 2))
