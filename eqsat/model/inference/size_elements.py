"""Arithmetic on single elements of shapes: numbers, free sizes, and the values that models compute between sizes and
shapes.

An element is an ``int``, a :class:`~eqsat.schema.size.Size`, a ``bool``, a ``float``, a :class:`Real` (a free size
converted to floats), or None if it is unknown. A result is right for every value of the sizes, or None: ``Equal(n,
-1)`` is False for any size, ``Equal(n, 3)`` is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import onnx_ir as ir

from eqsat.schema.size import Size, SizeAtom, Undecided, divided, remainder
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.symbol import Symbol

SizeElement = Any
"""See above."""

LONGEST = 160
"""Characters of an expression for a size; of a longer one nothing is known, so that expressions do not grow with the
depth of a model."""
MOST_IN_FLOATS = 2**20
"""Dimensions that are converted to floats are assumed not to exceed this: above, float32 rounds their products."""
_PRECISION = {ir.DataType.FLOAT: 24, ir.DataType.DOUBLE: 53}


@dataclass(frozen=True, slots=True)
class Real:
    """A free size divided by a number, as an element of a float tensor.

    Attributes:
        top, bottom: In lowest terms; ``bottom`` is positive.
        bits: The precision of the element type.
    """

    top: int
    bottom: int
    bits: int

    @property
    def is_exact(self) -> bool:
        """Whether floats hold it without rounding; otherwise it is one quotient, rounded once."""
        return not self.bottom & (self.bottom - 1)


def depends_on_sizes(element: SizeElement) -> bool:
    """Whether an element depends on free sizes."""
    return isinstance(element, Size | Real)


def checked(element: SizeElement) -> SizeElement:
    """The element; None if its expression is too long."""
    return None if isinstance(element, Size) and len(f"{element:model}") > LONGEST else element


# ---- numbers -----------------------------------------------------------------------------------------


def _number(element: SizeElement) -> Real | Fraction | int | None:
    """An element for arithmetic: floats become fractions; None if it is not finite."""
    if isinstance(element, float):
        return Fraction(element) if math.isfinite(element) else None
    return int(element) if isinstance(element, bool) else element


def _real(top: int, bottom: int, bits: int) -> SizeElement:
    """A quotient as an element."""
    if bottom < 0:
        top, bottom = -top, -bottom
    if not isinstance(top, Size):
        return float(Fraction(top, bottom))
    divisor = math.gcd(bottom, *top.terms.values())
    top, bottom = top // divisor if divisor > 1 else top, bottom // divisor
    return None if _most_in_floats(top) > 1 << bits else Real(top, bottom, bits)


def _most_in_floats(size: int) -> int:
    """A bound of the magnitude of a size on its way through floats."""
    if not isinstance(size, Size):
        return abs(size)
    return sum(abs(f) * math.prod(map(_most_of_atom, monomial)) for monomial, f in size.terms.items())


def _most_of_atom(atom: SizeAtom) -> int:
    if isinstance(atom, Symbol):
        return min(atom.bounds[1], MOST_IN_FLOATS)
    if atom.kind in ("//", "%"):
        return _most_in_floats(atom.a)
    return max(_most_in_floats(atom.a), _most_in_floats(atom.b))


def _parts(a: SizeElement) -> tuple[int, int, int] | None:
    """Numerator, denominator and precision of an operand of float arithmetic; None if it was rounded before."""
    if isinstance(a, Real):
        return (a.top, a.bottom, a.bits) if a.is_exact else None
    if isinstance(a, Fraction):
        return a.numerator, a.denominator, 53
    return (a, 1, 53) if isinstance(a, int | Size) else None


def _arithmetic(name: str, a: SizeElement, b: SizeElement) -> SizeElement:
    a, b = _number(a), _number(b)
    if isinstance(a, Real | Fraction) or isinstance(b, Real | Fraction):
        return _float_arithmetic(name, a, b)
    match name:
        case "Add":
            return a + b
        case "Sub":
            return a - b
        case "Mul":
            return a * b
        case _:
            return _truncated(a, b)


def _float_arithmetic(name: str, a: SizeElement, b: SizeElement) -> SizeElement:
    x, y = _parts(a), _parts(b)
    if x is None or y is None:
        return None
    (p, q, bits), (r, s, other) = x, y
    bits = min(bits, other)
    match name:
        case "Mul":
            found = _real(p * r, q * s, bits)
        case "Div":
            if isinstance(r, Size):
                # The scale of a resized image: the same size on both sides.
                whole = divided(p, r) if remainder(p, r) == 0 else None
                return None if whole is None else _real(whole * s, q, bits)
            return None if not r else _real(p * s, q * r, bits)
        case _:
            found = _real(p * s + (r * q if name == "Add" else -r * q), q * s, bits)
    # Of a quotient that was rounded once, only Floor and Ceil are exact; other operations would round again.
    return None if isinstance(found, Real) and not found.is_exact and name != "Div" else found


def _truncated(a: int, b: int) -> int:
    """The division of integers of ONNX, which rounds to zero."""
    if b < 0:
        a, b = -a, -b
    return divided(a, b) if a >= 0 else -divided(-a, b)


def _modulo(a: int, b: int, truncates: bool) -> SizeElement:
    if isinstance(a, Real | float) or isinstance(b, Real | float):
        return None
    if truncates and a < 0:
        return -remainder(-a, abs(b))
    return remainder(a, b)


def _power(a: SizeElement, b: SizeElement) -> SizeElement:
    if isinstance(a, Real) or isinstance(b, Real | Size) or not float(b).is_integer() or not 0 <= b <= 4:
        return a if isinstance(a, Real) and b == 1 else None
    return a ** int(b)


def _rounded(element: SizeElement, up: bool) -> SizeElement:
    """Down or up to a whole number, which stays an element of a float tensor."""
    if not isinstance(element, Real):
        return element
    top, bottom = element.top, element.bottom
    # Division of sizes rounds down; a quotient that floats round once is not rounded to the next whole number.
    whole = -divided(-top, bottom) if up else divided(top, bottom)
    return _real(whole, 1, element.bits)


# ---- comparisons -------------------------------------------------------------------------------------


def _compared(name: str, a: SizeElement, b: SizeElement) -> bool | None:
    x, y = _parts(_number(a)), _parts(_number(b))
    if x is None or y is None:
        raise Undecided("a comparison of rounded numbers")
    left, right = x[0] * y[1], y[0] * x[1]
    match name:
        case "Equal":
            return left == right or (None if _may_be_equal(left, right) else False)
        case "Less":
            return left < right
        case "LessOrEqual":
            return left <= right
        case "Greater":
            return left > right
        case _:
            return left >= right


def _may_be_equal(a: int, b: int) -> bool:
    try:
        return not (a < b or a > b)
    except Undecided:
        return True


def same(a: SizeElement, b: SizeElement) -> bool:
    """Whether two elements are known to be equal."""
    return a is not None and type(a) is type(b) and a == b


def _where(condition: SizeElement, a: SizeElement, b: SizeElement) -> SizeElement:
    if condition is None:
        return a if same(a, b) else None
    return a if condition else b


def _and(a: SizeElement, b: SizeElement) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: SizeElement, b: SizeElement) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


def _xor(a: SizeElement, b: SizeElement) -> bool | None:
    return None if a is None or b is None else a != b


def _chosen(choose: Callable[[int, int], int], a: SizeElement, b: SizeElement) -> SizeElement:
    x, y = _parts(_number(a)), _parts(_number(b))
    if x is None or y is None:
        return None
    left, right = x[0] * y[1], y[0] * x[1]
    found = choose(left, right)
    if found in (left, right):
        return a if found == left else b
    return found if isinstance(a, int | Size) and isinstance(b, int | Size) else None


def _clip(x: SizeElement, low: SizeElement = None, high: SizeElement = None) -> SizeElement:
    found = x if low is None else _chosen(largest, x, low)
    return found if high is None else _chosen(smallest, found, high)


# ---- conversions -------------------------------------------------------------------------------------


def cast(element: SizeElement, to: ir.DataType) -> SizeElement:
    """An element converted to another element type; None if the type cannot hold all its values."""
    if to == ir.DataType.BOOL:
        return _negated(_compared("Equal", element, 0))
    if to in (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.UINT64, ir.DataType.UINT32):
        if isinstance(element, Real):
            # Truncation.
            return divided(element.top, element.bottom) if element.top >= 0 else None
        return element if isinstance(element, int | Size) else None
    bits = _PRECISION.get(to)
    if bits is None:
        return None
    if isinstance(element, Real):
        return _real(element.top, element.bottom, bits) if element.is_exact else None
    return _real(element, 1, bits) if isinstance(element, Size) else None


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _negative(a: SizeElement) -> SizeElement:
    return Real(-a.top, a.bottom, a.bits) if isinstance(a, Real) else -a


def _absolute(a: SizeElement) -> SizeElement:
    return _negative(a) if _compared("Less", a, 0) else a


def _sign(a: SizeElement) -> SizeElement:
    is_zero = _compared("Equal", a, 0)
    if is_zero is None:
        return None
    sign = 0 if is_zero else 1 if _compared("Greater", a, 0) else -1
    return float(sign) if isinstance(a, Real) else sign


def _shifted(a: SizeElement, b: SizeElement, left: bool) -> SizeElement:
    if not isinstance(b, int):
        return None
    return a * (1 << b) if left else divided(a, 1 << b)


KNOWS_MORE: dict[str, Callable[..., SizeElement]] = {"And": _and, "Or": _or, "Where": _where}
"""Operators whose result may be known although an operand is not."""

OPERATORS: dict[str, Callable[..., SizeElement]] = {
    **{name: (lambda a, b, name=name: _arithmetic(name, a, b)) for name in ("Add", "Sub", "Mul", "Div")},
    **{
        name: (lambda a, b, name=name: _compared(name, a, b))
        for name in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    },
    **KNOWS_MORE,
    "Abs": _absolute,
    "Ceil": lambda a: _rounded(a, True),
    "Clip": _clip,
    "Floor": lambda a: _rounded(a, False),
    "Identity": lambda a: a,
    "Max": lambda a, b: _chosen(largest, a, b),
    "Min": lambda a, b: _chosen(smallest, a, b),
    "Neg": _negative,
    "Not": _negated,
    "Pow": _power,
    "Sign": _sign,
    "Xor": _xor,
}
"""The result of each operator for elements of which one depends on free sizes."""


def operator(name: str, attributes: Mapping[str, Any]) -> Callable[..., SizeElement] | None:
    """The scalar form of an elementwise operator; None if there is none.

    It raises :class:`~eqsat.schema.size.Undecided` if the result depends on the sizes.
    """
    match name:
        case "Cast":
            return lambda a: cast(a, ir.DataType(attributes["to"]))
        case "Mod":
            return lambda a, b: _modulo(a, b, bool(attributes.get("fmod", 0)))
        case "BitShift":
            return lambda a, b: _shifted(a, b, attributes["direction"] == "LEFT")
    return OPERATORS.get(name)


def computed(rule: Callable[..., SizeElement], *operands: SizeElement, partial: bool = False) -> SizeElement:
    """The result of a scalar operator; None if it is unknown.

    Args:
        rule: The operator.
        operands: Its operands.
        partial: Whether an operand may be unknown.
    """
    if not partial and any(x is None for x in operands):
        return None
    try:
        return rule(*operands)
    except Undecided:
        return None
