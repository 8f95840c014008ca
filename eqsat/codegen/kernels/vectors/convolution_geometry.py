"""What convolutions in C have in common: accepted tasks, their windows, wants for NHWC, operands as loop axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.kernel import Halo, Shape, Task, View, Want, Wants
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import Axis
from eqsat.ops.windows import Windows, windows
from eqsat.schema.size_questions import is_free

FLOAT = ir.DataType.FLOAT


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


def halo(at: Windows, spatial: Shape) -> Halo:
    """The elements that windows read before the first and after the last one, for each axis."""
    around = [(0, 0), (0, 0)]
    edges = zip(spatial, at.begin, at.end, at.out, at.strides, at.extent, strict=True)
    for size, begin, end, out, stride, extent in edges:
        reach = (out - 1) * stride + extent - begin - size
        # Of a free size the padding bounds what is read.
        around.append((max(begin, 0), max(end if is_free(reach) else reach, 0)))
    return tuple(around)


def channels_last(rank: int) -> tuple[int, ...]:
    """Order of axes in memory: batch, space, channels."""
    return (0, *range(2, rank), 1)


def nhwc(task: Task, around: Halo = (), pad: float = 0) -> Wants:
    """Input and output with the channels innermost, room around the input; operands may become the result."""
    order = channels_last(task.output.rank)
    operands = tuple((-1 - k, 0) for k, o in enumerate(task.epilogue.operands) if isinstance(o, View))
    return Wants((Want(order=order, strict=True, halo=around, pad=pad),), (Want(order=order, strict=True),), operands)


def bias(task: Task, outputs: int) -> np.ndarray:
    """The bias, zeros where there is none."""
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
