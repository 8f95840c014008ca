"""The dimensions of broadcasts over free sizes, which are equal or 1 at run time."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.inference.size_elements import SizeElement
from eqsat.schema.size import Size, SizeOperation, closer_bounds
from eqsat.schema.size_choices import largest

Dims = list[SizeElement]
"""Dimensions as sizes, each None if it is unknown."""
MOST_IN_MAXIMUM = 3
"""The number of sizes up to which a broadcast is expressed as the greatest of them."""


def broadcast_dims(shapes: Sequence[Dims | None]) -> Dims | None:
    """The dimensions to which shapes broadcast; None if the rank is unknown."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known), default=0)
    return [_broadcast_size([s[a - rank + len(s)] for s in known if a >= rank - len(s)]) for a in range(rank)]


def _broadcast_size(sizes: Sequence[SizeElement]) -> SizeElement:
    """The size to which sizes of one axis broadcast: they are equal or 1."""
    met: list[SizeElement] = []
    for size in sizes:
        if size is None:
            met.append(None)
        elif size != 1:
            met += [s for s in _maxima(size, sizes) if s not in met]
    for size in met:
        # The other sizes are equal to it or 1.
        if size is not None and (not isinstance(size, Size) or closer_bounds(size)[0] > 1):
            return size
    if not met:
        return 1
    if None in met:
        return None
    if len(met) == 1:
        return met[0]
    if len(met) > MOST_IN_MAXIMUM or any(closer_bounds(s)[0] < 1 for s in met):
        return None
    found, *rest = sorted(met, key=lambda s: f"{s:model}")
    for size in rest:
        found = largest(found, size)
    return found


def _maxima(size: int, sizes: Sequence[SizeElement]) -> list[int]:
    """Splits a size that is the maximum of sizes of one axis into these sizes; the axis has one of them, or 1.

    Args:
        size: The size.
        sizes: Sizes of the axis. As none is negative, the maximum of 0 and one of them is that one.
    """
    if isinstance(size, Size) and len(size.terms) == 1:
        ((monomial, factor),) = size.terms.items()
        atom = monomial[0] if factor == 1 and len(monomial) == 1 else None
        if isinstance(atom, SizeOperation) and atom.kind == "max":
            parts = [atom.a, atom.b]
            if all(closer_bounds(part)[0] >= 1 for part in parts):
                return [size for part in parts for size in _maxima(part, sizes)]
            rest = [part for part in parts if isinstance(part, Size) or part != 0]
            if len(rest) == 1 and rest[0] in sizes:
                return rest
    return [size]
