"""Attention of four dimensions: batch, heads, positions, features."""

from __future__ import annotations

from eqsat.ops.sampling.chance import Rejected, Shape
from eqsat.ops.sampling.node import Node


def attention(node: Node) -> None:
    chance = node.chance
    wish = node.shape if node.shape is not None and len(node.shape) == 4 else chance.shape(4)
    query = node.draw(0, (*wish[:3], chance.number(1, 5)))
    if len(query) != 4:
        raise Rejected("no heads")
    batch, heads, queries, features = query
    # Several heads of queries may share one of keys and values.
    groups = chance.one_of([heads, heads, *(g for g in range(1, heads + 1) if heads % g == 0)])
    key = node.draw(1, (batch, groups, chance.number(1, 5), features))
    if len(key) != 4:
        raise Rejected("no heads")
    node.draw(2, (batch, groups, key[2], wish[3]))
    if node.has(3):
        shapes: list[Shape] = [(queries, key[2]), (1, 1, queries, key[2]), (batch, heads, queries, key[2])]
        node.draw(3, chance.one_of(shapes), dtype=node.dtype(0))
    if chance.happens(0.7):
        node.attr("scale", chance.one_of((1.0, 0.5, 0.125)))
    if chance.happens(0.2):
        node.attr("is_causal", 1)
