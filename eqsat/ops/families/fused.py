"""ONNX Runtime's fused floating-point operators (``com.microsoft``), which its optimizer writes into saved models."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops import equal_axes
from eqsat.ops.families.activations import ENDINGS, gelu, gelu_kernel, swish
from eqsat.ops.families.convolution import conv
from eqsat.ops.families.integer import exact_matmul
from eqsat.ops.families.matmul import gemm, matmul
from eqsat.ops.families.normalization import standardized
from eqsat.ops.families.quantization import dynamic_quantize_linear
from eqsat.ops.families.shaping import triangle
from eqsat.ops.families.slicing import pad
from eqsat.ops.families.unary import of_one
from eqsat.ops.mean_or_zero import mean
from eqsat.ops.need_by_shapes import need_broadcasting, need_convolution, need_product
from eqsat.ops.normal_windows import window
from eqsat.ops.numpy_kernel import Fallback, in_single
from eqsat.ops.registry import declare
from eqsat.ops.sampling import elementwise as sample
from eqsat.ops.sampling import fused
from eqsat.ops.traits import ELEMENTARY, ELEMENTWISE, KEEPS_FROM_ZERO, MOVES, PARAMETRIC, UNARY
from eqsat.ops.typed_like import Like
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes, TensorType, TensorTypes

_Optional = np.ndarray | None


@in_single
def bias_gelu(attrs: Attributes, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The exact GELU of ``x + bias``."""
    return gelu_kernel({"approximate": "none"}, x + bias)


@in_single
def fast_gelu(attrs: Attributes, x: np.ndarray, bias: _Optional = None) -> np.ndarray:
    """GELU by tanh, of ``x + bias``."""
    return gelu_kernel({"approximate": "tanh"}, x if bias is None else x + bias)


@in_single
def bias_add(attrs: Attributes, x: np.ndarray, bias: np.ndarray, skip: np.ndarray) -> np.ndarray:
    """``x + bias + skip``."""
    return x + bias + skip


def _activated(attrs: Attributes, y: np.ndarray, p: tuple[float, ...]) -> np.ndarray:
    """The activation that a fused convolution or product ends with."""
    name = attrs.get("activation") or "Identity"
    if name == "Identity":
        return y
    if name not in ENDINGS:
        raise Fallback
    return ENDINGS[name].compute(y, p)


@in_single
def fused_conv(attrs: Attributes, x: np.ndarray, w: np.ndarray, b: _Optional = None, z: _Optional = None) -> np.ndarray:
    """Convolution plus a residual, then an activation."""
    y = conv(attrs, x, w, b)
    if z is not None:
        y = y + z
    return _activated(attrs, y, tuple(attrs.get("activation_params", ())))


@in_single
def fused_gemm(attrs: Attributes, a: np.ndarray, b: np.ndarray, c: _Optional = None) -> np.ndarray:
    """Gemm, then an activation."""
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return _activated(attrs, gemm(attrs, a, b, c), tuple(attrs[n] for n in names if n in attrs))


@in_single
def fused_matmul(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``alpha * A' B'``; ``transBatch`` moves the first axis before the last but one."""
    left = _arranged(a, bool(attrs.get("transA")), bool(attrs.get("transBatchA")))
    right = _arranged(b, bool(attrs.get("transB")), bool(attrs.get("transBatchB")))
    y = matmul(attrs, left, right)
    return y * y.dtype.type(attrs["alpha"]) if attrs["alpha"] != 1.0 else y


def _arranged(x: np.ndarray, transpose: bool, batch: bool) -> np.ndarray:
    if batch:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if transpose and x.ndim > 1 else x


@in_single
def skip_layer_normalization(
    attrs: Attributes,
    x: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    beta: _Optional = None,
    bias: _Optional = None,
    *,
    outputs: int = 1,
) -> tuple[np.ndarray, ...]:
    """Layer normalisation over the last axis of ``x + skip + bias``; also returns statistics and the sum."""
    total = _skipped(x, skip, bias)
    y, mean, inverse = standardized(total, (x.ndim - 1,), attrs["epsilon"])
    y = y * gamma
    return (y if beta is None else y + beta, mean, inverse, total)[:outputs]


@in_single
def skip_rms_normalization(
    attrs: Attributes, x: np.ndarray, skip: np.ndarray, gamma: np.ndarray, bias: _Optional = None, *, outputs: int = 1
) -> tuple[np.ndarray, ...]:
    """RMS normalisation over the last axis of ``x + skip + bias``."""
    total = _skipped(x, skip, bias)
    square = mean(total * total, (-1,), True)
    inverse = 1 / np.sqrt(square + total.dtype.type(attrs["epsilon"]))
    return (total * inverse * gamma, np.zeros_like(square), inverse, total)[:outputs]


def _skipped(x: np.ndarray, skip: np.ndarray, bias: _Optional) -> np.ndarray:
    return x + skip if bias is None else x + skip + bias


def _types_of_sum(attrs: Attributes, types: TensorTypes) -> list[TensorType | None]:
    """Types of a normalised sum, the mean and the inverse deviation of each row, and the sum."""
    x = types[0]
    if x is None or x.shape is None:
        return [x, None, None, x]
    row = TensorType(ir.DataType.FLOAT, (*x.shape[:-1], 1)) if x.dtype == ir.DataType.FLOAT else None
    return [x, row, row, x]


def matmul_integer_to_float(
    attrs: Attributes,
    a: np.ndarray,
    b: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    a_zero: _Optional = None,
    b_zero: _Optional = None,
    bias: _Optional = None,
) -> np.ndarray:
    """Product of 8-bit operands, scaled, plus a bias, in float32."""
    scale = a_scale.reshape(()) * (b_scale if b_scale.size > 1 else b_scale.reshape(()))
    y = exact_matmul(a, a_zero, b, b_zero).astype(np.float32) * scale
    return y if bias is None else y + bias


def dynamic_quantize_matmul(
    attrs: Attributes,
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: _Optional = None,
    bias: _Optional = None,
) -> np.ndarray:
    """The product of integers whose left operand is quantized by its own range."""
    quantized, scale, zero = dynamic_quantize_linear(attrs, a)
    return matmul_integer_to_float(attrs, quantized, b, scale, b_scale, zero, b_zero, bias)


def expand_dims(attrs: Attributes, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """With one more axis of length 1."""
    return np.expand_dims(x, int(axis.reshape(())))


def pad_ms(attrs: Attributes, x: np.ndarray, pads: np.ndarray, value: _Optional = None) -> np.ndarray:
    """The same as ONNX's Pad."""
    return pad(attrs, x, pads.reshape(-1), value)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Gelu", domain=MICROSOFT, numpy=of_one(gelu), traits=UNARY | ELEMENTARY | KEEPS_FROM_ZERO, bends_at=(3.0,),
    typed_like=Like("Gelu"))
