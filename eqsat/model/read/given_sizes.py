"""The caller's values for symbolic dimensions: numbers, ranges, lists of sizes, expressions of other dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from eqsat.errors import ModelError
from eqsat.schema.free_sizes import FreeSize

GivenSize = int | str | tuple[int, int | None] | tuple[int, int | None, int] | list[int] | FreeSize
"""A value for a symbolic dimension: its size; an expression of other dimensions, ``"P + S"``; its range, ``(least,
most)`` or ``(least, most, typical)``; or ``[16, 128, 512]``, the sizes at which costs are evaluated.
"""


Bound = int | str
"""A replacement of a symbol: a number, or an expression of other symbols."""


def split(dims: Mapping[str, GivenSize] | None, place: str = "") -> tuple[dict[str, Bound], dict[str, FreeSize]]:
    """Sizes and expressions to bind, and ranges of sizes that stay free; a missing typical size is 0.

    Raises:
        ModelError: One of them is neither.
    """
    bound: dict[str, Bound] = {}
    ranges: dict[str, FreeSize] = {}
    for name, size in (dims or {}).items():
        if isinstance(size, tuple | list | FreeSize):
            free = _free(name, size, place)
            if free.least == free.most:
                bound[name] = free.least
            else:
                ranges[name] = free
        else:
            bound[name] = size
    return bound, ranges


def _free(name: str, size: Sequence[int | None] | FreeSize, place: str) -> FreeSize:
    found = _read(size)
    if found is None:
        raise ModelError(
            f"a size for the dimension `{name}` is required, a range (least, most) or (least, most, typical) of sizes "
            "from 1 on, or a list of them",
            place=place,
            actual=size.span if isinstance(size, FreeSize) else repr(size),
            hint=f'such as dims={{"{name}": (1, 512, 128)}}, on the command line --dim {name}=1..512@128; '
            f'dims={{"{name}": [16, 128, 512]}}, --dim {name}=16,128,512',
        )
    for typical in found.costed or ((found.typical,) if found.typical else ()):
        if found.nearest(typical) != typical:
            raise ModelError(
                f"a typical size within the range of `{name}` is required",
                place=place,
                actual=f"{typical} in {found.span}",
            )
    return found


def _read(size: Sequence[int | None] | FreeSize) -> FreeSize | None:
    """A range in the caller's form; None if the value is not a range."""
    if isinstance(size, list):
        sizes = sorted({n for n in size if _is_size(n)})
        is_list = bool(sizes) and all(map(_is_size, size))
        return FreeSize(sizes[0], sizes[-1], _median(sizes), tuple(sizes)) if is_list else None
    if not isinstance(size, FreeSize):
        if len(size) not in (2, 3):
            return None
        least, most, typical = (*size, 0) if len(size) == 2 else size
        costed: Sequence[int] = ()
    else:
        least, most, typical, costed = size.least, size.most, size.typical, sorted(set(size.costed))
    if not _is_size(least) or not (most is None or (_is_size(most) and least <= most)):
        return None
    if not _is_whole(typical) or not all(map(_is_size, costed)):
        return None
    return FreeSize(least, most, _median(costed) if costed else typical, tuple(costed))


def _median(sizes: Sequence[int]) -> int:
    return sizes[(len(sizes) - 1) // 2]


def _is_whole(size: object) -> TypeGuard[int]:
    return isinstance(size, int) and not isinstance(size, bool)


def _is_size(size: object) -> TypeGuard[int]:
    return _is_whole(size) and size >= 1
