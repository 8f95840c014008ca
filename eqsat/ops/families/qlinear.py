"""ONNX Runtime's operators on quantized tensors (``com.microsoft.QLinear*``, ``QGemm``), to the bit.

Where the documentation leaves rounding open, these follow what ONNX Runtime computes on x86 with fused multiply-add.
Functions of one 8-bit operand are tables of 256 entries; a fused multiply-add is a float64 operation rounded to
float32, which is the same as long as the products are of 8-bit integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import normal
from eqsat.ops.families.activations import sigmoid
from eqsat.ops.families.integer import exact_matmul, qlinear_conv, requantize
from eqsat.ops.families.pooling import fold, pool_windows, window_counts
from eqsat.ops.families.quantization import dequantize_linear, quantize_linear, saturate
from eqsat.ops.kernel import Attributes
from eqsat.ops.need_by_shapes import need_broadcasting, need_convolution, need_product
from eqsat.ops.normal_windows import window
from eqsat.ops.registry import declare
from eqsat.ops.traits import PARAMETRIC
from eqsat.ops.windows import padded
from eqsat.schema.opset import MICROSOFT

_Optional = np.ndarray | None


def _scale(v: np.ndarray) -> np.float32:
    return np.float32(v.reshape(()))


def _zero(v: _Optional) -> int:
    return 0 if v is None else int(v.reshape(()))


def _real(x: np.ndarray, scale: np.ndarray, zero: _Optional) -> np.ndarray:
    """Dequantized per tensor."""
    y = x.astype(np.float32)
    y -= np.float32(_zero(zero))
    y *= _scale(scale)
    return y


def _quantized(v: np.ndarray, scale: np.ndarray, zero: _Optional, dtype: np.dtype) -> np.ndarray:
    """Quantized per tensor."""
    return saturate(v / _scale(scale), np.float32(_zero(zero)), dtype)


def _by_table(x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply a function of 8-bit integers by computing it for each of them once."""
    every = np.arange(256, dtype=np.uint8).view(x.dtype)
    return function(every)[x.view(np.uint8)]


def qlinear_add(
    attrs: Attributes,
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: _Optional,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: _Optional,
    c_scale: np.ndarray,
    c_zero: _Optional = None,
) -> np.ndarray:
    """Sum: the zero points in one constant, then one fused multiply-add for each operand."""
    wide = np.float64
    ra, rb = _scale(a_scale) / _scale(c_scale), _scale(b_scale) / _scale(c_scale)
    offsets = np.float32(wide(ra) * _zero(a_zero) + wide(rb * np.float32(_zero(b_zero))))
    constant = np.float32(_zero(c_zero)) - offsets
    right = (b * wide(rb) + wide(constant)).astype(np.float32)
    v = (a * wide(ra) + right).astype(np.float32)
    return saturate(v, np.float32(0), a.dtype)


def qlinear_mul(
    attrs: Attributes,
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: _Optional,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: _Optional,
    c_scale: np.ndarray,
    c_zero: _Optional = None,
) -> np.ndarray:
    """Product: the exact integer product, scaled, offset and then rounded."""
    left = a.astype(np.float32) - np.float32(_zero(a_zero))
    right = b.astype(np.float32) - np.float32(_zero(b_zero))
    v = left * right * (_scale(a_scale) * _scale(b_scale) / _scale(c_scale))
    v += np.float32(_zero(c_zero))
    return saturate(v, np.float32(0), a.dtype)


