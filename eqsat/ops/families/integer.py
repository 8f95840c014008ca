"""Integer convolutions and matrix products, computed exactly in floating point by BLAS (see ``matmul``)."""

from __future__ import annotations

import math

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import equal_axes
from eqsat.ops.checks import attributes, layers, movement
from eqsat.ops.families.convolution import ProductKernel, blas, convolve, geometry
from eqsat.ops.families.matmul import integer_product, to_integer
from eqsat.ops.families.quantization import integer_range, saturate
from eqsat.ops.need_by_shapes import need_convolution, need_product
from eqsat.ops.normal_windows import window
from eqsat.ops.numpy_kernel import at_least_single
from eqsat.ops.registry import declare
from eqsat.ops.sampling import products, quantizing, windows
from eqsat.ops.traits import PARAMETRIC
from eqsat.ops.windows import Windows
from eqsat.schema.types import Attributes

_EXACT_SINGLE = 2.0**24


def centered(x: np.ndarray, zero: np.ndarray | None, axis: int = -1) -> np.ndarray:
    """``x - zero`` in float32, which holds it exactly; a vector of zero points lies along ``axis``."""
    y = x.astype(np.float32)
    if zero is not None and zero.any():
        offset = zero.astype(np.float32)
        if offset.size > 1 and offset.ndim == 1:
            offset = offset.reshape(-1, *(1,) * (x.ndim - 1 - axis % x.ndim))
        y -= offset if offset.size > 1 else offset.reshape(())
    return y


def accumulate(x: np.ndarray, w: np.ndarray, at: Windows, group: int, bias: np.ndarray | None = None) -> np.ndarray:
    """Exact convolution of 8-bit integers, zero points subtracted, held in float32.

    The result is in float32 or, where that is too narrow, float64.
    """
    peak = 255.0 * float(max(np.abs(w).max(initial=0), 1))
    depth = w.shape[1] * math.prod(w.shape[2:])
    largest = 0.0 if bias is None else float(np.abs(bias.astype(np.int64)).max(initial=0))
    if peak * depth + largest <= _EXACT_SINGLE:
        y = convolve(x, w, at, group)
    elif w.shape[1] == 1 and group > 1:
        y = convolve(x.astype(np.float64), w.astype(np.float64), at, group)
    else:
        y = convolve(x, w, at, group, _pieces(int(_EXACT_SINGLE // peak)), np.float64)
    if bias is not None:
        y += bias.astype(y.dtype).reshape(-1, *(1,) * (x.ndim - 2))
    return y


def _pieces(step: int) -> ProductKernel:
    """A product that adds up float32 products of bounded depth in float64."""

    def product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        depth = a.shape[-1]
        if step >= depth:
            blas(a, b, out)
            return
        out[...] = np.matmul(a[..., :step], b[..., :step, :])
        for start in range(step, depth, step):
            out += np.matmul(a[..., start : start + step], b[..., start : start + step, :])

    return product


def requantize(acc: np.ndarray, scale: np.ndarray, zero: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Accumulators times a scale, rounded, offset, saturated."""
    v = acc.astype(at_least_single(scale))
    v *= scale
    return saturate(v, np.float32(zero.reshape(())), dtype)


def conv_integer(
    attrs: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    x_zero: np.ndarray | None = None,
    w_zero: np.ndarray | None = None,
) -> np.ndarray:
    """Convolution of 8-bit integers in int32; the padding is the zero point."""
    at = geometry(attrs, x, w)
    return to_integer(accumulate(centered(x, x_zero), centered(w, w_zero, 0), at, attrs.get("group", 1)), np.int32)


def qlinear_conv(
    attrs: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    w: np.ndarray,
    w_scale: np.ndarray,
    w_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """Convolution of quantized operands; weights may have a scale and zero point for each output channel."""
    at = geometry(attrs, x, w)
    acc = accumulate(centered(x, x_zero), centered(w, w_zero, 0), at, attrs.get("group", 1), bias)
    product = np.asarray(x_scale.reshape(()) * w_scale / y_scale.reshape(()))
    scale = product.astype(at_least_single(product))
    if scale.size > 1:
        scale = scale.reshape(-1, *(1,) * (x.ndim - 2))
    return requantize(acc, scale if scale.size > 1 else scale.reshape(()), y_zero, y_zero.dtype)


def _rows(v: np.ndarray | None) -> np.ndarray | None:
    """One value for each row of the left operand, as a column."""
    return v.reshape(-1, 1) if v is not None and v.ndim == 1 and v.size > 1 else v


def _columns(v: np.ndarray | None) -> np.ndarray | None:
    """One value for each column of the right operand, as a row."""
    return v.reshape(1, -1) if v is not None and v.ndim == 1 and v.size > 1 else v


def exact_matmul(a: np.ndarray, a_zero: np.ndarray | None, b: np.ndarray, b_zero: np.ndarray | None) -> np.ndarray:
    """``(a - a_zero) @ (b - b_zero)`` in int32."""
    return integer_product(centered(a, _rows(a_zero)), centered(b, _columns(b_zero)), np.int32)


def matmul_integer(
    attrs: Attributes,
    a: np.ndarray,
    b: np.ndarray,
    a_zero: np.ndarray | None = None,
    b_zero: np.ndarray | None = None,
) -> np.ndarray:
    """Matrix product of 8-bit integers in int32."""
    return exact_matmul(a, a_zero, b, b_zero)


def qlinear_matmul(
    attrs: Attributes,
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
) -> np.ndarray:
    """Matrix product of quantized operands; rows of ``a`` and columns of ``b`` may have their own parameters."""
    acc = exact_matmul(a, a_zero, b, b_zero)
    left, right = _rows(a_scale), _columns(b_scale)
    assert left is not None and right is not None
    left = left.reshape(()) if left.size == 1 else left
    right = right.reshape(()) if right.size == 1 else right
    if acc.ndim < 2 and right.ndim:
        right = right.reshape(-1)
    single = at_least_single(y_scale)
    scale = np.asarray(left.astype(single) * right.astype(single) / y_scale.reshape(()).astype(single))
    limits = integer_range(y_zero.dtype)
    if limits is None:
        raise ValueError(f"an integer output type is required, not {y_zero.dtype}")
    return requantize(acc, scale, y_zero, y_zero.dtype)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("ConvInteger", numpy=conv_integer, traits=PARAMETRIC, macs=count.convolution(1), need=need_convolution(0, 1),
    checks=(attributes.auto_pad, layers.conv_integer), normal_form=(window(1),), sampling=windows.convolution,
    together=equal_axes.convolution(bias=0))
declare("QLinearConv", numpy=qlinear_conv, traits=PARAMETRIC, macs=count.convolution(3), need=need_convolution(0, 3),
    checks=(attributes.auto_pad, layers.qlinear_conv), normal_form=(window(3),), sampling=quantizing.convolution,
    bias=8, together=equal_axes.convolution(0, 3, 8))
declare("MatMulInteger", numpy=matmul_integer, macs=count.product, need=need_product(1),
    checks=(movement.matmul_zero_points,), sampling=products.matmul, together=equal_axes.product())
declare("QLinearMatMul", numpy=qlinear_matmul, macs=count.product, need=need_product(3),
    checks=(layers.qlinear_matmul,), sampling=quantizing.product, together=equal_axes.product(0, 3))
