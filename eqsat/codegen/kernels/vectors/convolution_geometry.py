"""The common part of convolutions in C: accepted tasks, their windows, wants for NHWC, operands as loop axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.kernel import Halo, Task, View, Want, Wants
from eqsat.codegen.kernels.shared.nests import Axis
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue
from eqsat.ops.windows import Windows, windows
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import Shape

FLOAT = ir.DataType.FLOAT
_WORTH = 0.7
"""Share of the time that products inside the input take, below which it pays to leave out the others."""
_EDGE = 2
"""Columns in whose time a row of a part begins and ends, as its last tile fills few registers."""
_MOST_PARTS = 25


def is_float_convolution(task: Task) -> bool:
    """Float32 with constant weights and bias, one to three spatial axes, something to compute."""
    x, w = task.inputs[0], task.constant(1)
    if not isinstance(x, View) or w is None or x.dtype != FLOAT or not 3 <= x.rank <= 5:
        return False
    if task.has(2) and task.constant(2) is None:
        return False
    if 0 in x.shape or 0 in task.output.shape or 0 in w.shape or task.output.dtype != FLOAT:
        return False
    return is_vector_epilogue(task.epilogue)


def geometry(task: Task) -> Windows:
    """Windows over the input's spatial axes."""
    w = task.constant(1)
    assert w is not None
    return windows(task.attributes, task.view(0).shape[2:], w.shape[2:])


def reached(task: Task) -> tuple[Windows, np.ndarray]:
    """The windows and weights without the outer taps that read nothing but padding, as widely dilated ones may."""
    w = task.constant(1)
    assert w is not None
    at, kernel, begin = geometry(task), [], []
    for axis, size in enumerate(task.view(0).shape[2:]):
        step, before = at.dilations[axis], at.begin[axis]
        live = range(at.kernel[axis])
        if not is_free(size):
            outputs = range(at.out[axis])
            starts = {k: k * step - before for k in live}
            inside = [k for k in live if any(0 <= starts[k] + o * at.strides[axis] < size for o in outputs)]
            live = range(inside[0], inside[-1] + 1) if inside else live
        w = w.take(live, axis + 2)
        kernel.append(len(live))
        begin.append(before - live[0] * step)
    return replace(at, kernel=tuple(kernel), begin=tuple(begin)), w


@dataclass(frozen=True, slots=True)
class Reached:
    """Neighbouring outputs of one axis whose windows have the same taps inside the input.

    Attributes:
        first: The first output.
        count: How many.
        tap: The first tap.
        taps: How many.
    """

    first: int
    count: int
    tap: int
    taps: int


def regions(task: Task, at: Windows) -> list[list[Reached]] | None:
    """The outputs of each axis by the taps that reach them, if padding is a large part of the windows; otherwise
    None.
    """
    found: list[list[Reached]] = []
    whole, inside = 1, 1
    for axis, size in enumerate(task.view(0).shape[2:]):
        if is_free(size):
            return None
        parts: list[Reached] = []
        for o in range(at.out[axis]):
            start = o * at.strides[axis] - at.begin[axis]
            live = [k for k in range(at.kernel[axis]) if 0 <= start + k * at.dilations[axis] < size]
            if not live:
                return None
            part = Reached(o, 1, live[0], len(live))
            if parts and (parts[-1].tap, parts[-1].taps) == (part.tap, part.taps):
                parts[-1] = replace(parts[-1], count=parts[-1].count + 1)
            else:
                parts.append(part)
        found.append(parts)
        edge = _EDGE if axis == len(at.out) - 1 else 0
        whole *= (at.out[axis] + edge) * at.kernel[axis]
        inside *= sum((part.count + edge) * part.taps for part in parts)
    return found if inside < _WORTH * whole and math.prod(map(len, found)) <= _MOST_PARTS else None


def halo(at: Windows, spatial: Shape) -> Halo:
    """The elements that windows read before the first and after the last one, for each axis."""
    around = [(0, 0), (0, 0)]
    edges = zip(spatial, at.begin, at.end, at.out, at.strides, at.extent, strict=True)
    for size, begin, end, out, stride, extent in edges:
        reach = (out - 1) * stride + extent - begin - size
        # For a free size, the padding bounds the reads.
        around.append((max(begin, 0), max(end if is_free(reach) else reach, 0)))
    return tuple(around)


def channels_last(rank: int) -> tuple[int, ...]:
    """Order of axes in memory: batch, space, channels."""
    return (0, *range(2, rank), 1)


def nhwc(task: Task, around: Halo = ()) -> Wants:
    """Input and output with the channels innermost, room around the input; operands may become the result."""
    order = channels_last(task.output.rank)
    operands = tuple((-1 - k, 0) for k, o in enumerate(task.epilogue.operands) if isinstance(o, View))
    return Wants((Want(order=order, strict=True, halo=around),), (Want(order=order, strict=True),), operands)


def bias(task: Task, outputs: int) -> np.ndarray:
    """The bias, zeros if there is none."""
    found = task.constant(2)
    return np.zeros(outputs, np.float32) if found is None else found.reshape(-1).astype(np.float32)


def results(task: Task, epilogue: VectorEpilogue) -> dict[str, Shape]:
    """Strides of the output and of the epilogue's operands, by the names of their pointers."""
    return {"y0": task.output.strides, **epilogue.strides}


def spatial_axes(task: Task, at: Windows, made: Mapping[str, Shape]) -> list[Axis]:
    """The output's axes apart from the channels, with the strides of the first tap in the input."""
    x, y = task.view(0), task.output
    axes = [Axis(y.shape[0], {"x0": x.strides[0], **{n: s[0] for n, s in made.items()}})]
    for i, stride in enumerate(at.strides, start=2):
        axes.append(Axis(y.shape[i], {"x0": x.strides[i] * stride, **{n: s[i] for n, s in made.items()}}))
    return axes


def corner(task: Task, at: Windows) -> int:
    """From the pointer of the input to the first window's first element, in elements; not positive with padding."""
    return -sum(b * s for b, s in zip(at.begin, task.view(0).strides[2:], strict=True))
