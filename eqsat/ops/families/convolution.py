"""Convolution in 1-D to 3-D (and beyond): window rows gathered into matrices, multiplied by BLAS.

A block of output rows is gathered at a time, so that the gathered matrix stays in the cache. Pointwise
convolutions multiply in place; depthwise ones are apart (see ``depthwise``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import equal_axes
from eqsat.ops.checks import attributes, layers
from eqsat.ops.depthwise import depthwise
from eqsat.ops.magnitude import ORDINARY
from eqsat.ops.need_by_shapes import need_convolution, need_transposed_convolution
from eqsat.ops.normal_windows import window
from eqsat.ops.numpy_kernel import in_single
from eqsat.ops.quantization_role import Role, Weight
from eqsat.ops.registry import declare
from eqsat.ops.sampling import windows as sample
from eqsat.ops.traits import FITS, PARAMETRIC
from eqsat.ops.windows import Windows, integers, padded, window_view, windows
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes

ProductKernel = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
"""``product(a, b, out)``: matrix product over the last two axes, into ``out``."""

_BLOCK_BYTES = 1 << 20
"""Size of the gathered matrix: the second-level cache of common cores."""


def blas(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """The ordinary matrix product."""
    np.matmul(a, b, out=out)


@in_single
def conv(attrs: Attributes, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Convolution of x (N, C, *spatial) with w (M, C / group, *kernel)."""
    y = convolve(x, w, geometry(attrs, x, w), _group(attrs))
    if b is not None:
        y += b.reshape(-1, *(1,) * (x.ndim - 2))
    return y


def geometry(attrs: Attributes, x: np.ndarray, w: np.ndarray) -> Windows:
    """Windows of a convolution; the kernel's shape is the weights'.

    Raises:
        ValueError: The shapes do not fit together.
    """
    group = _group(attrs)
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(f"input and weights must have the same rank of at least 3, not {x.ndim} and {w.ndim}")
    if w.shape[0] % group or x.shape[1] != w.shape[1] * group:
        raise ValueError(f"{x.shape[1]} channels in {group} groups do not fit weights of shape {w.shape}")
    if integers(attrs, "kernel_shape", w.shape[2:]) != w.shape[2:]:
        raise ValueError(f"kernel_shape {attrs.get('kernel_shape')} is not that of the weights, {w.shape[2:]}")
    return windows(attrs, x.shape[2:], w.shape[2:])


