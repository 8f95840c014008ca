"""Elementwise operators on vectors of float32, in names of ``kernels/shared/vectors.h.jinja`` (``@`` is the suffix).

Activations have theirs in ``activations.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from eqsat.codegen.expressions.expression_table import vector_expression
from eqsat.codegen.expressions.forms import vector_form
from eqsat.codegen.isa import Isa

_Arguments = Sequence[str | None]


for _name, _text in {
    "Abs": "abs@({a})",
    "Acos": "acos@({a})",
    "Add": "{a} + {b}",
    "Asin": "asin@({a})",
    "Atan": "atan@({a})",
    "Cos": "cos@({a})",
    "Div": "{a} / {b}",
    "Erf": "erf@({a})",
    "Exp": "exp@({a})",
    "Log": "log@({a})",
    "Mul": "{a} * {b}",
    "Neg": "-{a}",
    "Pow": "power@({a}, {b})",
    "Reciprocal": "1.0f / {a}",
    "Relu": "above@(SPLAT@(0.0f), {a})",
    "Sin": "sin@({a})",
    "Sqrt": "sqrt@({a})",
    "Sub": "{a} - {b}",
    "Tanh": "tanh@({a})",
}.items():
    vector_form(_name, text=_text)


@vector_expression("Clip")
def clip(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str | None:
    """Both bounds are optional; where they cross, the upper one wins. NaN stays."""
    low, high = [*arguments, None, None][1:3]
    text = str(arguments[0])
    if low is not None:
        text = f"above@({low}, {text})"
    return f"below@({high}, {text})" if high is not None else text


@vector_expression("Mod")
def modulo(attributes: Mapping[str, Any], arguments: _Arguments, isa: Isa) -> str | None:
    """The remainder with the sign of the dividend."""
    return f"remainder@({arguments[0]}, {arguments[1]})" if attributes.get("fmod") else None


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
