"""Expressions as text with gaps: one entry of a table for each operator and kind of element type.

Gaps are ``{a} {b} {c} ...`` the arguments, ``{T}`` the C type of the first argument, ``{U}`` an unsigned type in which
its arithmetic wraps around, ``{f}`` the suffix of C's mathematics in that type, ``{bits}`` 16, 32 or 64, enough for
integers of the type, ``{R}`` the C type of the result, and the operator's numeric attributes by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.expressions.expression_table import Argument, Expression, expression, vector_expression
from eqsat.codegen.isa import Isa
from eqsat.schema.dtypes import FLOATS

SIGNED = frozenset({ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64})
UNSIGNED = frozenset({ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64})
INTEGERS = SIGNED | UNSIGNED


def kind(dtype: ir.DataType) -> str:
    """``floats``, ``signed``, ``unsigned``, ``boolean`` or ``other``."""
    if dtype in FLOATS:
        return "floats"
    if dtype in SIGNED:
        return "signed"
    if dtype in UNSIGNED:
        return "unsigned"
    return "boolean" if dtype == ir.DataType.BOOL else "other"


def gaps(dtype: ir.DataType, result: ir.DataType, attributes: Mapping[str, Any]) -> dict[str, str]:
    """The texts that fill the gaps other than the arguments, for operands of an element type."""
    c = c_types.computed(dtype)
    numbers = dtype if dtype in FLOATS else ir.DataType.DOUBLE
    filled = {
        name: c_types.literal(value, numbers if isinstance(value, float) else ir.DataType.INT32)
        for name, value in attributes.items()
        if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**31)
    }
    wide = c_types.size(dtype) == 8 and c != "double"
    return filled | {
        "T": c,
        "R": c_types.computed(result),
        "U": "uint64_t" if wide else "uint32_t",
        "bits": "64" if wide else "32" if c_types.size(dtype) == 4 else "16",
        "f": "f" if c == "float" else "",
    }


def fill(text: str, arguments: Sequence[Argument | None], values: Mapping[str, str]) -> Expression:
    """Put arguments and values into the gaps of a form."""
    letters = {chr(ord("a") + i): str(argument) for i, argument in enumerate(arguments) if argument is not None}
    filled = text.format(**letters, **values)
    return Expression(filled, needed(filled))


def vector_form(*names: str, domain: str = "", text: str) -> None:
    """Register operators on vectors of float32; gaps are the arguments ``a``, ``b`` and the attributes."""

    def write(attributes: Mapping[str, Any], arguments: Sequence[str | None], isa: Isa) -> str:
        values = {
            k: c_types.literal(v, ir.DataType.FLOAT) for k, v in attributes.items() if isinstance(v, (int, float))
        }
        return text.format(**values, **dict(zip("ab", (str(x) for x in arguments), strict=False)))

    vector_expression(*names, domain=domain)(write)


def form(*names: str, domain: str = "", vector: str = "", **texts: str) -> None:
    """Register operators whose expression depends on the kind of their first argument.

    Args:
        names: The operators.
        domain: Their domain.
        vector: A form on vectors of float32, see :func:`vector_form`; without one there is none.
        texts: A form for each kind, see :func:`kind`; ``integers`` stands for both kinds of integers, ``any`` for all.
    """
    if vector:
        vector_form(*names, domain=domain, text=vector)
    if "any" in texts:
        texts = dict.fromkeys(("floats", "signed", "unsigned", "boolean"), texts["any"])
    if "integers" in texts:
        both = texts.pop("integers")
        texts = {"signed": both, "unsigned": both} | texts

    def write(
        attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType
    ) -> Expression | None:
        first = arguments[0]
        assert first is not None
        text = texts.get(kind(first.dtype))
        if text is None:
            return None
        return fill(text, arguments, gaps(first.dtype, result, attributes))

    expression(*names, domain=domain)(write)
