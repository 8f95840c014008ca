"""ONNX Runtime's operators on quantized tensors (``com.microsoft.QLinear*``, ``QGemm``), to the bit.

Where the documentation leaves rounding open, these follow what ONNX Runtime computes on x86 with fused multiply-add.
Functions of one 8-bit operand are tables of 256 entries; a fused multiply-add is a float64 operation rounded to
float32, which is the same as long as the products are of 8-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import eqsat.ops.families.activations  # noqa: F401  # Declares the operators whose quantized forms are declared here.
from eqsat.ops import normal, undefined
from eqsat.ops.families.quantization import dequantize_linear, quantize_linear, saturate
from eqsat.ops.need_by_shapes import need_broadcasting
from eqsat.ops.numpy_kernel import NumpyFunction, at_least_single
from eqsat.ops.registry import TABLE, OperatorFacets, declare
from eqsat.ops.sampling import qlinear as sample
from eqsat.ops.traits import BENDS, ELEMENTARY, UNARY
from eqsat.ops.typed_like import Like
from eqsat.schema.opset import MICROSOFT, operator_names
from eqsat.schema.types import Attributes, OpKey

_Optional = np.ndarray | None


def scale_of(v: np.ndarray) -> np.floating:
    """A scale as a float32, or unchanged if it is wider: computations over the reals must not round."""
    return at_least_single(v).type(v.reshape(()))


def zero_of(v: _Optional) -> int:
    return 0 if v is None else int(v.reshape(()))


def real(x: np.ndarray, scale: np.ndarray, zero: _Optional) -> np.ndarray:
    """Dequantized per tensor."""
    y = x.astype(at_least_single(scale))
    y -= np.float32(zero_of(zero))
    y *= scale_of(scale)
    return y


def quantized(v: np.ndarray, scale: np.ndarray, zero: _Optional, dtype: np.dtype) -> np.ndarray:
    """Quantized per tensor."""
    return saturate(v / scale_of(scale), np.float32(zero_of(zero)), dtype)


def by_table(x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Applies a function of 8-bit integers by computing it for each of the 256 values once."""
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
    ra, rb = scale_of(a_scale) / scale_of(c_scale), scale_of(b_scale) / scale_of(c_scale)
    single = type(ra + rb)
    wide = np.float64 if single is np.float32 else np.longdouble
    offsets = single(wide(ra) * zero_of(a_zero) + wide(rb * single(zero_of(b_zero))))
    constant = single(zero_of(c_zero)) - offsets
    right = (b * wide(rb) + wide(constant)).astype(single)
    v = (a * wide(ra) + right).astype(single)
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
    left = a.astype(np.float32) - np.float32(zero_of(a_zero))
    right = b.astype(np.float32) - np.float32(zero_of(b_zero))
    v = left * right * (scale_of(a_scale) * scale_of(b_scale) / scale_of(c_scale))
    v += np.float32(zero_of(c_zero))
    return saturate(v, np.float32(0), a.dtype)


def qlinear_concat(attrs: Attributes, y_scale: np.ndarray, y_zero: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """Operands (tensor, scale, zero point) one after the other, each converted to the output's parameters."""
    parts = []
    for x, scale, zero in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if scale_of(scale) == scale_of(y_scale) and zero_of(zero) == zero_of(y_zero):
            parts.append(x)
        else:
            parts.append(_requantized(x, scale, zero, y_scale, y_zero))
    return np.concatenate(parts, attrs["axis"])


def _requantized(
    x: np.ndarray, scale: np.ndarray, zero: _Optional, y_scale: np.ndarray, y_zero: _Optional
) -> np.ndarray:
    return by_table(x, lambda every: quantized(real(every, scale, zero), y_scale, y_zero, x.dtype))


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


def _of_one(function: NumpyFunction) -> NumpyFunction:
    """The kernel of a function of one operand on a quantized operand."""

    def run(
        attrs: Attributes,
        x: np.ndarray,
        x_scale: np.ndarray,
        x_zero: _Optional,
        y_scale: np.ndarray,
        y_zero: _Optional = None,
    ) -> np.ndarray:
        return by_table(x, lambda v: quantized(function(attrs, real(v, x_scale, x_zero)), y_scale, y_zero, x.dtype))

    return run


def activations() -> Iterator[tuple[str, OperatorFacets, NumpyFunction]]:
    """The operators ``QLinearX`` whose ``X`` is a function of one element: their names, X and its kernel."""
    for name in operator_names(MICROSOFT):
        plain = TABLE.get(OpKey("", name.removeprefix("QLinear")))
        run = plain.kernels[-1].run if plain is not None and plain.kernels else None
        if name.startswith("QLinear") and plain is not None and UNARY in plain.traits and run is not None:
            yield name, plain, run


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("QLinearAdd", domain=MICROSOFT, numpy=qlinear_add, need=need_broadcasting, sampling=sample.binary,
    typed_like=Like("Add", (0, 3)))
declare("QLinearMul", domain=MICROSOFT, numpy=qlinear_mul, need=need_broadcasting, sampling=sample.binary,
    typed_like=Like("Mul", (0, 3)))
declare("QLinearConcat", domain=MICROSOFT, numpy=qlinear_concat, normal_form=(normal.axis(2),), sampling=sample.concat,
    typed_like=Like("Concat", (2, -3), 1))
declare("QLinearWhere", domain=MICROSOFT, numpy=qlinear_where, need=need_broadcasting, sampling=sample.where,
    typed_like=Like("Where", (0, 1, 4), 1, integers=(0,)))
for _name, _plain, _run in activations():
    declare(_name, domain=MICROSOFT, numpy=_of_one(_run), traits=_plain.traits & ELEMENTARY, sampling=sample.unary,
        typed_like=Like(_plain.op.name))
declare("QuantizeLinear", domain=MICROSOFT, numpy=quantize_linear, traits=BENDS, typed_like=Like("Identity", result=2),
    undefined=undefined.quantization)
declare("DequantizeLinear", domain=MICROSOFT, numpy=dequantize_linear, typed_like=Like("Identity", result=1))
