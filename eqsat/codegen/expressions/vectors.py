"""Elementwise operators on vectors of float32, in the names of ``kernels/vectors.h.jinja`` (``@`` is the suffix)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import onnx_ir as ir

from eqsat.codegen.dtypes import literal
from eqsat.codegen.expressions.registry import vector_expression
from eqsat.codegen.isa import Isa

_Arguments = Sequence[str | None]
_MS = "com.microsoft"


def number(value: float) -> str:
    """A float literal."""
    return literal(value, ir.DataType.FLOAT)


def _table(domain: str, **entries: str) -> None:
    """Expressions whose gaps are the arguments ``a``, ``b`` and the attributes."""
    for name, text in entries.items():
        vector_expression(name, domain=domain)(_filled(text))


def _filled(text: str) -> Any:
    def write(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
        values = {k: number(v) for k, v in attributes.items() if isinstance(v, (int, float))}
        return text.format(**values, **dict(zip("ab", (str(x) for x in arguments), strict=False)))

    return write


_table(
    "",
    Abs="abs@({a})",
    Add="{a} + {b}",
    Div="{a} / {b}",
    Elu="select@(LESS@({a}, SPLAT@(0.0f)), {alpha} * expm1@({a}), {a})",
    Erf="erf@({a})",
    Exp="exp@({a})",
    HardSigmoid="below@(SPLAT@(1.0f), above@(SPLAT@(0.0f), {a} * {alpha} + {beta}))",
    HardSwish="{a} * below@(SPLAT@(1.0f), above@(SPLAT@(0.0f), {a} * (1.0f / 6.0f) + 0.5f))",
    LeakyRelu="select@(LESS@({a}, SPLAT@(0.0f)), {a} * {alpha}, {a})",
    Mul="{a} * {b}",
    Neg="-{a}",
    PRelu="select@(LESS@({a}, SPLAT@(0.0f)), {a} * {b}, {a})",
    Reciprocal="1.0f / {a}",
    Relu="above@(SPLAT@(0.0f), {a})",
    Sigmoid="sigmoid@({a})",
    Softsign="{a} / (1.0f + abs@({a}))",
    Sqrt="sqrt@({a})",
    Sub="{a} - {b}",
    Swish="{a} * sigmoid@({a} * {alpha})",
    Tanh="tanh@({a})",
)
_table(_MS, QuickGelu="{a} * sigmoid@({a} * {alpha})", Gelu="gelu@({a})", BiasGelu="gelu@({a} + {b})")


@vector_expression("Gelu")
def gelu(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
    """GELU, exact or approximated by tanh."""
    return f"gelu_tanh@({arguments[0]})" if attributes.get("approximate") == "tanh" else f"gelu@({arguments[0]})"


@vector_expression("FastGelu", domain=_MS)
def fast_gelu(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
    """GELU by tanh, of ``x + bias``."""
    given = [a for a in arguments if a is not None]
    return f"gelu_tanh@({' + '.join(given)})"


@vector_expression("Clip")
def clip(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str | None:
    """Both bounds are optional; where they cross, the upper one wins. NaN stays."""
    low, high = [*arguments, None, None][1:3]
    text = str(arguments[0])
    if low is not None:
        text = f"above@({low}, {text})"
    return f"below@({high}, {text})" if high is not None else text


@vector_expression("Identity", "Dropout")
def identity(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
    """The operand."""
    return str(arguments[0])


@vector_expression("Sum")
def total(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
    """From the left."""
    return " + ".join(str(a) for a in arguments)


@vector_expression("Max")
def maximum(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
    """NaN if one is NaN."""
    return reduce(lambda a, b: f"maximum@({a}, {b})", (str(a) for a in arguments))


@vector_expression("Min")
def minimum(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str:
    """NaN if one is NaN."""
    return reduce(lambda a, b: f"minimum@({a}, {b})", (str(a) for a in arguments))
