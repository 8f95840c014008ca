"""Questions about sizes that may be free: bounds, typical values, the symbols in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from eqsat.schema.size import Size, SizeAtom, bounds, closer_bounds, divided, remainder, value_at
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.symbol import Symbol


def is_free(value: object) -> bool:
    """Whether a size is not a number."""
    return isinstance(value, Size)


def any_free(sizes: Sequence[object]) -> bool:
    """Whether one of several sizes is not a number."""
    return any(isinstance(n, Size) for n in sizes)


def greatest(value: int) -> int:
    """An upper bound of a size; the size itself if it is a number."""
    return bounds(value)[1]


def magnitude(value: int) -> int:
    """An upper bound of the absolute value; it orders the strides of a tensor as at its greatest sizes."""
    return max(map(abs, bounds(value)))


def typical(value: int) -> int:
    """A typical number for a size, for decisions that only affect speed."""
    return value_at(value, {s.name: s.range.typical for s in symbols(value)})


def symbols(value: int) -> Iterator[Symbol]:
    """The free sizes that a size depends on."""
    if isinstance(value, Size):
        for monomial in value.terms:
            for atom in monomial:
                if isinstance(atom, Symbol):
                    yield atom
                else:
                    yield from symbols(atom.a)
                    yield from symbols(atom.b)


def as_dim(value: int) -> int | str:
    """A size as a dimension of ONNX."""
    return f"{value:model}" if isinstance(value, Size) else value


def may_be_zero(value: int) -> bool:
    """Whether bounds and divisibility leave open that a size is zero."""
    if not isinstance(value, Size):
        return value == 0
    low, high = closer_bounds(value)
    constant = value.terms.get((), 0)
    divisor = math.gcd(*(factor for monomial, factor in value.terms.items() if monomial))
    return low <= 0 <= high and constant % divisor == 0


def substituted(value: int, sizes: Mapping[str, int]) -> int:
    """A size in terms of other sizes.

    Args:
        value: The size.
        sizes: What takes the place of symbols, by name.
    """
    if not isinstance(value, Size):
        return value
    total = 0
    for monomial, factor in value.terms.items():
        product = factor
        for atom in monomial:
            product = product * _replaced(atom, sizes)
        total = total + product
    return total


def _replaced(atom: SizeAtom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return sizes.get(atom.name, Size({(atom,): 1}))
    a, b = substituted(atom.a, sizes), substituted(atom.b, sizes)
    return {"//": divided, "%": remainder, "max": largest, "min": smallest}[atom.kind](a, b)
