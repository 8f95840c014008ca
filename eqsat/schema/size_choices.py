"""The greater and the smaller one of two sizes, also where it depends on the sizes which one that is."""

from __future__ import annotations

from eqsat.schema.size import Size, SizeOperation, closer_bounds


def largest(a: int, b: int) -> int:
    """``max(a, b)``, also where it depends on the sizes."""
    low, high = closer_bounds(a - b)
    if low >= 0 or high <= 0:
        return a if low >= 0 else b
    return _chosen("max", a, b)


def smallest(a: int, b: int) -> int:
    """``min(a, b)``, also where it depends on the sizes."""
    low, high = closer_bounds(a - b)
    if low >= 0 or high <= 0:
        return b if low >= 0 else a
    return _chosen("min", a, b)


def _chosen(kind: str, a: int, b: int) -> int:
    """The greater or smaller one of sizes of which none always is.

    The greater one of n and the smaller one of n and m is n, and the greater one of n and the greater one of n and m
    is the latter.
    """
    for one, other in ((a, b), (b, a)):
        atom = _only_choice(one)
        if atom is not None and other in (atom.a, atom.b):
            return one if atom.kind == kind else other
    return Size({(SizeOperation(kind, a, b),): 1})


def _only_choice(value: int) -> SizeOperation | None:
    """The maximum or minimum that a size is."""
    if not isinstance(value, Size) or len(value.terms) != 1:
        return None
    ((monomial, factor),) = value.terms.items()
    atom = monomial[0] if factor == 1 and len(monomial) == 1 else None
    return atom if isinstance(atom, SizeOperation) and atom.kind in ("max", "min") else None
