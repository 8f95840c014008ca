"""Arithmetic of one and two operands that nearly every network has: sums, products, rectifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.expression_table import Argument, expression

_FLOATS = ("float", "double")


def arithmetic(operator: str, a: str, b: str, result: ir.DataType) -> str:
    """A sum, difference or product; of integers modulo 2^bits, as signed overflow is undefined in C."""
    c = c_types.computed(result)
    if c in _FLOATS:
        return f"{a} {operator} {b}"
    wide = "uint64_t" if c_types.size(result) == 8 else "uint32_t"
    return f"({c})(({wide}){a} {operator} ({wide}){b})"


def _required(arguments: Sequence[Argument | None]) -> list[str]:
    return [str(a) for a in arguments if a is not None]


def _register(name: str, symbol: str) -> None:
    def write(attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType) -> str:
        a, b = _required(arguments)
        return arithmetic(symbol, a, b, result)

    expression(name)(write)


for _name, _symbol in {"Add": "+", "Sub": "-", "Mul": "*"}.items():
    _register(_name, _symbol)


@expression("Relu")
def relu(attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType) -> str:
    """``max(x, 0)``; NaN stays."""
    (x,) = _required(arguments)
    if c_types.computed(result).startswith("u"):
        return x
    return f"{x} < 0 ? ({c_types.computed(result)})0 : {x}"


@expression("Identity")
def identity(attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType) -> str | None:
    """The operand."""
    return str(arguments[0])
