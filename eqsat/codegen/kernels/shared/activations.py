"""Activations of recurrent networks in C: expressions of the operators of these names, and two of their own."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions import expression_table
from eqsat.codegen.isa import PORTABLE
from eqsat.ops.families.recurrent import ACTIVATIONS, Activation
from eqsat.schema.opset import operator_names
from eqsat.schema.types import OpKey

_SCALARS = {"affine": "{p} * {v} + {q}", "scaledtanh": "{p} * tanh{f}({q} * {v})"}
_VECTORS = {"affine": "FMA@({v}, SPLAT@({p}), SPLAT@({q}))", "scaledtanh": "{p} * tanh@({v} * {q})"}
"""Activations that ONNX has no operator for."""


@cache
def _operators() -> dict[str, OpKey]:
    """The operators by name in lower case; networks may write activations in upper and lower case."""
    named = {name.lower(): OpKey("", name) for name in operator_names()}
    return {key: named[key] for key in ACTIVATIONS if key in named}


def scalar(activation: Activation, c: str, v: str) -> str | None:
    """The expression for one element, the variable ``v`` of C type ``c``; None if there is none."""
    dtype = ir.DataType.DOUBLE if c == "double" else ir.DataType.FLOAT
    if activation.key in _SCALARS:
        numbers = _literals(activation)
        return f"({_SCALARS[activation.key].format(v=v, f='f' if c == 'float' else '', **numbers)})"
    operator = _operators().get(activation.key)
    if operator is None:
        return None
    found = expression_table.scalar(operator, _attributes(activation), [expression_table.Argument(v, dtype)], dtype)
    return None if found is None else f"({found.text})"


def vector(activation: Activation, v: str) -> str | None:
    """The expression on vectors of float32, the same for all instruction sets; None if there is none."""
    if activation.key in _VECTORS:
        return f"({_VECTORS[activation.key].format(v=v, **_literals(activation))})"
    operator = _operators().get(activation.key)
    found = None if operator is None else expression_table.vector(operator, _attributes(activation), [v], PORTABLE)
    return None if found is None else f"({found.text})"


def _attributes(activation: Activation) -> dict[str, float]:
    """The parameters as attributes of the operator; they are float32, even if the network's tensors are not."""
    return {"alpha": float(np.float32(activation.alpha)), "beta": float(np.float32(activation.beta))}


def _literals(activation: Activation) -> dict[str, str]:
    numbers = {"p": activation.alpha, "q": activation.beta}
    return {name: c_types.literal(n, ir.DataType.FLOAT) for name, n in numbers.items()}