declare("BiasGelu", domain=MICROSOFT, numpy=bias_gelu, traits=ELEMENTWISE | ELEMENTARY, typed_like=Like("Add", (0, 1)))
declare("FastGelu", domain=MICROSOFT, numpy=fast_gelu, traits=ELEMENTWISE | ELEMENTARY, typed_like=Like("Identity"))
declare("QuickGelu", domain=MICROSOFT, numpy=swish, traits=UNARY | ELEMENTARY, sampling=sample.activation,
    typed_like=Like("Identity"))
declare("BiasAdd", domain=MICROSOFT, numpy=bias_add, traits=ELEMENTWISE, need=need_broadcasting,
    typed_like=Like("Sum", (0, 1, 2)))
declare("FusedConv", domain=MICROSOFT, numpy=fused_conv, traits=PARAMETRIC, contracted=(0, 1),
    macs=count.convolution(1), need=need_convolution(0, 1), normal_form=(window(1),),
    sampling=fused.convolution({name: ending.drawn for name, ending in ENDINGS.items()}),
    typed_like=Like("Conv", (0, 1, 2)), together=equal_axes.convolution())
declare("FusedGemm", domain=MICROSOFT, numpy=fused_gemm, contracted=(0, 1), macs=count.product, need=need_product(1),
    sampling=fused.general_product,
    typed_like=Like("Gemm", (0, 1, 2)), together=equal_axes.transposed_product)
declare("FusedMatMul", domain=MICROSOFT, numpy=fused_matmul, contracted=(0, 1), macs=count.product,
    need=need_product(1), sampling=fused.turned_product, together=equal_axes.transposed_product)
declare("TransposeMatMul", domain=MICROSOFT, numpy=fused_matmul, need=need_product(1),
    sampling=fused.turned_product, together=equal_axes.transposed_product)
declare("SkipLayerNormalization", domain=MICROSOFT, numpy=skip_layer_normalization, types=_types_of_sum,
    macs=count.input_elements, sampling=fused.normalized_sum, together=equal_axes.skipped)
declare("SkipSimplifiedLayerNormalization", domain=MICROSOFT, numpy=skip_rms_normalization, types=_types_of_sum,
    sampling=fused.normalized_sum, together=equal_axes.skipped)
declare("MatMulIntegerToFloat", domain=MICROSOFT, numpy=matmul_integer_to_float, macs=count.product,
    need=need_product(1), sampling=fused.integer_product, typed_like=Like("MatMul", (0, 1), 2),
    together=equal_axes.product())
declare("DynamicQuantizeMatMul", domain=MICROSOFT, numpy=dynamic_quantize_matmul, macs=count.product,
    need=need_product(1), sampling=fused.dynamic_product, typed_like=Like("MatMul", (0, 1), ir.DataType.FLOAT),
    together=equal_axes.product())
declare("ExpandDims", domain=MICROSOFT, numpy=expand_dims, traits=MOVES, shaped_by=(1,), sampling=fused.expanded,
    typed_like=Like("Unsqueeze", (0, 1), integers=(1,)))
declare("Trilu", domain=MICROSOFT, numpy=triangle, traits=MOVES, typed_like=Like("Trilu", (0, 1), integers=(1,)))
declare("Pad", domain=MICROSOFT, numpy=pad_ms, traits=MOVES, shaped_by=(1, 3),
    typed_like=Like("Pad", (0, 1, 2), integers=(1,)))
