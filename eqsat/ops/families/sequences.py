"""Sequences (Python lists) and optionals (None if empty)."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.ops import normal
from eqsat.ops.need_by_parameters import need_split_to_sequence
from eqsat.ops.registry import declare
from eqsat.ops.traits import FORWARDS, MOVES, PARAMETRIC
from eqsat.schema.types import Attributes


def sequence_construct(attrs: Attributes, *xs: np.ndarray) -> list[Any]:
    """A sequence of the operands."""
    return list(xs)


def sequence_empty(attrs: Attributes) -> list[Any]:
    """A sequence without elements."""
    return []


def sequence_length(attrs: Attributes, xs: list[Any]) -> np.ndarray:
    """How many elements there are."""
    return np.array(len(xs), np.int64)


def _position(xs: list[Any], position: np.ndarray, last: int) -> int:
    index = int(position.reshape(()))
    if not -len(xs) <= index <= last:
        raise IndexError(f"a position in [{-len(xs)}, {last}] is required, not {index}")
    return index + len(xs) if index < 0 else index


def sequence_at(attrs: Attributes, xs: list[Any], position: np.ndarray) -> Any:
    """One element."""
    return xs[_position(xs, position, len(xs) - 1)]


def sequence_insert(attrs: Attributes, xs: list[Any], x: np.ndarray, position: np.ndarray | None = None) -> list[Any]:
    """The sequence with one more element, at the end by default."""
    at = len(xs) if position is None else _position(xs, position, len(xs))
    return [*xs[:at], x, *xs[at:]]


def sequence_erase(attrs: Attributes, xs: list[Any], position: np.ndarray | None = None) -> list[Any]:
    """The sequence without one element, the last by default."""
    at = len(xs) - 1 if position is None else _position(xs, position, len(xs) - 1)
    return [*xs[:at], *xs[at + 1 :]]


def concat_from_sequence(attrs: Attributes, xs: list[Any]) -> np.ndarray:
    """The elements one after the other along an existing or a new axis."""
    return np.stack(xs, attrs["axis"]) if attrs["new_axis"] else np.concatenate(xs, attrs["axis"])


def split_to_sequence(attrs: Attributes, x: np.ndarray, sizes: np.ndarray | None = None) -> list[Any]:
    """Pieces along an axis: of given sizes, of one size with a smaller last, or of length 1."""
    axis = attrs["axis"]
    length = x.shape[axis]
    if sizes is None:
        pieces = np.split(x, length, axis) if length else []
        return pieces if attrs["keepdims"] else [np.squeeze(p, axis) for p in pieces]
    if sizes.ndim == 0:
        return np.split(x, range(int(sizes), length, int(sizes)), axis)
    if sizes.sum() != length:
        raise ValueError(f"pieces of {sizes.tolist()} do not make up {length} elements")
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def optional(attrs: Attributes, x: Any = None) -> Any:
    """The operand, or nothing."""
    return x


def optional_has_element(attrs: Attributes, x: Any = None) -> np.ndarray:
    """Whether there is something."""
    return np.array(x is not None)


def optional_get_element(attrs: Attributes, x: Any) -> Any:
    """The value of the optional."""
    if x is None:
        raise ValueError("the optional is empty")
    return x


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("SequenceConstruct", numpy=sequence_construct, traits=MOVES | FORWARDS)
declare("SequenceEmpty", numpy=sequence_empty, traits=MOVES | FORWARDS)
declare("SequenceLength", numpy=sequence_length, traits=MOVES | FORWARDS)
declare("SequenceAt", numpy=sequence_at, traits=MOVES | FORWARDS, shaped_by=(1,))
declare("SequenceInsert", numpy=sequence_insert, traits=MOVES | FORWARDS, shaped_by=(2,))
declare("SequenceErase", numpy=sequence_erase, traits=MOVES | FORWARDS, shaped_by=(1,))
declare("ConcatFromSequence", numpy=concat_from_sequence, traits=MOVES)
declare("SplitToSequence", numpy=split_to_sequence, traits=MOVES | PARAMETRIC, shaped_by=(1,),
    need=need_split_to_sequence, normal_form=(normal.axis(),))
declare("Optional", numpy=optional, traits=MOVES | FORWARDS)
declare("OptionalHasElement", numpy=optional_has_element, traits=MOVES | FORWARDS)
declare("OptionalGetElement", numpy=optional_get_element, traits=MOVES | FORWARDS)
