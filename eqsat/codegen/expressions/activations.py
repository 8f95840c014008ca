"""Activation functions; mirrors ``eqsat/ops/families/activations.py``, operation by operation.

All forms of an activation are here: for one element, on vectors, on quantized tensors, at the end of a fused operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.expression_table import (
    Argument,
    Expression,
    GivenArguments,
    expression,
    vector_expression,
)
from eqsat.codegen.expressions.forms import fill, form, gaps
from eqsat.codegen.expressions.qlinear import in_bytes, quantized, real, zero_of
from eqsat.codegen.isa import Isa
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import Attributes

_MS = "com.microsoft"

form(
    "Celu",
    floats="({a} < 0 ? {alpha} * expm1{f}({a} / {alpha}) : {a})",
    vector="select@(LESS@({a}, SPLAT@(0.0f)), {alpha} * expm1@({a} / {alpha}), {a})",
)
form(
    "Elu",
    floats="({a} < 0 ? {alpha} * expm1{f}({a}) : {a})",
    vector="select@(LESS@({a}, SPLAT@(0.0f)), {alpha} * expm1@({a}), {a})",
)
form(
    "HardSigmoid",
    floats="clamp_{T}({a} * {alpha} + {beta}, 0, 1)",
    vector="below@(SPLAT@(1.0f), above@(SPLAT@(0.0f), {a} * {alpha} + {beta}))",
)
form(
    "HardSwish",
    floats="{a} * clamp_{T}({a} * (1 / 6.0f) + 0.5f, 0, 1)",
    vector="{a} * below@(SPLAT@(1.0f), above@(SPLAT@(0.0f), {a} * (1.0f / 6.0f) + 0.5f))",
)
form(
    "LeakyRelu",
    floats="({a} < 0 ? {a} * {alpha} : {a})",
    vector="select@(LESS@({a}, SPLAT@(0.0f)), {a} * {alpha}, {a})",
)
form("Mish", floats="{a} * tanh_{T}(softplus_{T}({a}))", vector="mish@({a})")
form(
    "PRelu",
    floats="({a} < 0 ? {a} * {b} : {a})",
    signed="({T})({a} < 0 ? ({U}){a} * ({U}){b} : ({U}){a})",
    vector="select@(LESS@({a}, SPLAT@(0.0f)), {a} * {b}, {a})",
)
form(
    "Selu",
    floats="{gamma} * ({a} < 0 ? {alpha} * expm1{f}({a}) : {a})",
    vector="{gamma} * select@(LESS@({a}, SPLAT@(0.0f)), {alpha} * expm1@({a}), {a})",
)
form(
    "Shrink",
    floats="({a} < -{lambd} ? {a} + {bias} : {a} > {lambd} ? {a} - {bias} : 0)",
    integers="(({T})({a} < -{lambd} ? {a} + {bias} : {a} > {lambd} ? {a} - {bias} : 0))",
)
form("Sigmoid", floats="sigmoid_{T}({a})", vector="sigmoid@({a})")
form("Softplus", floats="softplus_{T}({a})", vector="softplus@({a})")
form("Softsign", floats="{a} / (1 + fabs{f}({a}))", vector="{a} / (1.0f + abs@({a}))")
form("Swish", floats="{a} * sigmoid_{T}({a} * {alpha})", vector="{a} * sigmoid@({a} * {alpha})")
form("ThresholdedRelu", floats="({a} > {alpha} ? {a} : 0)")
form("QuickGelu", domain=_MS, floats="{a} * sigmoid_{T}({a} * {alpha})", vector="{a} * sigmoid@({a} * {alpha})")
form("Gelu", domain=_MS, floats="gelu_{T}({a})", vector="gelu@({a})")
form("BiasGelu", domain=_MS, floats="gelu_{T}({a} + {b})", vector="gelu@({a} + {b})")
form("BiasAdd", domain=_MS, floats="{a} + {b} + {c}")


@expression("Gelu")
def gelu(attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType) -> Expression | None:
    """GELU, exact or approximated by tanh."""
    if result not in FLOATS:
        return None
    text = "gelu_tanh_{T}({a})" if attributes.get("approximate") == "tanh" else "gelu_{T}({a})"
    return fill(text, arguments, gaps(result, result, {}))


@expression("FastGelu", domain=_MS)
def fast_gelu(
    attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType
) -> Expression | None:
    """GELU by tanh, of ``x + bias``."""
    if result not in FLOATS:
        return None
    with_bias = len(arguments) > 1 and arguments[1] is not None
    return fill("gelu_tanh_{T}({a} + {b})" if with_bias else "gelu_tanh_{T}({a})", arguments, gaps(result, result, {}))


@vector_expression("Gelu")
def gelu_vector(attributes: Mapping[str, Any], arguments: Sequence[str | None], isa: Isa) -> str:
    """GELU, exact or approximated by tanh."""
    return f"gelu_tanh@({arguments[0]})" if attributes.get("approximate") == "tanh" else f"gelu@({arguments[0]})"


@vector_expression("FastGelu", domain=_MS)
def fast_gelu_vector(attributes: Mapping[str, Any], arguments: Sequence[str | None], isa: Isa) -> str:
    """GELU by tanh, of ``x + bias``."""
    given = [a for a in arguments if a is not None]
    return f"gelu_tanh@({' + '.join(given)})"


@in_bytes("QLinearLeakyRelu", 5)
def qlinear_leaky_relu(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression:
    """Leaky ReLU of a quantized operand."""
    x, x_scale, x_zero, y_scale, y_zero = arguments
    slope = f"((float){x} - {zero_of(x_zero)} >= 0 ? 1.0f : {c_types.literal(attributes['alpha'], ir.DataType.FLOAT)})"
    return quantized(f"{real(x, x_scale, x_zero)} * {slope}", y_scale, y_zero, result)


@in_bytes("QLinearSigmoid", 5)
def qlinear_sigmoid(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression:
    """Sigmoid of a quantized operand."""
    x, x_scale, x_zero, y_scale, y_zero = arguments
    return quantized(f"sigmoid_float({real(x, x_scale, x_zero)})", y_scale, y_zero, result)


FUSED = {
    "": "{v}",
    "Identity": "{v}",
    "Relu": "maximum_float({v}, 0.0f)",
    "Tanh": "tanhf({v})",
    "Sigmoid": "sigmoid_float({v})",
    "LeakyRelu": "leaky_float({v}, {p})",
    "Clip": "clamp_float({v}, {p}, {q})",
    "HardSigmoid": "clamp_float(({v}) * {p} + {q}, 0.0f, 1.0f)",
}
"""The activations that end ONNX Runtime's fused convolutions and products; the value is ``v``, the parameters are ``p``
and ``q``.
"""
