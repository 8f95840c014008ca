"""Sizes that a generated program receives as arguments, as numbers that the rest of the generator computes with.

A :class:`Size` is a polynomial in free sizes and in quotients, remainders and maxima of such polynomials. Its text is
its C expression, so that a template which writes an extent or a stride writes either a number or that expression. A
polynomial that is a number *is* an ``int``.

Three rules keep a kernel right for every size in the range:

- ``a < b`` and the like are decided for all sizes, by bounds, or raise :class:`Undecided`.
- ``a == b`` means equal for all sizes. Where it does not hold, kernels do the general thing (a loop, a remainder), and
  that is right for the sizes that happen to be equal as well. ``bool(a)`` is ``a != 0``.
- A size is not an index: ``range``, ``int``, ``math.gcd`` and numpy raise :class:`Undecided`.

A kernel family that raises declines the task, and another one, at last a portable loop, takes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.integer_ranges import greater, products, quotients, remainders, smaller
from eqsat.schema.polynomials import least_of
from eqsat.schema.symbol import Symbol

if TYPE_CHECKING:
    _Number = int
else:
    _Number = object  # The interpreter's C code would read a subclass of int as its value.


class Undecided(Exception):
    """A question about free sizes that has different answers within their ranges."""


@dataclass(frozen=True, slots=True)
class SizeOperation:
    """An operation on sizes that a polynomial cannot express.

    Attributes:
        kind: ``//``, ``%``, ``max`` or ``min``.
        a, b: Operands; those of ``//`` and ``%`` are not negative, the divisor is positive.
    """

    kind: str
    a: int
    b: int
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Texts and bounds: operations nest, and are looked up often."""

    @property
    def bounds(self) -> tuple[int, int]:
        if "bounds" not in self._known:
            self._known["bounds"] = self._bounds()
        return self._known["bounds"]

    def _bounds(self) -> tuple[int, int]:
        ranges = closer_bounds(self.a), closer_bounds(self.b)
        if self.kind in ("//", "%"):
            found = quotients(*ranges) if self.kind == "//" else remainders(*ranges)
            assert found is not None
            return found
        return greater(ranges) if self.kind == "max" else smaller(ranges)

    def text(self, *, c: bool) -> str:
        key = "c" if c else "model"
        if key not in self._known:
            self._known[key] = self._text(c)
        return self._known[key]

    def _text(self, c: bool) -> str:
        a, b = _text(self.a, c), _text(self.b, c)
        if self.kind == "//":
            return f"({a} / {b})" if c else f"floor({a}/{b})"
        if self.kind == "%":
            return f"({a} % {b})" if c else f"Mod({a}, {b})"
        if c:
            return f"({a} {'>' if self.kind == 'max' else '<'} {b} ? {a} : {b})"
        return f"{self.kind.capitalize()}({a}, {b})"

    def at(self, values: Mapping[str, int]) -> int:
        a, b = value_at(self.a, values), value_at(self.b, values)
        if self.kind in ("//", "%"):
            return a // b if self.kind == "//" else a % b
        return max(a, b) if self.kind == "max" else min(a, b)


SizeAtom = Symbol | SizeOperation
SizeMonomial = tuple[SizeAtom, ...]