def convolve(
    x: np.ndarray,
    w: np.ndarray,
    at: Windows,
    group: int,
    product: ProductKernel = blas,
    dtype: np.dtype | type | None = None,
) -> np.ndarray:
    """Convolution of checked operands.

    Args:
        x: Input (N, C, *spatial).
        w: Weights (M, C / group, *kernel), of the same element type.
        at: The windows.
        group: Number of groups.
        product: The matrix product to use.
        dtype: Element type of the result where it is wider than the operands'.

    Returns:
        Output (N, M, *out), fresh.
    """
    n, m = x.shape[0], w.shape[0]
    depth = w.shape[1] * math.prod(w.shape[2:])
    if w.shape[1] == 1 and group > 1 and not at.is_pointwise:
        return depthwise(x, w, at)
    weights = np.ascontiguousarray(w).reshape(group, m // group, depth)
    y = np.empty((n, group, m // group, math.prod(at.out)), dtype or x.dtype)
    if at.is_pointwise:
        pixels = x
        if any(s != 1 for s in at.strides):
            pixels = x[(..., *(slice(0, (o - 1) * s + 1, s) for o, s in zip(at.out, at.strides, strict=True)))]
        product(weights, np.ascontiguousarray(pixels).reshape(n, group, depth, y.shape[3]), y)
    else:
        _gathered(padded(x, at), weights, at, y, product)
    return y.reshape(n, m, *at.out)


def _gathered(x: np.ndarray, weights: np.ndarray, at: Windows, y: np.ndarray, product: ProductKernel) -> None:
    """Multiply blocks of gathered windows; the blocks are cut along the first spatial axis of the output."""
    n, group, _, area = y.shape
    depth = weights.shape[2]
    view = window_view(x.reshape(n, group, x.shape[1] // group, *x.shape[2:]), at)
    rows = at.out[0]
    if not area:
        return
    row = area // rows
    step = max(1, min(rows, _BLOCK_BYTES // max(1, depth * row * x.itemsize)))
    buffer = np.empty((depth, step * row), x.dtype)
    axis = 1 + len(at.kernel)
    for i in range(n):
        for g in range(group):
            for start in range(0, rows, step):
                stop = min(start + step, rows)
                block = view[i, g][(slice(None),) * axis + (slice(start, stop),)]
                matrix = buffer[:, : (stop - start) * row]
                if stop - start < step:
                    matrix = np.ascontiguousarray(block).reshape(depth, -1)
                else:
                    matrix.reshape(block.shape)[...] = block
                product(weights[g], matrix, y[i, g, :, start * row : stop * row])


def _group(attrs: Attributes) -> int:
    group = attrs.get("group", 1)
    if not isinstance(group, int) or group < 1:
        raise ValueError(f"group must be positive, not {group}")
    return group


@in_single
def conv_transpose(attrs: Attributes, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Transposed convolution of x (N, C, *spatial) with w (C, M / group, *kernel): products scattered and added."""
    group = _group(attrs)
    rank = x.ndim - 2
    n, channels = x.shape[:2]
    if w.ndim != x.ndim or w.shape[0] != channels or channels % group:
        raise ValueError(f"{channels} channels in {group} groups do not fit weights of shape {w.shape}")
    kernel_shape = w.shape[2:]
    strides = integers(attrs, "strides", (1,) * rank)
    dilations = integers(attrs, "dilations", (1,) * rank)
    begin, out = transposed_padding(attrs, x.shape[2:], kernel_shape, strides, dilations)
    m = w.shape[1]
    depth = channels // group
    weights = w.reshape(group, depth, -1).transpose(0, 2, 1)
    pixels = x.reshape(n, group, depth, math.prod(x.shape[2:]))
    products = np.matmul(weights, pixels).reshape(n, group, m, *kernel_shape, *x.shape[2:])
    full = [
        max((size - 1) * s + (k - 1) * d + 1, o + max(p, 0))
        for size, s, k, d, o, p in zip(x.shape[2:], strides, kernel_shape, dilations, out, begin, strict=True)
    ]
    y = np.zeros((n, group, m, *full), x.dtype)
    for index in np.ndindex(*kernel_shape):
        place = tuple(
            slice(k * d, k * d + (size - 1) * s + 1, s)
            for k, d, s, size in zip(index, dilations, strides, x.shape[2:], strict=True)
        )
        y[(..., *place)] += products[(slice(None),) * 3 + index]
    if any(p < 0 for p in begin):
        y = np.pad(y, [(0, 0)] * 3 + [(max(-p, 0), 0) for p in begin])
    crop = tuple(slice(max(p, 0), max(p, 0) + o) for p, o in zip(begin, out, strict=True))
    y = y[(..., *crop)].reshape(n, group * m, *out)
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def transposed_padding(
    attrs: Attributes,
    spatial: tuple[int, ...],
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[list[int], list[int]]:
    """Padding before the output (the elements cropped there) and the output's spatial shape."""
    rank = len(spatial)
    pads = integers(attrs, "pads", (0,) * (2 * rank))
    extra = integers(attrs, "output_padding", (0,) * rank)
    wanted = integers(attrs, "output_shape", ())
    mode = attrs.get("auto_pad", "NOTSET")
    begin, out = [], []
    for i in range(rank):
        full = (spatial[i] - 1) * strides[i] + (kernel_shape[i] - 1) * dilations[i] + 1 + extra[i]
        if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
            # If windows end before the size that ``auto_pad`` requires, ONNX's types and ONNX Runtime end with the last
            # window.
            size = wanted[i - rank] if wanted else full - max(full - spatial[i] * strides[i], 0)
            total = max(full - size, 0)
            begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
            out.append(size)
        elif mode == "VALID":
            begin.append(0)
            out.append(full)
        else:
            begin.append(pads[i])
            out.append(full - pads[i] - pads[i + rank])
    return begin, out


def _output_axis(attrs: Attributes, rank: int) -> int | None:
    return 0


def _transposed_output_axis(attrs: Attributes, rank: int) -> int | None:
    # With groups, an index of this axis means one channel in each group.
    return 1 if attrs.get("group", 1) == 1 else None


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Conv", numpy=conv, traits=PARAMETRIC | FITS, contracted=(0, 1), macs=count.convolution(1),
    need=need_convolution(0, 1), checks=(attributes.auto_pad, layers.convolution()), normal_form=(window(1),),
    sampling=sample.convolution, quantization=Role(data=(0, 1), weight=Weight(1, _output_axis, bias=2)), bias=2,
    together=equal_axes.convolution(), magnitude=ORDINARY)
declare("ConvTranspose", numpy=conv_transpose, traits=PARAMETRIC, contracted=(0, 1), macs=count.transposed_convolution,
    need=need_transposed_convolution, checks=(attributes.auto_pad, layers.convolution(transposed=True)),
    normal_form=(window(1, transposed=True),), sampling=sample.transposed_convolution,
    quantization=Role(data=(0, 1), weight=Weight(1, _transposed_output_axis, bias=2)), bias=2,
    together=equal_axes.transposed_convolution, magnitude=ORDINARY)
declare("NhwcFusedConv", domain=MICROSOFT, macs=count.convolution(1))
