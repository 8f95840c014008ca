"""Operators that compute nothing: their results may be pieces (views) of their operand's memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import numpy as np

from eqsat.codegen.buffers import BufferPiece
from eqsat.codegen.program import RESHAPE, ProgramNode, ProgramTensor
from eqsat.codegen.shape_arithmetic import elements
from eqsat.model.inference.sized_shapes import slice_start
from eqsat.schema.size import Undecided, bounds
from eqsat.schema.size_questions import any_free
from eqsat.schema.slices import taken


def is_piece(node: ProgramNode) -> bool:
    """Whether the outputs can be pieces of input 0 wherever that lies (``Reshape``: perhaps)."""
    if node.steps or node.operator.domain or not isinstance(node.inputs[0] if node.inputs else None, ProgramTensor):
        return False
    return node.operator == RESHAPE or (node.operator.name in _PIECES and _PIECES[node.operator.name](node) is not None)


def pieces(node: ProgramNode, place: BufferPiece) -> list[BufferPiece | None]:
    """Places of the outputs within the place of input 0; None for a ``Reshape`` that needs a copy."""
    x = node.inputs[0]
    assert isinstance(x, ProgramTensor)
    if node.operator == RESHAPE:
        to = node.output.shape
        return [place.without_ones(x.shape, to) or place.split(x.shape, to) or place.reshaped(x.shape, to)]
    make = _PIECES[node.operator.name](node)
    assert make is not None
    return make(place)


_Maker = Callable[[BufferPiece], list[BufferPiece | None]]


def _transpose(node: ProgramNode) -> _Maker | None:
    perm = tuple(node.attributes["perm"])
    return lambda place: [place.permuted(perm)]


def _expand(node: ProgramNode) -> _Maker | None:
    x, out = node.inputs[0], node.output
    assert isinstance(x, ProgramTensor)
    return lambda place: [place.expanded(x.shape, out.shape)]


def _slice(node: ProgramNode) -> _Maker | None:
    x, *parameters = node.inputs
    assert isinstance(x, ProgramTensor)
    if any(isinstance(p, ProgramTensor) for p in parameters):
        return None
    given = [None if p is None else elements(np.asarray(p)) for p in parameters]
    starts, ends, axes, steps = (given + [None] * 4)[:4]
    assert starts is not None and ends is not None
    named = axes if axes is not None else list(range(len(starts)))
    cuts = []
    for k, axis in enumerate(named):
        axis %= len(x.shape)
        step = steps[k] if steps is not None else 1
        if any_free((starts[k], ends[k], step, x.shape[axis])):
            start = _start(starts[k], step, x.shape[axis])
            if start is None:
                return None
            cuts.append((axis, start, step))
            continue
        cuts.append((axis, taken(starts[k], ends[k], step, x.shape[axis]).start, step))

    def make(place: BufferPiece) -> list[BufferPiece | None]:
        for axis, start, step in cuts:
            if node.output.shape[axis]:
                place = place.sliced(axis, start, step)
        return [place]

    return make


def _start(start: int, step: int, n: int) -> int | None:
    """The first index that a slice takes of an axis of a free size; None if it is not known for all sizes."""
    try:
        return slice_start(start, step, n)
    except Undecided:
        return None


def _split(node: ProgramNode) -> _Maker | None:
    x = node.inputs[0]
    assert isinstance(x, ProgramTensor)
    axis = node.attributes["axis"] % len(x.shape)
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        if isinstance(node.inputs[1], ProgramTensor):
            return None
        sizes = elements(np.asarray(node.inputs[1]))
    else:
        parts = node.attributes.get("num_outputs") or len(node.outputs)
        chunk = -(-x.shape[axis] // parts)
        if any_free(x.shape[axis : axis + 1]):
            # Their sizes are those of the results; each one begins a chunk after the previous one.
            return lambda place: [place.sliced(axis, k * chunk) for k in range(len(node.outputs))]
        sizes = [max(min(chunk, x.shape[axis] - k * chunk), 0) for k in range(parts)]
    starts = [0, *accumulate(sizes)][: len(sizes)]
    return lambda place: [place.sliced(axis, start) for start in starts[: len(node.outputs)]]


def _gather(node: ProgramNode) -> _Maker | None:
    x, index = node.inputs[0], node.inputs[1]
    assert isinstance(x, ProgramTensor)
    if not isinstance(index, np.ndarray) or index.ndim != 0:
        return None
    axis = node.attributes["axis"] % len(x.shape)
    at = int(index)
    if any_free(x.shape[axis : axis + 1]):
        at = at + x.shape[axis] if at < 0 else at
        if bounds(x.shape[axis] - at)[0] < 1 or bounds(at)[0] < 0:
            return None  # The index may not exist.
    else:
        at %= max(x.shape[axis], 1)
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    return lambda place: [place.sliced(axis, at).without_ones(shape, node.output.shape)]


_PIECES: dict[str, Callable[[ProgramNode], _Maker | None]] = {
    "Expand": _expand,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
