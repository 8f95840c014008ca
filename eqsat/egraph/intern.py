"""Integers for everything in an e-node except its children: attributes, types, constants, composites.

egglog joins integers fast and does not know tensors; these tables connect both. Identifier 0 of the types and of the
constants means an absent optional input.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import onnx_ir as ir

from eqsat.egraph.equal_elements import ElementBits, element_of
from eqsat.ops.interval_arithmetic import ConstantBounds, bounds_of_array, bounds_of_wide
from eqsat.ops.wide import Wide, widen
from eqsat.schema.attributes import array_of, tensor_of
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import Attrs, OpKey, TensorType

SMALL = 4096
"""Constants up to this many elements are compared and folded by value inside the e-graph."""

K = TypeVar("K", bound=Hashable)


class Table(Generic[K]):
    """Dense identifiers for hashable values, in order of first appearance."""

    def __init__(self) -> None:
        self._ids: dict[K, int] = {}
        self._items: list[K] = []

    def id(self, item: K) -> int:
        found = self._ids.get(item)
        if found is None:
            found = self._ids[item] = len(self._items)
            self._items.append(item)
        return found

    def fresh(self, item: K) -> int:
        """An identifier shared with no other, for values that must never be merged (random operators)."""
        self._items.append(item)
        return len(self._items) - 1

    def __getitem__(self, number: int) -> K:
        return self._items[number]

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True, slots=True, eq=False)
class InternedConstant:
    """A constant tensor; ``tensor`` is None for the absent input.

    ``residue`` is the part that rounding removed, if a rule made the constant, see :func:`eqsat.ops.wide.residue_of`.
    """

    type: TensorType | None
    tensor: ir.TensorProtocol | None
    residue: np.ndarray | None = None

    @property
    def is_small(self) -> bool:
        return self.type is not None and (self.type.elements or 0) <= SMALL

    def numpy(self) -> np.ndarray | None:
        """The contents, None for the absent input."""
        return None if self.tensor is None else array_of(self.tensor)


class Constants:
    """Constants: small ones by content and residue of rounding, large ones by identity of the tensor."""

    def __init__(self) -> None:
        self._items: list[InternedConstant] = [InternedConstant(None, None)]
        self._ids: dict[Hashable, int] = {}
        self._kept: list[ir.TensorProtocol] = []

    def of_tensor(self, tensor: ir.TensorProtocol, residue: np.ndarray | None = None) -> int:
        kind = TensorType(tensor.dtype, tuple(tensor.shape.numpy()))
        if (kind.elements or 0) <= SMALL:
            array = array_of(tensor)
            content: Hashable = array.tobytes() if array.dtype != object else tuple(array.ravel().tolist())
            key: Hashable = (kind, content, None if residue is None else residue.tobytes())
        else:
            key = id(tensor)
            self._kept.append(tensor)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._items)
            self._items.append(InternedConstant(kind, tensor, residue))
        return found

    def of_array(self, array: np.ndarray, dtype: ir.DataType, residue: np.ndarray | None = None) -> int:
        return self.of_tensor(tensor_of(np.asarray(array, order="C"), dtype), residue)

    def __getitem__(self, number: int) -> InternedConstant:
        return self._items[number]

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The known facts about the numbers in a constant expression.

    Attributes:
        constant: Id of the constant; 0 if it is not computed, or absent.
        bounds: Bounds, if it is not computed.
        element: The value of all elements, if it is not computed and they are equal.
    """

    constant: int = 0
    bounds: ConstantBounds | None = None
    element: ElementBits | None = None


class InternedTypes(Table[TensorType | None]):
    """Tensor types; 0 is the type of an absent input."""

    def __init__(self) -> None:
        super().__init__()
        self.id(None)


class Tables:
    """All tables of one e-graph.

    Args:
        written_out: Operators that patterns match on constants. They stay in the e-graph beside the constants that they
            give.
    """

    def __init__(self, written_out: frozenset[OpKey] = frozenset()) -> None:
        self.written_out = written_out
        self.attrs: Table[Attrs] = Table()
        self.types = InternedTypes()
        self.constants = Constants()
        self.numbers: Table[Numbers | None] = Table()
        self.numbers.id(None)
        self.tuples: Table[tuple[int, ...]] = Table()
        self.composites: Table[Hashable] = Table()
        self._wide: dict[int, Wide] = {}
        self._bounds: dict[int, ConstantBounds] = {}
        self.elements: Table[ElementBits] = Table()
        self._element: dict[int, ElementBits | None] = {}

    def element(self, numbers: Numbers) -> ElementBits | None:
        """The value of all elements of a constant expression; None if they differ or are unknown."""
        if numbers.element is not None or not numbers.constant:
            return numbers.element
        if numbers.constant not in self._element:
            constant = self.constants[numbers.constant]
            array = constant.numpy()
            kind = constant.type
            self._element[numbers.constant] = None if array is None or kind is None else element_of(array, kind.dtype)
        return self._element[numbers.constant]

    def wide(self, numbers: Numbers) -> Wide | None:
        """A small constant in a wider type, None if it is unknown or large."""
        constant = self.constants[numbers.constant]
        if constant.type is None or not constant.is_small:
            return None
        if numbers.constant not in self._wide:
            array = constant.numpy()
            assert array is not None
            self._wide[numbers.constant] = widen(array, constant.type.dtype, constant.residue)
        return self._wide[numbers.constant]

    def is_infinite(self, numbers: Numbers) -> bool:
        """Whether an element of a floating-point constant may be infinite or NaN."""
        kind = self.constants[numbers.constant].type
        if kind is not None and kind.dtype not in FLOATS:
            return False
        bounds = self.bounds(numbers)
        return bounds is not None and (bounds.endless or bounds.most == math.inf)

    def bounds(self, numbers: Numbers) -> ConstantBounds | None:
        """The bounds of a constant expression, None for an absent operand."""
        if numbers.bounds is not None:
            return numbers.bounds
        constant = self.constants[numbers.constant]
        if constant.type is None:
            return None
        if numbers.constant not in self._bounds:
            wide, array = self.wide(numbers), constant.numpy()
            assert array is not None
            found = bounds_of_array(array, constant.type.dtype) if wide is None else bounds_of_wide(wide)
            self._bounds[numbers.constant] = found
        return self._bounds[numbers.constant]
