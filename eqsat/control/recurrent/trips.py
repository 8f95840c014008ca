"""Integers of a loop: numbers of rounds and positions, as multiples of the round's number plus sizes of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key
from eqsat.simplify.edit import constant_of, number_of


@dataclass(frozen=True, slots=True)
class Position:
    """``times * round + size + offset``.

    Attributes:
        size: Name of a symbolic dimension, empty for none.
    """

    times: int = 0
    size: str = ""
    offset: int = 0

    def plus(self, other: Position) -> Position | None:
        if self.size and other.size:
            return None
        return Position(self.times + other.times, self.size or other.size, self.offset + other.offset)

    def minus(self, other: Position) -> Position | None:
        if other.size and other.size != self.size:
            return None
        return Position(self.times - other.times, "" if other.size else self.size, self.offset - other.offset)

    @property
    def is_fixed(self) -> bool:
        return self.times == 0


def outer_number(value: ir.Value | None, depth: int = 0) -> Position | None:
    """An integer that the graph around a loop computes from constants and sizes; None if it is unknown."""
    if value is None or depth > 16:
        return None
    array = number_of(value)
    if array is not None:
        return Position(offset=int(array.reshape(-1)[0])) if array.dtype.kind in "iu" else None
    node = value.producer()
    if node is None or node.domain:
        return None
    if has(op_key(node), Trait.REARRANGES):  # There is one element.
        return outer_number(node.inputs[0], depth + 1)
    if node.op_type == "Shape":
        sizes = _dims(node)
        return dimension(sizes[0]) if sizes is not None and len(sizes) == 1 else None
    if node.op_type in ("Gather", "Slice"):
        return _size(node)
    if node.op_type in ("Add", "Sub"):
        one, other = (outer_number(v, depth + 1) for v in node.inputs)
        if one is None or other is None:
            return None
        return one.plus(other) if node.op_type == "Add" else one.minus(other)
    if node.op_type in ("Max", "Min"):
        return _greatest_or_least(node.op_type, [outer_number(v, depth + 1) for v in node.inputs])
    return None


def _greatest_or_least(op: str, numbers: Sequence[Position | None]) -> Position | None:
    """The Max or Min of numbers, where it follows from sizes not being negative which one it is."""
    choose = max if op == "Max" else min
    offsets: dict[str, int] = {}
    for number in numbers:
        if number is None or not number.is_fixed:
            return None
        offsets[number.size] = choose(number.offset, offsets.get(number.size, number.offset))
    if len(offsets) == 1:
        ((size, offset),) = offsets.items()
        return Position(0, size, offset)
    plain = offsets.pop("", None)
    if len(offsets) > 1 or plain is None:
        return None
    ((size, offset),) = offsets.items()
    if plain > offset:
        return None
    return Position(0, size, offset) if op == "Max" else Position(offset=plain)


def dimension(dim: int | ir.SymbolicDim | str | None) -> Position | None:
    """A size of a tensor."""
    if isinstance(dim, int):
        return Position(offset=dim)
    name = dim.value if isinstance(dim, ir.SymbolicDim) else dim
    return Position(size=name) if name else None


def _size(node: ir.Node) -> Position | None:
    """The dimension that a Gather or Slice takes out of a Shape."""
    source = node.inputs[0]
    while source is not None and (found := source.producer()) is not None and found.op_type in ("Identity", "Cast"):
        source = found.inputs[0]
    shape = None if source is None else source.producer()
    dims = None if shape is None or shape.op_type != "Shape" else _dims(shape)
    if dims is None:
        return None
    numbers = [constant_of(v) for v in node.inputs[1:]]
    if any(n is None or n.size != 1 for n in numbers):
        return None
    given = [int(np.asarray(n).reshape(-1)[0]) for n in numbers]
    if node.op_type == "Slice":
        chosen = dims[slice(given[0], given[1], given[3] if len(given) > 3 else 1)]
        return dimension(chosen[0]) if len(chosen) == 1 else None
    return dimension(dims[given[0]]) if -len(dims) <= given[0] < len(dims) else None


def _dims(shape: ir.Node) -> list[int | ir.SymbolicDim] | None:
    """The dimensions that a Shape gives."""
    source = shape.inputs[0]
    if source is None or source.shape is None:
        return None
    start, stop = (shape.attributes[name].as_int() if name in shape.attributes else None for name in ("start", "end"))
    return list(source.shape)[start:stop]
