"""ONNX Runtime's layers on quantized tensors: softmax, pools, products; see :mod:`eqsat.ops.families.qlinear`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.families.integer import exact_matmul, qlinear_conv, requantize
from eqsat.ops.families.pooling import fold, pool_windows, window_counts
from eqsat.ops.families.qlinear import real, scale_of, zero_of
from eqsat.ops.families.quantization import saturate
from eqsat.ops.need_by_shapes import need_convolution, need_product
from eqsat.ops.normal_windows import window
from eqsat.ops.registry import declare
from eqsat.ops.sampling import qlinear as sample
from eqsat.ops.traits import ELEMENTARY, PARAMETRIC
from eqsat.ops.typed_like import Like
from eqsat.ops.windows import padded
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes

_Optional = np.ndarray | None


def qlinear_softmax(
    attrs: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: _Optional,
    y_scale: np.ndarray,
    y_zero: _Optional = None,
) -> np.ndarray:
    """Softmax of a quantized operand: exponentials from a table, so large that a row's sum nearly fills float32.

    The product with the output's scale can therefore overflow, where that has more than e**5 steps; ONNX Runtime
    then gives the zero point, or the lowest integer where that is signed.
    """
    axis = attrs["axis"] + (x.ndim if attrs["axis"] < 0 else 0)
    shape = x.shape
    if attrs["opset"] < 13:
        x = x.reshape(math.prod(shape[:axis]), math.prod(shape[axis:]))
        axis = 1
    x = np.moveaxis(x, axis, -1)
    shift = math.log(float(np.finfo(np.float32).max) / max(x.shape[-1], 1)) - 5
    table = np.exp((np.arange(256) - 255) * np.float64(scale_of(x_scale)) + shift).astype(np.float32)
    level = x.astype(np.int64)
    terms = table[level - level.max(-1, keepdims=True) + 255]
    total = np.add.accumulate(terms, axis=-1)[..., -1:]  # one by one, as each sum is rounded
    limits = np.iinfo(x.dtype)
    with np.errstate(over="ignore"):
        steps = np.rint(terms * np.floor(np.float32(1) / scale_of(y_scale)) / total)
    zero = zero_of(y_zero)
    overflow = limits.min if limits.min < 0 else zero
    y = np.where(np.isinf(steps), overflow, np.clip(steps + np.float32(zero), limits.min, limits.max))
    return np.moveaxis(y.astype(x.dtype), -1, axis).reshape(shape)


def qlinear_average_pool(
    attrs: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: _Optional,
    y_scale: np.ndarray,
    y_zero: _Optional = None,
) -> np.ndarray:
    """Mean of each window of the dequantized input; the zero point is added before rounding.

    With ``count_include_pad`` every window counts its whole kernel, also what ``ceil_mode`` adds beyond the padding.
    """
    if attrs.get("channels_last"):
        moved = qlinear_average_pool(
            {**attrs, "channels_last": 0}, np.moveaxis(x, -1, 1), x_scale, x_zero, y_scale, y_zero
        )
        return np.asarray(np.moveaxis(moved, 1, -1), order="C")
    at = pool_windows(attrs, x)
    sums = fold(padded(real(x, x_scale, x_zero), at), at, np.add)
    if attrs.get("count_include_pad", 0):
        v = sums / np.float32(math.prod(at.kernel))
    else:
        v = sums / window_counts(at, x.shape[2:], False).astype(np.float32)
    v /= scale_of(y_scale)
    v += np.float32(zero_of(y_zero))
    return saturate(v, np.float32(0), x.dtype)


def qlinear_global_average_pool(
    attrs: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
) -> np.ndarray:
    """Exact sum over all spatial axes, then one scale."""
    axes = tuple(range(1, x.ndim - 1)) if attrs.get("channels_last") else tuple(range(2, x.ndim))
    count = math.prod(x.shape[a] for a in axes)
    total = x.sum(axes, keepdims=True, dtype=np.int64) - count * zero_of(x_zero)
    scale = scale_of(x_scale) / (scale_of(y_scale) * np.float32(count))
    return requantize(total, np.asarray(scale), y_zero, x.dtype)


def qgemm(
    attrs: Attributes,
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: np.ndarray,
    c: _Optional = None,
    y_scale: _Optional = None,
    y_zero: _Optional = None,
) -> np.ndarray:
    """``alpha * A' B' + C`` of quantized operands, requantized or, without an output scale, as floats."""
    acc = exact_matmul(a.T if attrs["transA"] else a, a_zero, b.T if attrs["transB"] else b, b_zero)
    if c is not None:
        acc = acc + c
    scale = np.float32(attrs["alpha"]) * scale_of(a_scale) * b_scale
    scale = scale.reshape(()) if scale.size == 1 else scale
    if y_scale is None:
        return acc.astype(np.float32) * scale
    assert y_zero is not None
    return requantize(acc, scale / scale_of(y_scale), y_zero, y_zero.dtype)


def qlinear_conv_channels(attrs: Attributes, x: np.ndarray, *rest: Any) -> np.ndarray:
    """QLinearConv whose activations may have the channels last."""
    if not attrs.get("channels_last"):
        return qlinear_conv(attrs, x, *rest)
    y = qlinear_conv(attrs, np.ascontiguousarray(np.moveaxis(x, -1, 1)), *rest)
    return np.asarray(np.moveaxis(y, 1, -1), order="C")


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("QLinearSoftmax", domain=MICROSOFT, numpy=qlinear_softmax, traits=ELEMENTARY, macs=count.input_elements,
    sampling=sample.softmax, typed_like=Like("Softmax"))
declare("QLinearAveragePool", domain=MICROSOFT, numpy=qlinear_average_pool, macs=count.pooling, normal_form=(window(),),
    sampling=sample.average_pool, typed_like=Like("AveragePool"))
declare("QLinearGlobalAveragePool", domain=MICROSOFT, numpy=qlinear_global_average_pool, macs=count.input_elements,
    sampling=sample.global_average_pool, typed_like=Like("GlobalAveragePool"))
declare("QGemm", domain=MICROSOFT, numpy=qgemm, macs=count.product, need=need_product(3), sampling=sample.gemm,
    typed_like=Like("Gemm", (0, 3, 6), 8, ir.DataType.FLOAT))
declare("QLinearConv", domain=MICROSOFT, numpy=qlinear_conv_channels, traits=PARAMETRIC, macs=count.convolution(3),
    need=need_convolution(0, 3), bias=8)
declare("QLinearReduceMean", domain=MICROSOFT, macs=count.input_elements)
