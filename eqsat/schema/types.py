"""The names of values and operators in all of eqsat: tensor types, operator keys, attribute bundles.

All three are immutable and hashable, so that the e-graph can intern them to integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

Dim = int | str | None
"""A dimension: a number, a symbol such as ``"N"``, or unknown."""

Shape = tuple[int, ...]
"""A shape whose sizes are known."""


_POINTER = 64


def bits(dtype: ir.DataType) -> int:
    """Bits of an element in a tensor; a tensor of strings holds pointers to them."""
    return _POINTER if dtype == ir.DataType.STRING else dtype.bitwidth


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor.

    Attributes:
        dtype: ONNX element type.
        shape: One entry for each dimension; ``None`` if not even the rank is known.
    """

    dtype: ir.DataType
    shape: tuple[Dim, ...] | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a number."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def elements(self) -> int | None:
        """Number of elements, ``None`` unless static."""
        return (
            math.prod(d for d in self.shape if isinstance(d, int))
            if self.is_static and self.shape is not None
            else None
        )

    @property
    def bytes(self) -> int | None:
        """Size in bytes (sub-byte types are packed), ``None`` unless static."""
        n = self.elements
        return None if n is None else math.ceil(n * bits(self.dtype) / 8)

    @property
    def itemsize(self) -> float:
        """Bytes per element; for strings, those of a reference."""
        return 8 if self.dtype in (ir.DataType.STRING, ir.DataType.UNDEFINED) else self.dtype.bitwidth / 8

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype.name.lower()}[{dims}]"


def type_of(value: ir.Value | None) -> TensorType | None:
    """The type of a value, None unless the model declares a tensor and its rank."""
    found = None if value is None else tensor_type(value)
    return None if found is None or found.shape is None else found


def type_of_array(array: np.ndarray) -> TensorType:
    """Element type and shape of an array."""
    dtype = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
    return TensorType(dtype, tuple(array.shape))


def tensor_type(value: ir.Value) -> TensorType | None:
    """The type of a value, also of a tensor of unknown rank; None unless the model declares its element type."""
    if not isinstance(value.type, ir.TensorType):
        return None
    if value.shape is None:
        return TensorType(value.type.dtype, None)
    return TensorType(value.type.dtype, tuple(d if isinstance(d, int) else d.value for d in value.shape))


def stored_type(value: ir.Value) -> TensorType | None:
    """The type of a value, of an initializer that of its tensor: models need not declare it."""
    tensor = value.const_value if value.is_initializer() else None
    return tensor_type(value) if tensor is None else TensorType(tensor.dtype, tuple(tensor.shape.numpy()))


class OpKey(NamedTuple):
    """An operator by domain and name; the default ONNX domain is ``""``."""

    domain: str
    name: str

    def __str__(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name


CONSTANT, CAST, CAST_LIKE = OpKey("", "Constant"), OpKey("", "Cast"), OpKey("", "CastLike")
"""Operators that many files read or write."""


class TensorAttr:
    """A tensor as an attribute value, compared by type and content."""

    __slots__ = ("_key", "array", "dtype")

    def __init__(self, array: np.ndarray, dtype: ir.DataType) -> None:
        self.array = array
        self.dtype = dtype
        if dtype == ir.DataType.STRING:
            # As objects they are pointers, as numpy strings padded: neither's bytes are the content.
            content = tuple(s.encode() if isinstance(s, str) else bytes(s) for s in array.ravel().tolist())
        else:
            content = array.tobytes()
        self._key = (dtype, array.shape, content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorAttr) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, slots=True, eq=False)
class GraphAttr:
    """A subgraph as an attribute value (If, Loop, Scan): opaque, equal only to itself.

    Attributes:
        graph: The body, as loaded.
        captured: Names of the outer values the body reads, in order of first use; the e-node that
            carries this attribute has them as further inputs after its own.
    """

    graph: ir.Graph
    captured: tuple[str, ...]


class OpaqueAttr:
    """An attribute of a kind that nothing here looks into (a type, a sparse tensor, lists of tensors or graphs),
    compared by its serialised form.
    """

    __slots__ = ("_key", "attr")

    def __init__(self, attr: ir.Attr) -> None:
        self.attr = attr
        self._key = ir.to_proto(attr).SerializeToString(deterministic=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueAttr) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


AttrValue = (
    int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | TensorAttr | GraphAttr | OpaqueAttr
)
Attrs = tuple[tuple[str, AttrValue], ...]
"""An attribute bundle: (name, value) pairs sorted by name, defaults filled in. Lists are tuples."""

Attributes = Mapping[str, Any]
"""Attributes by name, as kernels read them."""

TensorTypes = Sequence[TensorType | None]
"""Types of operands or results; None for an absent one."""

OptionalArrays = Sequence[np.ndarray | None]
"""Operands; None for an absent one."""

OneOrMoreArrays = np.ndarray | tuple[np.ndarray, ...]
"""The result of an operator or a model: an array, or several."""

KnownValue = np.ndarray | None
"""A value that is known before the model runs, or None."""
