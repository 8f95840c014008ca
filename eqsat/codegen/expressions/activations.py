"""Activation functions; mirrors ``eqsat/ops/families/activations.py``, operation by operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.codegen.expressions.forms import FLOATS, fill, form, gaps
from eqsat.codegen.expressions.registry import Argument, Expression, expression

_MS = "com.microsoft"

form("Celu", floats="({a} < 0 ? {alpha} * expm1{f}({a} / {alpha}) : {a})")
form("Elu", floats="({a} < 0 ? {alpha} * expm1{f}({a}) : {a})")
form("HardSigmoid", floats="clamp_{T}({a} * {alpha} + {beta}, 0, 1)")
form("HardSwish", floats="{a} * clamp_{T}({a} * (1 / 6.0f) + 0.5f, 0, 1)")
form("LeakyRelu", floats="({a} < 0 ? {a} * {alpha} : {a})")
form("Mish", floats="{a} * tanh{f}(softplus_{T}({a}))")
form("PRelu", floats="({a} < 0 ? {a} * {b} : {a})", signed="({T})({a} < 0 ? ({U}){a} * ({U}){b} : ({U}){a})")
form("Selu", floats="{gamma} * ({a} < 0 ? {alpha} * expm1{f}({a}) : {a})")
form(
    "Shrink",
    floats="({a} < -{lambd} ? {a} + {bias} : {a} > {lambd} ? {a} - {bias} : 0)",
    integers="(({T})({a} < -{lambd} ? {a} + {bias} : {a} > {lambd} ? {a} - {bias} : 0))",
)
form("Sigmoid", floats="sigmoid_{T}({a})")
form("Softplus", floats="softplus_{T}({a})")
form("Softsign", floats="{a} / (1 + fabs{f}({a}))")
form("Swish", floats="{a} * sigmoid_{T}({a} * {alpha})")
form("ThresholdedRelu", floats="({a} > {alpha} ? {a} : 0)")
form("QuickGelu", domain=_MS, floats="{a} * sigmoid_{T}({a} * {alpha})")
form("Gelu", domain=_MS, floats="gelu_{T}({a})")
form("BiasGelu", domain=_MS, floats="gelu_{T}({a} + {b})")
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
