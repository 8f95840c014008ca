"""Elementwise operators of several operands; mirrors ``eqsat/ops/families/binary.py``."""

from __future__ import annotations

from functools import reduce

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.basic import arithmetic
from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.expressions.expression_table import Expression, GivenArguments, expression
from eqsat.codegen.expressions.forms import INTEGERS, SIGNED, fill, form, gaps, kind
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import Attributes

for _name, _symbol in {
    "Equal": "==",
    "Greater": ">",
    "GreaterOrEqual": ">=",
    "Less": "<",
    "LessOrEqual": "<=",
}.items():
    form(_name, any=f"({{a}} {_symbol} {{b}})")
for _name, _symbol in {"And": "&&", "Or": "||", "Xor": "!="}.items():
    form(_name, boolean=f"({{a}} {_symbol} {{b}})")
for _name, _symbol in {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}.items():
    form(_name, integers=f"({{T}})({{a}} {_symbol} {{b}})", boolean=f"({{a}} {_symbol} {{b}})")

form("Div", floats="{a} / {b}", signed="({T})divide_i{bits}({a}, {b})", unsigned="({T})divide_u{bits}({a}, {b})")


@expression("Mod")
def modulo(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """Remainder with the divisor's sign, or with ``fmod`` the dividend's; by zero it is 0 in integers."""
    fmod = bool(attributes.get("fmod"))
    text = {
        "floats": "remainder_{T}({a}, {b})" if fmod else "modulo_{T}({a}, {b})",
        "signed": "({T})remainder_i{bits}({a}, {b})" if fmod else "({T})modulo_i{bits}({a}, {b})",
        "unsigned": "({T})remainder_u{bits}({a}, {b})",
    }.get(kind(result))
    return None if text is None else fill(text, arguments, gaps(result, result, {}))


@expression("Pow")
def power(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """``a ** b`` in the type of ``a``; integers wrap around, and a negative or real exponent goes through float64."""
    a, b = arguments
    assert a is not None and b is not None
    values = gaps(result, result, {})
    if a.dtype == b.dtype and a.dtype in FLOATS:
        return fill("power_{T}({a}, {b})", arguments, values)
    if a.dtype in FLOATS and b.dtype in FLOATS | INTEGERS:
        # numpy computes in the wider of both types, which is float64 for integers of more than 16 bits.
        narrow = c_types.computed(a.dtype) == "float" and (
            c_types.computed(b.dtype) == "float" or (b.dtype in INTEGERS and c_types.size(b.dtype) <= 2)
        )
        return fill(f"({{T}})power_{'float' if narrow else 'double'}({{a}}, {{b}})", arguments, values)
    if a.dtype not in INTEGERS or b.dtype not in INTEGERS | FLOATS:
        return None
    real = converted("pow((double){a}, (double){b})", ir.DataType.DOUBLE, result)
    mixed = {a.dtype, b.dtype} & SIGNED and ir.DataType.UINT64 in (a.dtype, b.dtype)
    if b.dtype in FLOATS or mixed:
        return fill(real, arguments, values)
    exact = "({T})power_u64((uint64_t){a}, (uint64_t){b})"
    return fill(f"({{b}} < 0 ? {real} : {exact})" if b.dtype in SIGNED else exact, arguments, values)


@expression("BitShift")
def bit_shift(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """Shift of integers, to the right with the sign; a shift by all bits or more leaves only the sign."""
    if result not in INTEGERS:
        return None
    bits = 8 * c_types.size(result)
    within = f"{{b}} < {bits}" if result not in SIGNED else f"{{b}} >= 0 && {{b}} < {bits}"
    if attributes["direction"] == "LEFT":
        text = f"({within} ? ({{T}})(({{U}}){{a}} << {{b}}) : 0)"
    else:
        rest = "({a} < 0 ? -1 : 0)" if result in SIGNED else "0"
        text = f"({within} ? ({{T}})({{a}} >> {{b}}) : {rest})"
    return fill(text, arguments, gaps(result, result, {}))


def _extreme(name: str, symbol: str, function: str) -> None:
    """Largest or smallest of any number of operands; NaN where any is NaN."""

    def pair(a: str, b: str, result: ir.DataType) -> str:
        if result in FLOATS:
            return f"{function}_{c_types.computed(result)}({a}, {b})"
        return f"({a} {symbol} {b} ? {a} : {b})"

    def write(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
        if result not in FLOATS and (result not in INTEGERS or len(arguments) > 8):
            return None
        text = reduce(lambda a, b: pair(a, b, result), [str(x) for x in arguments if x is not None])
        return Expression(text, needed(text))

    expression(name)(write)


_extreme("Max", ">", "maximum")
_extreme("Min", "<", "minimum")


@expression("Sum")
def total(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> str | None:
    """Sum of the operands, from left to right."""
    if result not in FLOATS:
        return None
    return reduce(lambda a, b: f"({arithmetic('+', a, b, result)})", [str(x) for x in arguments if x is not None])


@expression("Mean")
def mean(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> str | None:
    """Mean of the operands."""
    found = total(attributes, arguments, result)
    return None if found is None else f"{found} / {len(arguments)}"


@expression("Clip")
def clip(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> Expression | None:
    """``min(max(x, low), high)``; with ``low > high`` everything is ``high``."""
    x, low, high = [*arguments, None, None][:3]
    if result not in FLOATS | INTEGERS:
        return None
    text = str(x)
    if result in FLOATS:
        c = c_types.computed(result)
        text = text if low is None else f"maximum_{c}({text}, {low})"
        text = text if high is None else f"minimum_{c}({text}, {high})"
    else:
        raised = text if low is None else f"({x} > {low} ? {x} : {low})"
        text = raised if high is None else f"({raised} < {high} ? {raised} : {high})"
    return Expression(text, needed(text))


@expression("Where")
def where(attributes: Attributes, arguments: GivenArguments, result: ir.DataType) -> str | None:
    """``x`` where the condition is true, otherwise ``y``."""
    condition, x, y = arguments
    return f"({condition} ? {x} : {y})"


def converted(text: str, source: ir.DataType, target: ir.DataType) -> str:
    """A value of a computed type converted to another element type, as numpy converts."""
    from eqsat.codegen.expressions.casting import conversion

    found = conversion(text, source, target)
    assert found is not None
    return found
