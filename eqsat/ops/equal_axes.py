"""Axes of operands that have one size: what an operator requires of shapes that are not all numbers.

A rule gives the groups of axes that belong together. With sizes that are numbers the inference of types refuses what
does not fit; with symbols it cannot, so sizes of inputs that have to agree are derived from these groups
(:mod:`eqsat.model.inference.requirements`), and a generated program compares those that data decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.ops.checks.check import CheckedNode


@dataclass(frozen=True, slots=True)
class Together:
    """Axes of operands that have one size.

    Attributes:
        axes: Number of the operand, and the axis, not negative.
        repeats: Whether axes of one element repeat.
        size: The size of all of them, if the operator specifies it.
    """

    axes: tuple[tuple[int, int], ...]
    repeats: bool = False
    size: int | None = None


EqualAxesRule = Callable[[CheckedNode], Iterator[Together]]


def _ranks(node: CheckedNode, numbers: Sequence[int] | None = None) -> dict[int, int]:
    """The ranks of operands that are there and have a known one."""
    numbers = range(len(node.inputs)) if numbers is None else numbers
    return {k: rank for k in numbers if (rank := node.rank(k)) is not None}


def _equal(node: CheckedNode, *places: tuple[int, int], size: int | None = None) -> Iterator[Together]:
    """Axes, which may be counted from the last one, of the operands that are there."""
    ranks = _ranks(node, [number for number, _ in places])
    axes = tuple((k, axis % ranks[k]) for k, axis in places if k in ranks and -ranks[k] <= axis < ranks[k])
    if len(axes) > 1 or (axes and size is not None):
        yield Together(axes, size=size)


def _broadcast(ranks: dict[int, int], kept: int = 0) -> Iterator[Together]:
    """Axes counted from the last one; the last ``kept`` are left out."""
    for back in range(1 + kept, max(ranks.values(), default=0) + 1):
        axes = tuple((k, rank - back) for k, rank in ranks.items() if rank >= back)
        if len(axes) > 1:
            yield Together(axes, repeats=True)


def alone(node: CheckedNode) -> Iterator[Together]:
    """Operands whose sizes have nothing to do with each other."""
    yield from ()


def broadcasting(node: CheckedNode) -> Iterator[Together]:
    """Operands that stretch each other."""
    yield from _broadcast(_ranks(node))


def product(a: int = 0, b: int = 1) -> EqualAxesRule:
    """Matrix products of two operands."""

    def rule(node: CheckedNode) -> Iterator[Together]:
        ranks = _ranks(node, (a, b))
        if len(ranks) < 2 or not all(ranks.values()):
            return
        yield Together(((a, ranks[a] - 1), (b, max(ranks[b] - 2, 0))))
        yield from _broadcast({k: n for k, n in ranks.items() if n > 2}, 2)

    return rule


def transposed_product(node: CheckedNode) -> Iterator[Together]:
    """A product of matrices that attributes transpose, with or without batches."""
    ranks = _ranks(node, (0, 1))
    if len(ranks) < 2 or not all(ranks.values()) or node.attr("transBatchA", 0) or node.attr("transBatchB", 0):
        return
    inner = (-2 if node.attr("transA", 0) and ranks[0] > 1 else -1, -1 if node.attr("transB", 0) else -2)
    yield Together(((0, ranks[0] + inner[0]), (1, max(ranks[1] + inner[1], 0))))
    yield from _broadcast({k: n for k, n in ranks.items() if n > 2}, 2)


def einsum(node: CheckedNode) -> Iterator[Together]:
    """Equal letters."""
    terms = str(node.attr("equation", "")).replace(" ", "").split("->")[0].split(",")
    places: dict[str, list[tuple[int, int]]] = {}
    for number, term in enumerate(terms):
        if "." in term or node.rank(number) != len(term):
            return
        for axis, letter in enumerate(term):
            places.setdefault(letter, []).append((number, axis))
    for axes in places.values():
        yield from _equal(node, *axes)


def concatenated(node: CheckedNode) -> Iterator[Together]:
    """All axes but the one along which operands are put together."""
    ranks = _ranks(node)
    rank = next(iter(ranks.values()), 0)
    axis = node.attr("axis")
    if not rank or not isinstance(axis, int) or any(n != rank for n in ranks.values()):
        return
    for k in range(rank):
        if k != axis % rank:
            yield from _equal(node, *((number, k) for number in ranks))


def updates(node: CheckedNode) -> Iterator[Together]:
    """Indices and the elements that go there."""
    rank, indices = node.rank(2), node.rank(1)
    if rank is None or indices is None:
        return
    for k in range(min(rank, indices - (node.op.name == "ScatterND"))):
        yield from _equal(node, (1, k), (2, k))


def parameters(node: CheckedNode) -> Iterator[Together]:
    """Scales and zero points of an axis, or for all elements."""
    rank = node.rank(0)
    axes = tuple((k, 0) for k in (1, 2) if node.rank(k) == 1)
    axis = node.int_attr("axis", 1)
    if axes and rank and not node.attr("block_size", 0) and -rank <= axis < rank:
        yield Together(((0, axis % rank), *axes), repeats=True)


def channels(*numbers: int) -> EqualAxesRule:
    """Vectors that have an element a channel."""

    def rule(node: CheckedNode) -> Iterator[Together]:
        yield from _equal(node, (0, 1), *((k, 0) for k in numbers))

    return rule


def features(*numbers: int) -> EqualAxesRule:
    """Vectors that have an element for each of the last axis."""

    def rule(node: CheckedNode) -> Iterator[Together]:
        yield from _equal(node, (0, -1), *((k, -1) for k in numbers))

    return rule


def convolution(x: int = 0, w: int = 1, bias: int = 2) -> EqualAxesRule:
    """Channels of the operand (in each group as many as the weight has), and filters."""

    def rule(node: CheckedNode) -> Iterator[Together]:
        per_group = node.dim(w, 1)
        if per_group is not None:
            yield from _equal(node, (x, 1), size=per_group * node.int_attr("group", 1))
        if bias:
            yield from _equal(node, (w, 0), (bias, 0))

    return rule


def transposed_convolution(node: CheckedNode) -> Iterator[Together]:
    """Channels of the operand and of the weight, and filters of each group."""
    yield from _equal(node, (0, 1), (1, 0))
    filters = node.dim(1, 1)
    if filters is not None:
        yield from _equal(node, (2, 0), size=filters * node.int_attr("group", 1))


def recurrent(node: CheckedNode) -> Iterator[Together]:
    """Samples, features, states and directions of a recurrent layer."""
    batch = (0, 0 if node.attr("layout", 0) else 1)
    states = 0 if node.attr("layout", 0) else 1
    yield from _equal(node, batch, (4, 0), (5, states), (6, states))
    yield from _equal(node, (0, 2), (1, 2))
    yield from _equal(node, (2, 2), (5, 2), (6, 2))
    yield from _equal(node, (1, 0), (2, 0), (3, 0), (5, 1 - states), (6, 1 - states))


def transposed_recurrent(node: CheckedNode) -> Iterator[Together]:
    """The same for a layer with transposed weights."""
    yield from _equal(node, (0, 1), (4, 0), (5, 1), (6, 1))
    yield from _equal(node, (0, 2), (1, 1))
    yield from _equal(node, (2, 1), (5, 2), (6, 2))


def skipped(node: CheckedNode) -> Iterator[Together]:
    """The sum of two operands, normalized along the last axis."""
    yield from _broadcast(_ranks(node, (0, 1)))
    yield from features(2, 3, 4)(node)


def squeezed(node: CheckedNode) -> Iterator[Together]:
    """Axes of one element."""
    axes = node.value(1)
    for axis in () if axes is None else np.ravel(axes):
        yield from _equal(node, (0, int(axis)), size=1)


def parted(node: CheckedNode) -> Iterator[Together]:
    """An axis with as many elements as its parts have."""
    parts = node.value(1)
    if parts is not None:
        yield from _equal(node, (0, node.int_attr("axis")), size=int(np.sum(parts)))


def columns(node: CheckedNode) -> Iterator[Together]:
    """Rows of as many elements as the attribute K says."""
    k = node.attr("K")
    if isinstance(k, int):
        yield from _equal(node, (0, -1), size=k)


def expanded(node: CheckedNode) -> Iterator[Together]:
    """Axes of the size that the shape specifies, or of one element."""
    rank, shape = node.rank(0), node.value(1)
    if rank is None or shape is None:
        return
    for back in range(1, min(rank, len(shape)) + 1):
        if (size := int(shape[-back])) != 1:
            yield Together(((0, rank - back),), repeats=True, size=size)
