"""Arrays of terms, and elementwise operators on them, by which operators on whole tensors are defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, apply, number
from eqsat.schema.types import Attributes, OpKey

Array = np.ndarray
"""An array of terms or known numbers."""
GivenArrays = Sequence[Array | None]


def terms(array: Array) -> Array:
    """An array whose elements are terms."""
    if array.dtype == object:
        return array
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        found[place] = number(array[place].item())
    return found


def filled(shape: Iterable[int], make: Callable[[tuple[int, ...]], ScalarTerm]) -> Array:
    """An array by place."""
    found = np.empty(tuple(shape), object)
    for place in np.ndindex(found.shape):
        found[place] = make(place)
    return found


def present(array: Array | None) -> Array:
    """An operand that must be there."""
    if array is None:
        raise NotModelled("an operand that is absent")
    return array


def elementwise(op: OpKey, attrs: Attributes, given: GivenArrays) -> Array:
    """An elementwise operator, with broadcasting; numbers among its attributes may be terms."""
    data: Any = tuple(sorted(attrs.items()))
    operands = [terms(a) for a in given if a is not None]
    if op.name == "Clip":
        there = [a is not None for a in given[1:]]
        data = (("present", (*there, *[False] * (2 - len(there)))),)
    shape = np.broadcast_shapes(*(a.shape for a in operands))
    wide = [np.broadcast_to(a, shape) for a in operands]
    return filled(shape, lambda place: apply(op.name, (a[place] for a in wide), data))


def total(parts: Iterable[ScalarTerm]) -> ScalarTerm:
    """The sum of some terms."""
    found: ScalarTerm | None = None
    for part in parts:
        found = part if found is None else apply("Add", (found, part))
    return number(0) if found is None else found


def times(a: ScalarTerm, b: ScalarTerm) -> ScalarTerm:
    """The product of two terms."""
    return apply("Mul", (a, b))


def plus(a: Array, b: Array) -> Array:
    """Sums by element."""
    return elementwise(OpKey("", "Add"), {}, [a, b])


def multiplied(a: Array, b: Array) -> Array:
    """Products by element."""
    return elementwise(OpKey("", "Mul"), {}, [a, b])


def minus(a: Array, b: Array) -> Array:
    """Differences by element."""
    return elementwise(OpKey("", "Sub"), {}, [a, b])


def over(a: Array, b: Array) -> Array:
    """Quotients by element."""
    return elementwise(OpKey("", "Div"), {}, [a, b])


def each(name: str, a: Array) -> Array:
    """An operator of one operand by element."""
    return elementwise(OpKey("", name), {}, [a])


def scalar(value: Any) -> Array:
    """A number of an attribute."""
    found = np.empty((), object)
    found[()] = value if isinstance(value, ScalarTerm) else number(value)
    return found
