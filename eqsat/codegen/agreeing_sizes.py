"""Sizes that must be equal, or broadcast, and are not known to be: the program compares them, and they become one size.

Kernels assume that axes which belong together have one size. Where types do not say so (the elements that two masks
select are added), the program computes the size that they have in common, or ends with a status. Operands become views
of that size, in which an axis of one element repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from eqsat.codegen.expressions.registry import is_elementwise
from eqsat.codegen.program import Operand, Tensor
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey

_PARAMETERS = {"CastLike": (), "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2)}
"""Elementwise operators whose operands do not broadcast, and which of these belong to the axis of the first one."""
Axes = list[tuple[int, int]]
"""Axes that belong together: number of the operand, and the axis, not negative."""
Common = Callable[[Sequence[int], bool], int]
"""Makes the size that several sizes are at run time, or that they broadcast to."""
Fitted = Callable[[Tensor, tuple[int, ...]], Tensor]
"""Makes a view of another shape."""


def agreeing(
    op: OpKey, attributes: Mapping[str, Any], operands: list[Operand | None], common: Common, fitted: Fitted
) -> list[Operand | None]:
    """The operands of an operator, with one size where axes belong together.

    Args:
        op: The operator.
        attributes: All of them.
        operands: Of the operator.
        common: Makes sizes.
        fitted: Makes views.
    """
    shapes = [None if x is None else list(x.shape) for x in operands]
    for axes, repeats in _together(op, attributes, shapes):
        sizes = [_size(shapes, place) for place in axes]
        distinct = list(dict.fromkeys(n for n in sizes if not (repeats and n == 1)))
        if len(distinct) < 2 or not any_free(distinct):
            continue
        size = common(distinct, repeats)
        for (number, axis), n in zip(axes, sizes, strict=True):
            shape = shapes[number]
            if shape is not None and not (repeats and n == 1):
                shape[axis] = size
    return [
        fitted(x, tuple(shape)) if isinstance(x, Tensor) and shape is not None and tuple(shape) != x.shape else x
        for x, shape in zip(operands, shapes, strict=True)
    ]


def _size(shapes: Sequence[list[int] | None], place: tuple[int, int]) -> int:
    shape = shapes[place[0]]
    assert shape is not None
    return shape[place[1]]


def _together(
    op: OpKey, attributes: Mapping[str, Any], shapes: Sequence[list[int] | None]
) -> Iterator[tuple[Axes, bool]]:
    """Axes that belong together, and whether axes of one element repeat."""
    ranks = {k: len(shape) for k, shape in enumerate(shapes) if shape is not None}
    if op.name in _PARAMETERS:
        axes = [(k, 0) for k, rank in ranks.items() if k in _PARAMETERS[op.name] and rank == 1]
        if axes and ranks[0] and not attributes.get("block_size"):
            yield [(0, attributes["axis"] % ranks[0]), *axes], True
    elif is_elementwise(op):
        yield from _broadcast(ranks, 0)
    elif op == OpKey("", "MatMul"):
        yield [(0, ranks[0] - 1), (1, max(ranks[1] - 2, 0))], False
        yield from _broadcast({k: n for k, n in ranks.items() if n > 2}, 2)
    elif op == OpKey("", "Gemm"):
        yield [(0, 0 if attributes["transA"] else 1), (1, 1 if attributes["transB"] else 0)], False
    elif op == OpKey("", "Concat"):
        axis = attributes["axis"] % ranks[0]
        for k in range(ranks[0]):
            if k != axis:
                yield [(number, k) for number in ranks], False
    elif op in (OpKey("", "ScatterND"), OpKey("", "ScatterElements")):
        for k in range(ranks[1] - (op.name == "ScatterND")):
            yield [(1, k), (2, k)], False


def _broadcast(ranks: Mapping[int, int], kept: int) -> Iterator[tuple[Axes, bool]]:
    """Axes counted from the last one; the last ``kept`` are left out."""
    for back in range(1 + kept, max(ranks.values(), default=0) + 1):
        yield [(k, rank - back) for k, rank in ranks.items() if rank >= back], True
