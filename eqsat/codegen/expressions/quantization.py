"""Linear quantization; mirrors ``eqsat/ops/families/quantization.py`` and ``eqsat.Requantize``, to the bit.

Rounding is half to even and results saturate; divisions and products are single operations in the scale's type.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.expressions.casting import FLOAT8, conversion
from eqsat.codegen.expressions.expression_table import Argument, Expression, GivenArguments, expression
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.schema.dtypes import FLOATS, integer_limits
from eqsat.schema.types import Attributes

_T = ir.DataType


def saturated(value: str, dtype: ir.DataType, c: str = "float") -> str:
    """C expression of a rounded real value, clamped to an integer type of at most 16 bits; NaN gives 0."""
    low, high = integer_limits(dtype)
    return f"({c_types.storage(dtype)})saturate_{c}({value}, {low}, {high})"


def _found(text: str) -> Expression:
    return Expression(text, needed(text))


@expression("QuantizeLinear")
@expression("QuantizeLinear", domain="com.microsoft")
def quantize_linear(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """``saturate(round(x / scale) + zero)``."""
    x, scale, zero = [*arguments, None][:3]
    assert x is not None and scale is not None
    precision = ir.DataType(attributes.get("precision") or scale.dtype)
    if precision not in FLOATS or x.dtype not in FLOATS | INTEGERS or scale.dtype not in FLOATS:
        return None
    c, f = c_types.computed(precision), "" if precision == _T.DOUBLE else "f"
    ratio = f"({c}){x} / ({c}){scale}"
    if precision in (_T.FLOAT16, _T.BFLOAT16):
        return _half(ratio, precision, zero, result) if result.is_integer() else None
    if result in FLOAT8:
        offset = "" if zero is None else f" + {zero}"
        text = conversion(f"({ratio}{offset})", precision, result, bool(attributes.get("saturate", 1)))
        return None if text is None else _found(text)
    if not result.is_integer() or c_types.size(result) > 2:
        return None
    offset = "" if zero is None else f" + (float){zero}"
    return _found(saturated(f"rint{f}({ratio}){offset}", result, c))


def _half(ratio: str, precision: ir.DataType, zero: Argument | None, result: ir.DataType) -> Expression:
    """The quotient rounded to half precision first."""
    from eqsat.codegen.expressions import small_floats

    name = c_types.converted(precision)
    offset = "" if zero is None else f" + (float){zero}"
    text = saturated(f"rintf({name}_to_float(float_to_{name}({ratio}))){offset}", result)
    helpers = (*small_floats.to_float(precision), *small_floats.from_float(precision), *needed(text))
    return Expression(text, helpers)


@expression("DequantizeLinear")
@expression("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """``(x - zero) * scale`` in float32."""
    x, scale, zero = [*arguments, None][:3]
    assert x is not None and scale is not None
    if x.dtype in FLOATS or scale.dtype not in FLOATS or result not in FLOATS:
        return None
    if zero is None:
        real = f"(float){x}"
    elif c_types.size(x.dtype) <= 2:
        real = f"((float){x} - (float){zero})"
    else:
        real = f"(float)((int64_t){x} - (int64_t){zero})"
    return _found(f"({c_types.computed(result)})({real} * (float){scale})")


@expression("Requantize", domain="eqsat")
def requantize(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """``(x - in_zero) * in_scale / out_scale``, rounded, plus ``out_zero``, saturated."""
    x, in_scale, in_zero, out_scale, out_zero = arguments
    assert x is not None and in_zero is not None
    assert in_scale is not None and out_scale is not None and out_zero is not None
    if any(a.dtype not in INTEGERS for a in (x, in_zero, out_zero)) or not result.is_integer():
        return None
    centred = f"(int32_t)((uint32_t){x} - (uint32_t){in_zero})"
    real = f"(float)({centred}) * {in_scale} / {out_scale}"
    if result == _T.INT32:
        return _found(f"double_to_i32(clamp_double((double)rintf({real}) + (double){out_zero}, INT32_MIN, INT32_MAX))")
    if c_types.size(result) > 2:
        return None
    zero = conversion(out_zero.text, out_zero.dtype, result)
    return _found(saturated(f"rintf({real}) + (float)({zero})", result))
