"""ONNX Runtime's elementwise operators on quantized tensors; mirrors ``eqsat/ops/families/qlinear.py``, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.expressions.expression_table import Argument, Expression, GivenArguments, Scalar, expression
from eqsat.codegen.expressions.quantization import saturated
from eqsat.schema.dtypes import BYTES
from eqsat.schema.types import Attributes

_MS = "com.microsoft"
_Bytes = Callable[[Attributes, GivenArguments, ir.DataType], Expression]


def zero_of(argument: Argument | None) -> str:
    """A zero point as a float; 0 if there is none."""
    return "0.0f" if argument is None else f"(float){argument}"


def _rounded(value: str, result: ir.DataType) -> Expression:
    text = saturated(f"rintf({value})", result)
    return Expression(text, needed(text))


def real(x: Argument | None, scale: Argument | None, zero: Argument | None) -> str:
    """An operand as a real value."""
    return f"(((float){x} - {zero_of(zero)}) * {scale})"


def quantized(value: str, scale: Argument | None, zero: Argument | None, result: ir.DataType) -> Expression:
    """A real value in 8 bits."""
    text = saturated(f"rintf({value} / {scale}) + {zero_of(zero)}", result)
    return Expression(text, needed(text))


def in_bytes(name: str, operands: int) -> Callable[[_Bytes], Scalar]:
    """Registers an operator whose result has 8 bits; operands left out at the end are None."""

    def register(write: _Bytes) -> Scalar:
        @expression(name, domain=_MS)
        def checked(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
            given = [*arguments, *[None] * (operands - len(arguments))]
            return write(attributes, given, result) if result in BYTES else None

        return checked

    return register


@in_bytes("QLinearAdd", 8)
def qlinear_add(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression:
    """Sum: the zero points in one constant, then one fused multiply-add (exact in double) for each operand."""
    a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = arguments
    values = f"{a}, {b}, {a_scale} / {c_scale}, {b_scale} / {c_scale}"
    return _rounded(f"qlinear_sum({values}, {zero_of(a_zero)}, {zero_of(b_zero)}, {zero_of(c_zero)})", result)


@in_bytes("QLinearMul", 8)
def qlinear_mul(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression:
    """Product: the exact integer product, scaled, offset and then rounded."""
    a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = arguments
    values = f"(float){a} - {zero_of(a_zero)}, (float){b} - {zero_of(b_zero)}, {a_scale} * {b_scale} / {c_scale}"
    return _rounded(f"qlinear_product({values}, {zero_of(c_zero)})", result)


@in_bytes("QLinearWhere", 9)
def qlinear_where(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression:
    """Selection, both operands converted to the output's parameters."""
    condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero = arguments
    left = quantized(real(x, x_scale, x_zero), z_scale, z_zero, result)
    right = quantized(real(y, y_scale, y_zero), z_scale, z_zero, result)
    return Expression(f"({condition} ? {left.text} : {right.text})", left.helpers)