def qlinear_concat(attrs: Attributes, y_scale: np.ndarray, y_zero: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """Operands (tensor, scale, zero point) one after the other, each converted to the output's parameters."""
    parts = []
    for x, scale, zero in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if _scale(scale) == _scale(y_scale) and _zero(zero) == _zero(y_zero):
            parts.append(x)
        else:
            parts.append(_requantized(x, scale, zero, y_scale, y_zero))
    return np.concatenate(parts, attrs["axis"])


def _requantized(
    x: np.ndarray, scale: np.ndarray, zero: _Optional, y_scale: np.ndarray, y_zero: _Optional
) -> np.ndarray:
    return _by_table(x, lambda every: _quantized(_real(every, scale, zero), y_scale, y_zero, x.dtype))


def qlinear_where(
    attrs: Attributes,
    condition: np.ndarray,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    y: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    z_scale: np.ndarray,
    z_zero: np.ndarray,
) -> np.ndarray:
    """Selection, both operands converted to the output's parameters."""
    left = _requantized(x, x_scale, x_zero, z_scale, z_zero)
    return np.where(condition, left, _requantized(y, y_scale, y_zero, z_scale, z_zero))


def qlinear_sigmoid(
    attrs: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: _Optional,
    y_scale: np.ndarray,
    y_zero: _Optional = None,
) -> np.ndarray:
    """Sigmoid of a quantized operand."""
    return _by_table(x, lambda v: _quantized(sigmoid(_real(v, x_scale, x_zero)), y_scale, y_zero, x.dtype))


def qlinear_leaky_relu(
    attrs: Attributes,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: _Optional,
    y_scale: np.ndarray,
    y_zero: _Optional = None,
) -> np.ndarray:
    """Leaky ReLU of a quantized operand."""

    def table(every: np.ndarray) -> np.ndarray:
        v = _real(every, x_scale, x_zero)
        return _quantized(np.where(v >= 0, v, v * np.float32(attrs["alpha"])), y_scale, y_zero, x.dtype)

    return _by_table(x, table)


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
    table = np.exp((np.arange(256) - 255) * np.float64(_scale(x_scale)) + shift).astype(np.float32)
    level = x.astype(np.int64)
    terms = table[level - level.max(-1, keepdims=True) + 255]
    total = np.add.accumulate(terms, axis=-1)[..., -1:]  # one by one, as each sum is rounded
    limits = np.iinfo(x.dtype)
    with np.errstate(over="ignore"):
        steps = np.rint(terms * np.floor(np.float32(1) / _scale(y_scale)) / total)
    zero = _zero(y_zero)
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
    sums = fold(padded(_real(x, x_scale, x_zero), at), at, np.add)
    if attrs.get("count_include_pad", 0):
        v = sums / np.float32(math.prod(at.kernel))
    else:
        v = sums / window_counts(at, x.shape[2:], False).astype(np.float32)
    v /= _scale(y_scale)
    v += np.float32(_zero(y_zero))
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
    total = x.sum(axes, keepdims=True, dtype=np.int64) - count * _zero(x_zero)
    scale = _scale(x_scale) / (_scale(y_scale) * np.float32(count))
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
    scale = (np.float32(attrs["alpha"]) * _scale(a_scale) * b_scale).astype(np.float32)
    scale = scale.reshape(()) if scale.size == 1 else scale
    if y_scale is None:
        return acc.astype(np.float32) * scale
    assert y_zero is not None
    return requantize(acc, scale / _scale(y_scale), y_zero, y_zero.dtype)


def qlinear_conv_channels(attrs: Attributes, x: np.ndarray, *rest: Any) -> np.ndarray:
    """QLinearConv whose activations may have the channels last."""
    if not attrs.get("channels_last"):
        return qlinear_conv(attrs, x, *rest)
    y = qlinear_conv(attrs, np.ascontiguousarray(np.moveaxis(x, -1, 1)), *rest)
    return np.asarray(np.moveaxis(y, 1, -1), order="C")


def quantize_linear_ms(attrs: Attributes, x: np.ndarray, scale: np.ndarray, zero: _Optional = None) -> np.ndarray:
    """As ONNX's QuantizeLinear."""
    return quantize_linear(attrs, x, scale, zero)


def dequantize_linear_ms(attrs: Attributes, x: np.ndarray, scale: np.ndarray, zero: _Optional = None) -> np.ndarray:
    """As ONNX's DequantizeLinear."""
    return dequantize_linear(attrs, x, scale, zero)


# ---- declarations ----------------------------------------------------------------------------------

declare("QLinearAdd", domain=MICROSOFT, numpy=qlinear_add, need=need_broadcasting)
declare("QLinearMul", domain=MICROSOFT, numpy=qlinear_mul, need=need_broadcasting)
declare("QLinearConcat", domain=MICROSOFT, numpy=qlinear_concat, normal_form=(normal.axis(2),))
declare("QLinearWhere", domain=MICROSOFT, numpy=qlinear_where, need=need_broadcasting)
declare("QLinearSigmoid", domain=MICROSOFT, numpy=qlinear_sigmoid)
declare("QLinearLeakyRelu", domain=MICROSOFT, numpy=qlinear_leaky_relu)
declare("QLinearSoftmax", domain=MICROSOFT, numpy=qlinear_softmax, macs=count.input_elements)
declare("QLinearAveragePool", domain=MICROSOFT, numpy=qlinear_average_pool, macs=count.pooling, normal_form=(window(),))
declare("QLinearGlobalAveragePool", domain=MICROSOFT, numpy=qlinear_global_average_pool, macs=count.input_elements)
declare("QGemm", domain=MICROSOFT, numpy=qgemm, macs=count.product, need=need_product(3))
declare(
    "QLinearConv",
    domain=MICROSOFT,
    numpy=qlinear_conv_channels,
    traits=PARAMETRIC,
    macs=count.convolution(3),
    need=need_convolution(0, 3),
)
declare("QuantizeLinear", domain=MICROSOFT, numpy=quantize_linear_ms)
declare("DequantizeLinear", domain=MICROSOFT, numpy=dequantize_linear_ms)
declare("QLinearReduceMean", domain=MICROSOFT, macs=count.input_elements)
