"""Random choices: all that an instance is made of comes from one seeded generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from eqsat.schema.types import Shape

T = TypeVar("T")

LARGEST = 400
"""Elements of the largest leaf: small tensors show what large ones do, and a counterexample is to be read."""


class Rejected(Exception):
    """The drawn operands contradict each other; another attempt is needed."""


class Chance:
    """A generator with the choices that drawing needs."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def happens(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def one_of(self, items: Sequence[T]) -> T:
        if not items:
            raise Rejected("nothing to choose from")
        return items[int(self.rng.integers(len(items)))]

    def weighted(self, weights: dict[T, float]) -> T:
        """A key by its weight."""
        keys, values = list(weights), np.cumsum(list(weights.values()))
        return keys[int(np.searchsorted(values, self.rng.random() * values[-1], side="right"))]

    def number(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(self.rng.integers(low, high + 1))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return [items[int(i)] for i in self.rng.permutation(len(items))]

    def dim(self) -> int:
        return self.weighted({1: 2.0, 2: 3.0, 3: 3.0, 4: 1.5, 5: 0.8, 6: 0.4, 0: 0.05})

    def shape(self, rank: int | None = None, least: int = 0) -> Shape:
        """A shape; images are the most frequent."""
        if rank is None:
            rank = self.weighted({0: 0.05, 1: 0.15, 2: 0.3, 3: 0.2, 4: 0.28, 5: 0.02})
        return fitted(tuple(self.dim() for _ in range(max(rank, least))))

    def partner(self, shape: Shape, *, equal: float = 0.5, larger: float = 0.1) -> Shape:
        """A shape that broadcasts with another.

        Args:
            equal: Probability of the very same shape.
            larger: Probability that it may enlarge the result, by its rank or by a dimension.
        """
        if self.happens(equal):
            return shape
        rank = len(shape)
        if self.happens(larger):
            kind = self.number(0, 2)
            if kind == 0:
                return (1,) * (rank + 1)
            if kind == 1:
                return (self.number(1, 3), *shape)
            return fitted(tuple(self.dim() if d == 1 else d for d in shape))
        kind = self.number(0, 5)
        if kind <= 1 or rank == 0:
            return (1,) * self.one_of((0, 0, 1, rank)) if rank else ()
        if kind == 2:
            return shape[-1:]
        if kind == 3 and rank >= 3:
            # One value per channel.
            return self.one_of(((shape[1], *(1,) * (rank - 2)), (1, shape[1], *(1,) * (rank - 2))))
        if kind == 4:
            return shape[self.number(0, rank) :]
        return tuple(d if self.happens(0.6) else 1 for d in shape)


def fitted(shape: Shape) -> Shape:
    """A shape with its largest dimensions halved until it has few elements."""
    dims = list(shape)
    while math.prod(dims) > LARGEST:
        dims[dims.index(max(dims))] //= 2
    return tuple(dims)


def broadcast(*shapes: Shape) -> Shape:
    """The common shape.

    Raises:
        Rejected: There is no common shape.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Rejected(str(error)) from None