class Size(_Number):
    """A polynomial that is not a number; see the top of the file."""

    __slots__ = ("_hash", "terms")

    terms: dict[SizeMonomial, int]

    def __new__(cls, terms: Mapping[SizeMonomial, int]) -> Size:
        made = object.__new__(cls)
        made.terms = dict(sorted(terms.items(), key=_rank))
        made._hash = hash(frozenset(made.terms.items()))
        return made

    # ---- arithmetic ------------------------------------------------------------------------------------

    def __add__(self, other: int) -> int:
        found = _terms(other)
        if found is None:
            return NotImplemented
        total = dict(self.terms)
        for monomial, factor in found.items():
            total[monomial] = total.get(monomial, 0) + factor
        return _made(total)

    __radd__ = __add__

    def __neg__(self) -> int:
        return _made({monomial: -factor for monomial, factor in self.terms.items()})

    def __pos__(self) -> int:
        return self

    def __sub__(self, other: int) -> int:
        return self + -other

    def __rsub__(self, other: int) -> int:
        return -self + other

    def __mul__(self, other: int) -> int:
        found = _terms(other)
        if found is None:
            return NotImplemented
        total: dict[SizeMonomial, int] = {}
        for a, x in self.terms.items():
            for b, y in found.items():
                monomial = tuple(sorted((*a, *b), key=lambda atom: atom.text(c=False)))
                total[monomial] = total.get(monomial, 0) + x * y
        return _made(total)

    __rmul__ = __mul__

    def __pow__(self, other: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        result = 1
        for _ in range(other):
            result = result * self
        return result

    def __floordiv__(self, other: int) -> int:
        return divided(self, other) if _is_whole(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> int:
        return divided(other, self) if _is_whole(other) else NotImplemented

    def __mod__(self, other: int) -> int:
        return remainder(self, other) if _is_whole(other) else NotImplemented

    def __rmod__(self, other: int) -> int:
        return remainder(other, self) if _is_whole(other) else NotImplemented

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    # ---- questions -------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        return True

    def __lt__(self, other: int) -> bool:
        low, high = closer_bounds(self - other)
        if high < 0 or low >= 0:
            return high < 0
        return self._undecided(f"whether {self:model} < {_text(other, False)}")

    def __ge__(self, other: int) -> bool:
        return not self < other

    def __gt__(self, other: int) -> bool:
        return not self < other + 1

    def __le__(self, other: int) -> bool:
        return self < other + 1

    def _undecided(self, what: str) -> NoReturn:
        raise Undecided(f"{what} depends on the sizes")

    def _no_number(self, *_: Any) -> NoReturn:
        raise Undecided(f"the size {self:model} would have to be a number")

    __index__ = __int__ = __float__ = __round__ = __trunc__ = __floor__ = __ceil__ = _no_number
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_number
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _no_number
    __truediv__ = __rtruediv__ = __rpow__ = _no_number

    def __copy__(self) -> Size:
        return self

    def __deepcopy__(self, memo: object) -> Size:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (self.terms,)

    # ---- text ------------------------------------------------------------------------------------------

    def __format__(self, spec: str) -> str:
        """C by default, with a sign for ``+d``; ``model`` in the symbols of the model."""
        if spec == "model":
            return self._text(c=False)
        return f"+ {self}" if spec.startswith("+") else str(self)

    def __str__(self) -> str:
        return self._text(c=True)

    def __repr__(self) -> str:
        return self._text(c=False)

    def _text(self, *, c: bool) -> str:
        text = ""
        for monomial, factor in self.terms.items():
            parts = [atom.text(c=c) for atom in monomial]
            if abs(factor) != 1 or not parts:
                parts.insert(0, str(abs(factor)))
            joined = " * ".join(parts) if c else "*".join(parts)
            sign = "-" if factor < 0 else "+"
            text += f" {sign} {joined}" if text else f"{'-' if factor < 0 else ''}{joined}"
        alone = next(iter(self.terms.items())) if len(self.terms) == 1 else None
        bare = alone is not None and alone[1] == 1 and len(alone[0]) == 1
        return text if bare or not c else f"({text})"


def symbol(name: str, size: FreeSize) -> int:
    """A free size."""
    return Size({(Symbol(name, size),): 1})


def _rank(term: tuple[SizeMonomial, int]) -> tuple[bool, int, list[str]]:
    """Positive terms first, so that no text begins with a sign that it need not have."""
    monomial, factor = term
    return factor < 0, -len(monomial), [atom.text(c=False) for atom in monomial]


def _terms(value: Any) -> Mapping[SizeMonomial, int] | None:
    if isinstance(value, Size):
        return value.terms
    return {(): int(value)} if _is_whole(value) else None


def _is_whole(value: object) -> bool:
    """Whether it is a number without a fraction, or a size."""
    return isinstance(value, int | np.integer | Size)


def _made(terms: Mapping[SizeMonomial, int]) -> int:
    kept = {monomial: factor for monomial, factor in terms.items() if factor}
    if not kept.keys() - {()}:
        return kept.get((), 0)
    return Size(kept)


def _atom(kind: str, a: int, b: int) -> int:
    return Size({(SizeOperation(kind, a, b),): 1})


def _text(value: int, c: bool) -> str:
    if not isinstance(value, Size):
        return str(value)
    return str(value) if c else f"({value:model})"


def divided(a: int, b: int) -> int:
    """``a // b``."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return a // b
    if closer_bounds(b)[0] <= 0:
        if _parted(a, b)[1] == 0:
            return _parted(a, b)[0]  # Of nothing by nothing as well: no other quotient is right for all sizes.
        raise Undecided(f"whether the divisor {b!r} is positive depends on the sizes")
    whole, rest = _parted(a, b)
    low, high = closer_bounds(rest)
    if high <= 0 and low < 0 and not isinstance(b, Size):
        return whole - divided(b - 1 - rest, b)
    if low < 0:
        # The constant left a rest of either sign, though the whole has one.
        least, most = closer_bounds(a)
        if least >= 0:
            return _atom("//", a, b)
        if most <= 0:
            return -divided(b - 1 - a, b)
        raise Undecided(f"whether {a!r} is negative depends on the sizes")
    if high < closer_bounds(b)[0]:
        return whole
    return whole + _atom("//", rest, b)


def remainder(a: int, b: int) -> int:
    """``a % b``."""
    if not isinstance(a, Size) and not isinstance(b, Size):
        return a % b
    if closer_bounds(b)[0] <= 0:
        if _parted(a, b)[1] == 0:
            return 0
        raise Undecided(f"whether the divisor {b!r} is positive depends on the sizes")
    _, rest = _parted(_without_remainders(a, b), b)
    low, high = closer_bounds(rest)
    if low < 0:
        if isinstance(b, Size):
            raise Undecided(f"whether {a!r} is negative depends on the sizes")
        if high <= 0:
            return rest + b * divided(b - 1 - rest, b)
        rest = _made({monomial: factor % b for monomial, factor in (_terms(rest) or {}).items()})
        low, high = closer_bounds(rest)
    return rest if high < closer_bounds(b)[0] else _atom("%", rest, b)


def _without_remainders(value: int, b: int) -> int:
    """An expression with the same remainder but without remainders in it: sympy simplifies ``Mod(3*Mod(n, 4), 4)`` to
    ``3*Mod(n, 4)``, which is wrong.
    """
    total: int = 0
    for monomial, factor in (_terms(value) or {}).items():
        for atom in monomial:
            goes = isinstance(atom, SizeOperation) and atom.kind == "%" and _parted(atom.b, b)[1] == 0
            factor = factor * (atom.a if goes and isinstance(atom, SizeOperation) else Size({(atom,): 1}))
        total = total + factor
    return total


def _parted(a: int, b: int) -> tuple[int, int]:
    """``a`` as ``whole * b + rest``: what divides exactly, and what does not."""
    terms = dict(_terms(a) or {})
    divisor = _terms(b) or {}
    if len(divisor) != 1:
        return (1, 0) if a == b else (0, a)
    ((gone, by),) = divisor.items()
    whole: dict[SizeMonomial, int] = {}
    rest: dict[SizeMonomial, int] = {}
    for monomial, factor in terms.items():
        left = _without(monomial, gone)
        if left is None:
            rest[monomial] = factor
            continue
        # A constant keeps a remainder that is not negative; a coefficient is divided only where it is exact.
        share = factor // by if factor % by == 0 or not monomial else 0
        whole[left] = whole.get(left, 0) + share
        rest[monomial] = factor - share * by
    return _made(whole), _made(rest)


def _without(monomial: SizeMonomial, gone: SizeMonomial) -> SizeMonomial | None:
    left = list(monomial)
    for atom in gone:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


# ---- values --------------------------------------------------------------------------------------------


def bounds(value: int) -> tuple[int, int]:
    """A number below or at all values of a size, and one above or at all of them."""
    if not isinstance(value, Size):
        return value, value
    low = high = 0
    for monomial, factor in value.terms.items():
        least, most = reduce(products, (atom.bounds for atom in monomial), (1, 1))
        most = min(most, _together(monomial, most))
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    return low, high


def _together(monomial: SizeMonomial, most: int) -> int:
    """A bound of a product of sizes of which some have a greatest product."""
    names = {atom.name: atom.range.together for atom in monomial if isinstance(atom, Symbol)}
    for together in names.values():
        if together is not None and names.keys() >= set(together[0]):
            others = (a for a in monomial if not (isinstance(a, Symbol) and a.name in together[0]))
            most = min(most, together[1] * math.prod(a.bounds[1] for a in others))
    return most


def closer_bounds(value: int) -> tuple[int, int]:
    """Bounds that see what terms have in common: if n and m are not negative, ``n*m - n`` and ``n - n//2`` are not."""
    low, high = bounds(value)
    if low < 0 < high:
        low, high = max(low, least_of(_terms(value) or {})), min(high, -least_of(_terms(-value) or {}))
    if low < 0 < high and (whole := _without_quotient(value)) is not None:
        least, most = closer_bounds(whole[0])
        low, high = max(low, -(-least // whole[1])), min(high, most // whole[1])
    return low, high


def _without_quotient(value: int) -> tuple[int, int] | None:
    """A multiple of a size, and which: ``a // d`` is ``(a - r) / d`` for a remainder r; None without quotients."""
    for monomial, factor in (_terms(value) or {}).items():
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, SizeOperation) and atom.kind == "//" and isinstance(atom.b, int):
            rest = Size({(Symbol(f"{atom.text(c=False)} rest", FreeSize(0, atom.b - 1, 0)),): 1})
            return (value - _made({monomial: factor})) * atom.b + factor * (atom.a - rest), atom.b
    return None


def value_at(value: int, values: Mapping[str, int]) -> int:
    """A size at values of the symbols."""
    if not isinstance(value, Size):
        return value
    return sum(factor * math.prod(atom.at(values) for atom in monomial) for monomial, factor in value.terms.items())
