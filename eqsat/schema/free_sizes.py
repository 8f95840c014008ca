"""Sizes that stay free: symbolic dimensions of a model's inputs that the caller does not bind to a number.

Rules have to hold for all of their values. Costs are taken at some of them, and results are verified at several, which
:mod:`eqsat.schema.chosen_sizes` chooses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

import onnx_ir as ir

from eqsat.schema.types import Dim, TensorType

TYPICAL = 128
"""Size at which costs are taken where the caller does not say; 1 for batches."""


Fit = Literal["equal", "broadcast", "least"]
"""Relation of two sizes: they are equal, or equal unless one of them is 1, or the first is not less."""


class SizeCondition(NamedTuple):
    """How two expressions of symbols have to fit each other.

    Attributes:
        a, b: The expressions.
        fit: How they fit.
        always: Whether they have to in each run that succeeds, not only in those that execute a branch.
    """

    a: str
    b: str
    fit: Fit
    always: bool


@dataclass(frozen=True, slots=True)
class FreeSize:
    """A size that stays free.

    Attributes:
        least: The smallest value, at least 1 unless data decides the size.
        most: The largest value, None where there is no limit.
        typical: Where costs are taken.
        costed: Where costs are taken, if at several sizes; the typical one is in their middle.
        together: Names of sizes whose product has a greatest value, and that value; its own name among them.
        follows: What it is as an expression of other symbols, empty where it may have any value of the range.
        forced: Whether it is that in each run that succeeds; otherwise it may be 1, for example.
        conditions: What else has to hold of it and of other symbols.
    """

    least: int
    most: int | None
    typical: int
    costed: tuple[int, ...] = ()
    together: tuple[tuple[str, ...], int] | None = None
    follows: str = ""
    forced: bool = False
    conditions: tuple[SizeCondition, ...] = ()

    def nearest(self, size: int) -> int:
        """The value of the range that is nearest to a size."""
        return max(self.least, size if self.most is None else min(size, self.most))

    @property
    def costed_at(self) -> tuple[int, ...]:
        """The sizes at which costs are taken."""
        return self.costed or (self.typical,)

    @property
    def span(self) -> str:
        """The ends of the range, ``1..512`` or ``1..``."""
        return f"{self.least}..{'' if self.most is None else self.most}"

    def __str__(self) -> str:
        return f"{self.span}@{','.join(map(str, self.costed_at))}"


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
    """The value of an expression if it is a number (0 if it would be negative), otherwise the expression."""
    try:
        found = ir.SymbolicDim(dim).evaluate(dict(values))
    except (ValueError, TypeError, ArithmeticError):
        return dim
    return max(0, found) if isinstance(found, int) else dim
