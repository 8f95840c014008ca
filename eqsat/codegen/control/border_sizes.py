"""Free sizes at the borders of a body, which receives those of its operands; its node finds those of its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import is_sizes
from eqsat.model.unused_names import unused
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.size import bounds, closer_bounds, symbol
from eqsat.schema.size_questions import is_free, substituted, symbols
from eqsat.schema.symbol import Symbol

_MOST_SYMBOLS = 4
"""Symbols of a size that a body receives one by one; longer sizes get a symbol of their own."""


@dataclass
class ReceivedSizes:
    """The sizes that the bodies of a node receive.

    Attributes:
        ranges: By symbol in the bodies.
        outside: The outer size for each symbol in the bodies.
    """

    ranges: dict[str, FreeSize] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)

    def keep(self, size: int) -> None:
        """Let a symbol be one of the bodies that is nothing outside: rounds change it."""
        self.ranges.update({s.name: s.range for s in symbols(size)})
        self._known[size] = size

    def tensor(self, operand: ProgramTensor) -> ProgramTensor:
        """An operand with the names that its sizes have inside."""
        shape = tuple(map(self.size, operand.shape))
        return operand if shape == operand.shape else ProgramTensor(operand.name, operand.dtype, shape)

    def operand(self, operand: ProgramOperand) -> ProgramOperand:
        """A tensor or an array of sizes, with the names that the sizes have inside, or a constant."""
        if isinstance(operand, ProgramTensor):
            return self.tensor(operand)
        return np.array(np.frompyfunc(self.size, 1, 1)(operand), object) if is_sizes(operand) else operand

    def size(self, n: int) -> int:
        """The name of a size inside the bodies."""
        if n in self._known:
            return self._known[n]
        inner = {s.name: s for s in symbols(n)}
        if len(inner) <= _MOST_SYMBOLS:
            for name, known in inner.items():
                self.ranges[name] = known.range
                self.outside[name] = symbol(name, known.range)
            return n
        low, high = closer_bounds(n)
        name = unused("size", {*self.ranges, *inner})
        # Only elements of shapes may be negative.
        shift = min(low, 0)
        self.ranges[name] = FreeSize(low - shift, high - shift, max(low - shift, min(high - shift, 128)))
        self.outside[name] = n - shift
        self._known[n] = symbol(name, self.ranges[name]) + shift
        return self._known[n]

    def from_inside(self, n: int) -> int | None:
        """The outer expression of a size of a body; None if the body found the size."""
        if any(s.name not in self.outside for s in symbols(n)):
            return None
        return substituted(n, self.outside)

    def arguments(self) -> list[tuple[str, str]]:
        """C names of the parameters for these sizes, and C of the arguments."""
        inner = {name: Symbol(name, size) for name, size in self.ranges.items()}
        return [(inner[name].c_name, str(n)) for name, n in self.outside.items()]


def merged(sizes: Iterable[int | None]) -> int | None:
    """The common size of the results of all bodies; None if they may differ."""
    known = list(sizes)
    return known[0] if all(n is not None and n == known[0] for n in known) else None


def common_range(sizes: Sequence[int]) -> tuple[int, int]:
    """A range of all of several sizes."""
    ends = [closer_bounds(n) if is_free(n) else bounds(n) for n in sizes]
    return max(min(low for low, _ in ends), 0), max(high for _, high in ends)
