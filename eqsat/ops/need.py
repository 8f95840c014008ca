"""The needs of an operator, and the arithmetic of shapes that its kinds share; see :mod:`eqsat.ops.needs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.schema.types import Attributes


class Need(NamedTuple):
    """The memory and work that one operator takes.

    Attributes:
        elements: Elements of its results, and of temporary arrays.
        operations: Number of operations at the speed of a matrix product; slower ones count more than once.
    """

    elements: int
    operations: int


SLOW = 16
"""Weight of one operation outside of a matrix product."""

GivenOperands = Sequence[Any]
"""Arrays, or other objects with a shape; contents are read only from inputs that are shapes, counts and the like."""
NeedRule = Callable[[Attributes, GivenOperands], Need]


def size_of(x: Any) -> int:
    if x is None:
        return 0
    if isinstance(x, list):
        return sum(size_of(v) for v in x)
    if isinstance(x, dict):
        return len(x)
    return math.prod(x.shape)


def numbers(x: Any) -> list[int]:
    return [int(v) for v in np.asarray(x).reshape(-1).tolist()]


def made(size: int) -> Need:
    return Need(size, SLOW * size)


def broadcast_size(shapes: Sequence[Sequence[int]]) -> int:
    """Elements of the shape that several broadcast to, as far as they fit."""
    rank = max((len(s) for s in shapes), default=0)
    size = 1
    for i in range(1, rank + 1):
        dims = [s[-i] for s in shapes if len(s) >= i]
        size *= 0 if 0 in dims else max(dims)
    return size
