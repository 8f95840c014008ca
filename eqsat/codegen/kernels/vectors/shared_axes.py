"""Axes that operands share, and how vectors pass over the innermost one: for kernels of many shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.schema.size_questions import any_free


@dataclass(frozen=True, slots=True)
class SharedAxis:
    """Axes of the input whose elements are evenly spaced in all operands.

    Attributes:
        size: Elements.
        steps: From one to the next, by parameter; only ``x0`` for reduced axes.
        axis: Of the result, the last of several; -1 for reduced axes.
    """

    size: int
    steps: Mapping[str, int]
    axis: int = -1


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """Vectors of the innermost axis that share a loop.

    Attributes:
        first: Number of the element where they begin.
        count: Of passes.
        step: Elements of a pass.
        vectors: For each vector of a pass the number of its first element within the pass, and its lanes in use.
    """

    first: int
    count: int
    step: int
    vectors: tuple[tuple[int, int], ...]


def merged(axes: Sequence[SharedAxis]) -> list[SharedAxis]:
    """Axes without those of one element; neighbours that are evenly spaced are joined."""
    found: list[SharedAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        last = found[-1] if found else None
        if last is not None and all(last.steps[name] == axis.size * step for name, step in axis.steps.items()):
            found[-1] = SharedAxis(last.size * axis.size, axis.steps, axis.axis)
        else:
            found.append(axis)
    return found


def side_by_side(kept: Sequence[SharedAxis], along: SharedAxis | None, lanes: int) -> int | None:
    """The kept axis of which each lane has an element of the result: the innermost in the input, or one of several
    rows that are shorter than a vector. None where vectors lie along the rows.

    Args:
        kept: The axes of the result.
        along: The innermost of those that are reduced.
        lanes: Of a vector.
    """
    innermost = next((k for k, a in enumerate(kept) if a.steps["x0"] == 1), None)
    if innermost is not None or lanes == 1 or along is None or not kept or any_free([a.size for a in (*kept, along)]):
        return innermost
    if along.steps["x0"] != 1 or along.size > lanes:
        return None
    largest = max(range(len(kept)), key=lambda k: kept[k].size)
    return largest if kept[largest].size >= lanes else None


def passes(size: int, lanes: int, most: int) -> list[VectorLoop]:
    """An axis in passes of so many vectors, a pass of the whole vectors that remain, the last one filled in part."""
    step = lanes * most
    whole, rest = size // step, size % step
    found = [VectorLoop(0, whole, step, tuple((k * lanes, lanes) for k in range(most)))] if whole else []
    left = [(k, min(lanes, rest - k)) for k in range(0, rest, lanes)]
    if left:
        found.append(VectorLoop(whole * step, 1, rest, tuple(left)))
    return found
