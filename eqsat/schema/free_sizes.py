"""Sizes that stay free: symbolic dimensions of a model's inputs that the caller does not bind to a number.

Rules have to hold for all of their values. Costs are taken at some of them, and results are verified at several.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import onnx_ir as ir

from eqsat.schema.types import Dim, TensorType

TYPICAL = 128
"""Size at which costs are taken where the caller does not say; 1 for batches."""
MOST_COMBINED = 16
"""Combinations of several symbols' sizes at which costs are taken."""
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31)
"""Sizes that are multiples of nothing; each symbol takes another one, so that mixed-up symbols show."""


@dataclass(frozen=True, slots=True)
class FreeSize:
    """A size that stays free.

    Attributes:
        least: The smallest value, at least 1 unless data decides the size.
        most: The largest value, None where there is no limit.
        typical: Where costs are taken.
        costed: Where costs are taken, if at several sizes; the typical one is in their middle.
        together: Names of sizes whose product has a greatest value, and that value; its own name among them.
    """

    least: int
    most: int | None
    typical: int
    costed: tuple[int, ...] = ()
    together: tuple[tuple[str, ...], int] | None = None

    def nearest(self, size: int) -> int:
        """The value of the range that is nearest to a size."""
        return max(self.least, size if self.most is None else min(size, self.most))

    @property
    def costed_at(self) -> tuple[int, ...]:
        """The sizes at which costs are taken."""
        return self.costed or (self.typical,)

    def __str__(self) -> str:
        return f"{self.least}..{'' if self.most is None else self.most}@{','.join(map(str, self.costed_at))}"


FreeSizes = Mapping[str, FreeSize]
"""By symbol."""
_RANGES: ContextVar[FreeSizes] = ContextVar("ranges", default=MappingProxyType({}))


@contextmanager
def within(sizes: FreeSizes) -> Iterator[None]:
    """Conditions are decided for these ranges, in the `with` block."""
    token = _RANGES.set(sizes)
    try:
        yield
    finally:
        _RANGES.reset(token)


def ranges() -> FreeSizes:
    """The ranges for which conditions are decided here."""
    return _RANGES.get()


def received(dims: Iterable[Dim]) -> FreeSizes:
    """The ranges for which conditions are decided here, with any size from 1 on for the other symbols of dimensions
    that a model receives.
    """
    names = {name: _RECEIVED for d in dims if isinstance(d, str) for name in _NAMES.findall(d)}
    return {**names, **ranges()}


_NAMES = re.compile(r"[^\W\d]\w*")
_RECEIVED = FreeSize(1, None, 0)


def typical(sizes: FreeSizes) -> dict[str, int]:
    """The typical value of each symbol."""
    return {name: size.typical for name, size in sizes.items()}


def where_costed(sizes: FreeSizes) -> tuple[dict[str, int], ...]:
    """The values at which costs are taken.

    All combinations of the symbols' sizes, or if these are more than :data:`MOST_COMBINED`, the first sizes together,
    then the second ones and so on, where a shorter list repeats its last one.
    """
    several = [size.costed_at for size in sizes.values()]
    if math.prod(map(len, several)) <= MOST_COMBINED:
        rows = list(itertools.product(*several))
    else:
        rows = [tuple(at[min(i, len(at) - 1)] for at in several) for i in range(max(map(len, several)))]
    return tuple(dict(zip(sizes, row, strict=True)) for row in rows)


def samples(sizes: FreeSizes) -> Iterator[dict[str, int]]:
    """Values on which results are verified: typical ones, then primes, the smallest ones, multiples of 16."""
    seen: list[dict[str, int]] = []
    several = [
        typical(sizes),
        {name: size.nearest(PRIMES[i % len(PRIMES)]) for i, (name, size) in enumerate(sizes.items())},
        {name: size.least for name, size in sizes.items()},
        {name: size.nearest(16 * (i + 2)) for i, (name, size) in enumerate(sizes.items())},
    ]
    for values in several:
        if values not in seen:
            seen.append(values)
            yield values


def at_sizes(kind: TensorType, values: Mapping[str, int]) -> TensorType:
    """A type with numbers for the symbols that have a value; dimensions over other symbols stay.

    Args:
        kind: The type.
        values: Size by symbol.
    """
    if kind.is_static or kind.shape is None or not values:
        return kind
    bound = tuple(sorted(values.items()))
    return TensorType(kind.dtype, tuple(_evaluated(d, bound) if isinstance(d, str) else d for d in kind.shape))


@lru_cache(maxsize=4096)
def _evaluated(dim: str, values: tuple[tuple[str, int], ...]) -> Dim:
    """The number that an expression has; 0 where it would be negative, itself where it has none."""
    try:
        found = ir.SymbolicDim(dim).evaluate(dict(values))
    except (ValueError, TypeError, ArithmeticError):
        return dim
    return max(0, found) if isinstance(found, int) else dim
