"""Elementwise mathematics of one operand; mirrors ``eqsat/ops/families/unary.py``.

Most elementary functions are the C library's: within 1 unit in the last place of the exact value in glibc, where
numpy's own vector code is within 4, so that both differ by at most 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from eqsat.codegen.expressions.expression_table import Argument, Expression, expression
from eqsat.codegen.expressions.forms import fill, form, gaps
from eqsat.schema.dtypes import FLOATS

for _name in (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Floor", "Sin", "Sinh", "Sqrt", "Tan",
):  # fmt: skip
    form(_name, floats=f"{_name.lower()}{{f}}({{a}})")
for _name in ("Exp", "Log", "Tanh"):
    form(_name, floats=f"{_name.lower()}_{{T}}({{a}})")

form("Abs", floats="fabs{f}({a})", signed="({T})({a} < 0 ? ({U})0 - ({U}){a} : ({U}){a})", unsigned="{a}")
form("BitwiseNot", integers="({T})~{a}")
form("Erf", floats="erf_{T}({a})", integers="({T})erf((double){a})")
form("IsNaN", floats="({a} != {a})")
form("Neg", floats="-{a}", integers="({T})(({U})0 - ({U}){a})")
form("Not", boolean="!{a}")
form("Reciprocal", floats="1 / {a}")
form("Round", floats="rint{f}({a})")
form(
    "Sign",
    floats="({a} > 0 ? 1 : {a} < 0 ? -1 : {a} == 0 ? 0 : {a})",
    signed="({a} > 0) - ({a} < 0)",
    unsigned="{a} != 0",
)


@expression("IsInf")
def is_inf(
    attributes: Mapping[str, Any], arguments: Sequence[Argument | None], result: ir.DataType
) -> Expression | None:
    """Whether an element is infinite, of the signs asked for."""
    (x,) = arguments
    assert x is not None
    if x.dtype not in FLOATS:
        return None
    signs = [
        text
        for name, text in (("detect_positive", "{a} == INFINITY"), ("detect_negative", "{a} == -INFINITY"))
        if attributes.get(name, 1)
    ]
    return fill(f"({' || '.join(signs) or '{a} != {a} && 0'})", arguments, gaps(x.dtype, result, {}))
