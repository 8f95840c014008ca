"""A bound of a polynomial in atoms by what its terms have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar


class _Bounded(Protocol):
    @property
    def bounds(self) -> tuple[int, int]: ...


_Atom = TypeVar("_Atom", bound=_Bounded)
_NO_BOUND = -(2**126)


def least_of(terms: Mapping[tuple[_Atom, ...], int]) -> int:
    """A lower bound: with each atom as its least value and a rest that is not negative, a polynomial whose other
    coefficients are not negative is at least its constant.
    """
    total: dict[tuple[_Atom, ...], int] = {(): 0}
    for monomial, factor in terms.items():
        parts: dict[tuple[_Atom, ...], int] = {(): factor}
        for atom in monomial:
            product: dict[tuple[_Atom, ...], int] = {}
            for rest, part in parts.items():
                product[*rest, atom] = product.get((*rest, atom), 0) + part
                product[rest] = product.get(rest, 0) + part * atom.bounds[0]
            parts = product
        for rest, part in parts.items():
            total[rest] = total.get(rest, 0) + part
    least = total.pop(())
    return least if all(factor >= 0 for factor in total.values()) else _NO_BOUND
