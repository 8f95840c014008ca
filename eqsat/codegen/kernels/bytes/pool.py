"""Pooling of bytes with the channels last: ``MaxPool``, ``QLinearAveragePool`` and ``QLinearGlobalAveragePool``.

Windows are cut off at the borders instead of padded, so that no halo is needed. Means are sums of float32 in the order
of the executor (each row of a window first), since ONNX Runtime adds up dequantized values; global ones are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.byte_names import finish
from eqsat.codegen.kernels.bytes.c_values import Value, Vector
from eqsat.codegen.kernels.bytes.conv import kernel, pointer_types, result_order
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.epilogue_steps import is_supported
from eqsat.codegen.kernels.shared.families import register
from eqsat.ops.families.pooling import window_counts
from eqsat.ops.windows import Windows, integers, windows
from eqsat.schema.dtypes import BYTES
from eqsat.schema.types import OpKey

_MS = "com.microsoft"
MAX = OpKey("", "MaxPool")
MEAN = OpKey(_MS, "QLinearAveragePool")
GLOBAL = OpKey(_MS, "QLinearGlobalAveragePool")


@dataclass(frozen=True, slots=True)
class SpatialAxis:
    """A spatial axis as templates see it."""

    size: int
    out: int
    kernel: int
    step: int
    dilation: int
    begin: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Pooling:
    """Axes and windows of a task."""

    at: Windows
    channel: int
    spatial: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """Channels last."""
        return (0, *self.spatial, self.channel)

    def sides(self, x: View, y: View) -> tuple[SpatialAxis, SpatialAxis]:
        """Both spatial axes; a missing one has one element."""
        at, found = self.at, [SpatialAxis(1, 1, 1, 1, 1, 0, 0, 0)] * (2 - len(self.spatial))
        for i, a in enumerate(self.spatial):
            found.append(
                SpatialAxis(
                    x.shape[a], y.shape[a], at.kernel[i], at.strides[i], at.dilations[i], at.begin[i],
                    x.strides[a], y.strides[a],
                )
            )  # fmt: skip
        return found[0], found[1]


def _pooling(task: Task) -> Pooling | None:
    x = task.inputs[0]
    if not isinstance(x, View) or x.dtype not in BYTES or not 3 <= x.rank <= 4 or task.outputs[0] is None:
        return None
    if 0 in (*x.shape, *task.output.shape) or any(v is not None for v in task.outputs[1:]):
        return None
    channel = x.rank - 1 if task.attributes.get("channels_last") else 1
    spatial = tuple(a for a in range(1, x.rank) if a != channel)
    sizes = [x.shape[a] for a in spatial]
    if task.operator == GLOBAL:
        one = (1,) * len(spatial)
        return Pooling(Windows(tuple(sizes), one, one, (0,) * len(one), (0,) * len(one), one), channel, spatial)
    kernel_shape = integers(task.attributes, "kernel_shape", ())
    try:
        at = windows(task.attributes, sizes, kernel_shape, ceil=bool(task.attributes.get("ceil_mode", 0)))
    except ValueError:
        return None
    return Pooling(at, channel, spatial)


def _wants(task: Task) -> Wants:
    found = _pooling(task)
    assert found is not None
    order = found.order if task.operator == MAX else result_order(task.output, found.order)
    return Wants((Want(found.order, strict=True),), (Want(order, strict=True),))


# ---- maxima ----------------------------------------------------------------------------------------------


def _accepts_max(task: Task) -> bool:
    return not task.epilogue.steps and _pooling(task) is not None


def _generate_max(task: Task, isa: Isa) -> GeneratedKernel:
    found = _pooling(task)
    assert found is not None
    x, y = task.view(0), task.output
    channels, width = x.shape[found.channel], max(isa.vector_bytes, 1)
    text = render(
        "bytes/max_pool.c.jinja",
        batch=(x.shape[0], x.strides[0], y.strides[0]),
        sides=found.sides(x, y),
        signed=x.dtype == ir.DataType.INT8,
        blocks=[
            (first, count, live)
            for first, count, live in (
                (0, channels // width, width),
                (channels // width * width, 1, channels % width),
            )
            if count and live
        ],
        width=width,
        over_read=x.slack >= width,
    )
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, helpers=helpers, contract=False)


register(Family("integer maximum pooling", (MAX,), _accepts_max, _generate_max, _wants, rank=20))


# ---- means -----------------------------------------------------------------------------------------------


def _numbers(task: Task) -> list[np.ndarray] | None:
    """Scale and zero point of input and output."""
    given = [task.constant(i) for i in range(1, 5)]
    if any(task.has(i) and n is None for i, n in enumerate(given, start=1)):
        return None
    found = [np.zeros(()) if n is None else n for n in given]
    return found if all(n.size == 1 for n in found) else None


def _accepts_mean(task: Task) -> bool:
    if _pooling(task) is None or _numbers(task) is None or not is_supported(task.epilogue):
        return False
    found = _pooling(task)
    return found is not None and math.prod(found.at.kernel) * 255 < 2**31


def _generate_mean(task: Task, isa: Isa) -> GeneratedKernel:
    found, numbers = _pooling(task), _numbers(task)
    assert found is not None and numbers is not None
    x, y, lanes = task.view(0), task.output, isa.lanes()
    f4 = np.float32
    scale, zero, y_scale, y_zero = (
        f4(numbers[0].reshape(())),
        int(numbers[1]),
        f4(numbers[2].reshape(())),
        int(numbers[3]),
    )
    exact = task.operator == GLOBAL
    counts = _counts(task, found, x)
    uniform = bool((counts == counts.flat[0]).all())
    constants = [] if exact or uniform else [counts.ravel()]
    epilogue = ByteEpilogue(task.epilogue, y.shape, found.channel, isa, len(constants))
    epilogue.result_stride = y.strides[found.channel]
    types = pointer_types(task, [*constants, *epilogue.constants])
    sides = found.sides(x, y)
    strides = {**epilogue.strides, "y0": y.strides}
    axes = [(0, "n")] + [(a, v) for a, v in zip(found.spatial, "hw"[-len(found.spatial) :], strict=True)]
    channels = x.shape[found.channel]

    def first() -> Value:
        if exact:
            count = math.prod(found.at.kernel)
            total = f"FLOAT@(t - {epilogue.parameter('i', count * zero)})"
            factor = epilogue.parameter("f", scale / (y_scale * f4(count)))
            return epilogue.rounded(f"{total} * {factor}", int(y_zero), task.epilogue.dtype)
        divisor = epilogue.parameter("f", float(counts.flat[0])) if uniform else "SPLAT@(*count)"
        mean = f"t / {divisor} / {epilogue.parameter('f', y_scale)} + {epilogue.parameter('f', y_zero)}"
        return epilogue.rounded(mean, 0, task.epilogue.dtype)

    blocks = []
    for start, count, live in ((0, channels // lanes, lanes), (channels // lanes * lanes, 1, channels % lanes)):
        if not count or not live:
            continue
        pointers = []
        for name, s in strides.items():
            step = s[found.channel]
            moves = [f" + {v} * {s[a]}" for a, v in axes if s[a]]
            moves += [f" + c * {lanes * step}"] if step and count > 1 else []
            moves += [f" + {start * step}"] if start * step else []
            pointers.append((f"{'' if name == 'y0' else 'const '}{types[name]} *", name, "".join(moves)))
        lines = epilogue.write([Vector(first, lambda name: f"{name}p", live)])
        blocks.append((start, count, live, pointers, lines))
    text = render(
        "bytes/mean_pool.c.jinja",
        batch=(x.shape[0], x.strides[0]),
        sides=sides,
        blocks=blocks,
        lanes=lanes,
        kind="unsigned" if x.dtype == ir.DataType.UINT8 else "signed",
        over_read=x.slack >= lanes,
        exact=exact,
        uniform=uniform,
    )
    if not exact:
        # After the parameters of the epilogue.
        real = [epilogue.parameters.single(zero), epilogue.parameters.single(scale)]
        text = text.replace("$zero", real[0]).replace("$scale", real[1])
    text = "\n".join([*epilogue.declarations(), text])
    return kernel(text, constants, epilogue, isa)


def _counts(task: Task, found: Pooling, x: View) -> np.ndarray:
    """Elements of each window, as the executor divides by them."""
    at = found.at
    if task.operator == GLOBAL or task.attributes.get("count_include_pad", 0):
        return np.full(at.out, math.prod(at.kernel), np.float32)
    return window_counts(at, tuple(x.shape[a] for a in found.spatial), False).astype(np.float32)


register(Family("integer mean pooling", (MEAN, GLOBAL), _accepts_mean, _generate_mean, _wants, rank=20))
