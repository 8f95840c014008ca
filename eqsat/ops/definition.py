"""Definitions of operators of other domains by standard operators, made for the attributes and types of one node.

The executor, type inference, MAC counts and generated C read the same definition. It must hold for sizes that are not
known: shapes are read from operands (``Shape``, zeros and -1 of ``Reshape``) unless they are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.schema.attributes import make_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import CONSTANT, AttrValue, OpKey, TensorAttr, TensorType, TensorTypes

BodyOf = Callable[[Mapping[str, AttrValue], TensorTypes], Body | None]
"""The body for attributes (with defaults) and types of the inputs; None for those that it does not support."""


class BodyWriter:
    """Writes a body operator by operator; values are numbers.

    Args:
        inputs: Types of the inputs, None for an absent one.

    Attributes:
        dtype: Element type that it computes in; by default that of the first input.
    """

    def __init__(self, inputs: TensorTypes) -> None:
        self.inputs = tuple(inputs)
        self._nodes: list[BodyNode] = []
        self._next = len(inputs)
        first = self.type(0)
        self.dtype = ir.DataType.FLOAT if first is None else first.dtype

    def given(self, index: int) -> int | None:
        """An input, None where it is absent."""
        return index if index < len(self.inputs) and self.inputs[index] is not None else None

    def type(self, index: int) -> TensorType | None:
        """Type of an input, None where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def op(self, name: str | OpKey, /, *operands: int | None, **attrs: Any) -> int:
        """An operator of one result; a name alone is ONNX's."""
        return self.several(name, 1, *operands, **attrs)[0]

    def several(self, name: str | OpKey, outputs: int, /, *operands: int | None, **attrs: Any) -> tuple[int, ...]:
        """An operator of several results."""
        key = OpKey("", name) if isinstance(name, str) else name
        self._nodes.append(BodyNode(key, make_attrs(key, attrs), operands, outputs))
        first, self._next = self._next, self._next + outputs
        return tuple(range(first, self._next))

    def constant(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> int:
        """A constant; integers of 64 bits unless told otherwise."""
        array = np.asarray(value, object if dtype == ir.DataType.STRING else dtype.numpy())
        self._nodes.append(BodyNode(CONSTANT, (("value", TensorAttr(array, dtype)),), ()))
        self._next += 1
        return self._next - 1

    def reshaped(self, x: int, *dims: int) -> int:
        """``x`` with other dimensions; 0 keeps one, -1 is what remains."""
        return self.op("Reshape", x, self.constant(list(dims)))

    def unsqueezed(self, x: int, *axes: int) -> int:
        return self.op("Unsqueeze", x, self.constant(list(axes)))

    def size(self, x: int, axis: int) -> int:
        """The size of one axis, as a vector of one element."""
        return self.op("Shape", x, start=axis, **({} if axis == -1 else {"end": axis + 1}))

    def counted(self, size: int) -> int:
        """The integers below a size, which is a vector of one element."""
        end = self.op("Squeeze", size)
        return self.op("Range", self.constant(0), end, self.constant(1))

    def body(self, *results: int) -> Body:
        return Body(len(self.inputs), tuple(self._nodes), results)


def number(types: TensorTypes, index: int, axis: int) -> int | None:
    """A dimension of an input, None if it is not a number."""
    known = types[index] if index < len(types) else None
    if known is None or known.shape is None or not -len(known.shape) <= axis < len(known.shape):
        return None
    found = known.shape[axis]
    return found if isinstance(found, int) else None


def integer(attrs: Mapping[str, AttrValue], name: str) -> int:
    """An attribute that is an integer; 0 if it is absent."""
    value = attrs.get(name, 0)
    return value if isinstance(value, int) else 0


def integers(attrs: Mapping[str, AttrValue], name: str) -> tuple[int, ...]:
    """An attribute that is a list of integers; empty if it is absent."""
    value = attrs.get(name, ())
    return tuple(int(v) for v in value) if isinstance(value, tuple) else ()


def rank(types: TensorTypes, index: int) -> int | None:
    """The rank of an input, None where it is absent or not known."""
    known = types[index] if index < len(types) else None
    return None if known is None else known.rank
