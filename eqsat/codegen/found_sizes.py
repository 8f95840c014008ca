"""Sizes that data decides: a kernel computes their values, and from there on they are symbols like received sizes.

Two things make them. An operator whose result has as many elements as data says becomes a kernel that writes the
greatest result and a count, and a view of the first elements (:meth:`FoundSizes.counted`). If an operand contains the
size of a result, its elements become sizes (:meth:`FoundSizes.as_sizes`): arithmetic on shapes is traced back to the
elements that data decides, and only these are read. So equal sizes are known to be equal.

The arena has room for the greatest value of each size. The program compares each value that it reads, and ends with a
status if one is out of range.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.kernel import Step
from eqsat.codegen.program import IDENTITY, READ_SIZES, SIZES, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import computed, elements
from eqsat.codegen.value_ranges import Producer, ValueRanges
from eqsat.model.unused_names import unused
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.integer_ranges import IntegerRange
from eqsat.schema.size import bounds, symbol
from eqsat.schema.size_questions import greatest, symbols
from eqsat.schema.symbol import LARGEST
from eqsat.schema.types import CAST, OpKey, TensorType

_MOST_FOLLOWED = 64
"""Elements of a tensor that is followed back to the sizes in it; shapes are smaller."""
_FOLLOWED = frozenset(
    (
        *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Max", "Min", "Mul", "ReduceMax", "ReduceMin"),
        *("ReduceSum", "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze"),
    )
)
_MOST = {ir.DataType.INT64: LARGEST, ir.DataType.INT32: 2**31 - 1}
"""Element types in which sizes are computed, with their greatest numbers."""
_UNBOUNDED = 2**31 - 1
"""Not a bound of a size: no memory holds this many elements."""
_SLICE = OpKey("", "Slice")


@dataclass(frozen=True)
class SizeLimits:
    """Bounds of sizes that data decides, known before the program.

    Attributes:
        most: The greatest values that the caller gives, by name.
        required: The greatest values that operators of the model allow, by the symbol in its types.
        used: Names given by the caller that occur in the program.
    """

    most: Mapping[str, int] = field(default_factory=dict)
    required: Mapping[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)


class Unbounded(Exception):
    """A size that data decides, and that nothing bounds.

    Attributes:
        name: Of the size.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    @property
    def reason(self) -> str:
        """The reason for the user."""
        return f"a size that data decides and nothing bounds (give a bound with --dim {self.name}=..N)"


class FoundSizes:
    """The sizes that a program finds.

    Args:
        free: Receives their ranges, by name.
        nodes: Receives the nodes that find them.
        taken: Names that symbols of the model have.
        limits: What is known of them.
    """

    def __init__(
        self, free: dict[str, FreeSize], nodes: list[ProgramNode], taken: Collection[str], limits: SizeLimits
    ) -> None:
        self._free = free
        self._nodes = nodes
        self._taken = set(taken)
        self._limits = limits
        self._sizes: dict[ProgramTensor, np.ndarray] = {}
        self.ranges = ValueRanges()
        self.made: list[int] = []
        self._found: set[str] = set()

    def note(
        self,
        op: OpKey,
        attributes: Mapping[str, Any],
        operands: Sequence[ProgramOperand | None],
        results: Sequence[Any],
    ) -> None:
        """Remember what computes some tensors."""
        for result in results[:1]:
            if isinstance(result, ProgramTensor) and result.dtype != ir.DataType.FLOAT:
                self.ranges.origins[result] = Producer(op, attributes, list(operands))

    def allowed(self, declared: TensorType | None) -> int:
        """The greatest size of a vector, by the bounds that operators impose on the symbol in its type."""
        size = declared.shape[0] if declared is not None and declared.shape else None
        return self._limits.required.get(size, LARGEST) if isinstance(size, str) else LARGEST

    def remembered(self) -> dict[ProgramTensor, np.ndarray]:
        """A snapshot of the sizes that tensors are known to hold, for :meth:`forget`."""
        return dict(self._sizes)

    def forget(self, remembered: dict[ProgramTensor, np.ndarray]) -> None:
        """Restores a snapshot: sizes that were read since then are forgotten."""
        self._sizes = remembered

    def decide(self, tensor: ProgramTensor) -> bool:
        """Whether data decides a size of a tensor."""
        return any(s.name in self._found for n in tensor.shape for s in symbols(n))

    # ---- sizes from data -------------------------------------------------------------------------------

    def as_sizes(
        self, operand: ProgramOperand, name: str, most: Sequence[int] | None = None, *, signed: bool = False
    ) -> np.ndarray:
        """The elements of an operand as numbers and sizes.

        Args:
            operand: A vector or a scalar of integers.
            name: Name of the operator, from which that of the size derives.
            most: Upper bounds of the elements.
            signed: Whether they may be negative.

        Raises:
            Unbounded: One has no greatest value.
        """
        if isinstance(operand, np.ndarray):
            return operand
        if operand not in self._sizes:
            followed = self._followed(operand, name)
            if followed is not None and not signed and any(bounds(n)[0] < 0 for n in elements(followed)):
                highest = [bounds(n)[1] for n in elements(followed)]
                most = highest if most is None else [min(pair) for pair in zip(highest, most, strict=True)]
                followed = None
            self._sizes[operand] = self._read(operand, name, most, signed) if followed is None else followed
        return self._sizes[operand]

    def _followed(self, tensor: ProgramTensor, name: str) -> np.ndarray | None:
        """The elements as an expression of the sizes that they are computed from, if that has bounds."""
        origin = self.ranges.origins.get(tensor)
        if origin is None or origin.op.domain or origin.op.name not in _FOLLOWED:
            return None
        if any(x is not None and _count(x) > _MOST_FOLLOWED for x in origin.operands):
            return None
        if any(isinstance(x, ProgramTensor) and x.dtype not in _MOST for x in (tensor, *origin.operands)):
            return None
        try:
            operands = [None if x is None else self.as_sizes(x, name, signed=True) for x in origin.operands]
        except Unbounded:
            return None
        attrs = tuple(origin.attributes.items())
        (found,) = operands if origin.op == CAST else computed(origin.op, attrs, operands) or [None]
        if found is None:
            return None
        # A value outside the range of the element type wraps around.
        limit = _MOST[tensor.dtype]
        fits = all(-limit <= end <= limit for n in elements(found) for end in bounds(n))
        return found if fits or tensor.dtype == ir.DataType.INT64 else None

    def _read(self, tensor: ProgramTensor, name: str, most: Sequence[int] | None, signed: bool) -> np.ndarray:
        """The elements as sizes that the program reads."""
        low, high = self.ranges.of(tensor) or (-LARGEST, LARGEST)
        limits = [min(high, n) for n in most] if most is not None else [high] * _count(tensor)
        if tensor.dtype != ir.DataType.INT64:
            wide = ProgramTensor(f"{tensor.name}_wide", ir.DataType.INT64, tensor.shape)
            step = Step(CAST, {"to": ir.DataType.INT64, "saturate": 1}, (0,), wide.dtype)
            self._nodes.append(ProgramNode(wide.name, IDENTITY, {}, [tensor], [wide], tensor.dtype, [], [step]))
            tensor = wide
        return self.read(tensor, name, [(low if signed else max(low, 0), n) for n in limits])

    def read(
        self, tensor: ProgramTensor, name: str, ranges: Sequence[IntegerRange], together: int | None = None
    ) -> np.ndarray:
        """The elements of a tensor of int64 as sizes, each within a range.

        Args:
            tensor: Of int64.
            name: Name of the operator, from which those of the sizes derive.
            ranges: For each element.
            together: Upper bound of the product of all elements.

        Raises:
            Unbounded: One has no greatest value.
        """
        made = [self.size(name, between) for between in ranges]
        if together is not None:
            made = self._bounded(made, together)
        self.reading(tensor, made, self._nodes)
        found = np.empty(len(made), object)
        found[:] = made
        return found.reshape(tensor.shape)

    def _bounded(self, sizes: Sequence[int], most: int) -> list[int]:
        """The same sizes with an upper bound of their product."""
        names = tuple(s.name for n in sizes for s in symbols(n))
        self._free.update({name: replace(self._free[name], together=(names, most)) for name in names})
        return [symbol(name, self._free[name]) for name in names]

    def reading(self, tensor: ProgramTensor, sizes: Sequence[int], nodes: list[ProgramNode]) -> None:
        """Add the node that reads sizes from a tensor."""
        copy = ProgramTensor(f"{tensor.name}_read", ir.DataType.INT64, tensor.shape)
        nodes.append(ProgramNode(copy.name, READ_SIZES, {"sizes": tuple(sizes)}, [tensor], [copy], copy.dtype))

    def size(self, name: str, between: IntegerRange) -> int:
        """A new size within a range; the caller must add a node that reads it.

        Raises:
            Unbounded: It has no greatest value.
        """
        label = unused(_identifier(name), self._taken)
        low, high = between
        if label in self._limits.most:
            high = min(high, self._limits.most[label])
            self._limits.used.add(label)
        if high >= _UNBOUNDED:
            self._taken.discard(label)
            raise Unbounded(label)
        size = FreeSize(low, high, max(min(high, 128), low))
        self._free[label] = size
        self._found.add(label)
        self.made.append(symbol(label, size))
        return self.made[-1]

    def written(self, name: str, values: np.ndarray) -> ProgramTensor:
        """Sizes as a tensor."""
        tensor = ProgramTensor(name, ir.DataType.INT64, values.shape)
        self._nodes.append(ProgramNode(name, SIZES, {"values": tuple(elements(values))}, [], [tensor], tensor.dtype))
        self._sizes[tensor] = values
        return tensor

    # ---- results of as many elements as data says ------------------------------------------------------

    def counted(
        self, name: str, count: ProgramTensor, most: int, results: Sequence[tuple[ProgramTensor | None, int]]
    ) -> list[ProgramTensor | None]:
        """Views of the first elements of results.

        Args:
            name: Name of the operator, from which that of the size derives.
            count: How many elements there are, a tensor of one int64.
            most: Upper bound of that number.
            results: Each with the axis whose first ``count`` indices are kept.
        """
        (size,) = elements(self.read(count, name, [(0, greatest(most))]))
        found: list[ProgramTensor | None] = []
        for tensor, axis in results:
            if tensor is None:
                found.append(None)
                continue
            shape = tuple(size if a == axis else n for a, n in enumerate(tensor.shape))
            view = ProgramTensor(tensor.name.removesuffix("_all"), tensor.dtype, shape)
            self.first(tensor, view, axis, size, self._nodes)
            found.append(view)
        return found

    def first(self, tensor: ProgramTensor, view: ProgramTensor, axis: int, size: int, nodes: list[ProgramNode]) -> None:
        """Add a view of the first elements of a tensor."""
        end = np.empty(1, object)
        end[0] = size
        operands: list[ProgramOperand | None] = [tensor, np.zeros(1, np.int64), end, np.array([axis])]
        nodes.append(ProgramNode(view.name, _SLICE, {}, operands, [view], view.dtype))


def names_in(kinds: Iterable[TensorType]) -> set[str]:
    """The names of symbols in types."""
    return {name for kind in kinds for dim in kind.shape or () for name in re.findall(r"[A-Za-z_]\w*", str(dim))}


def _count(x: ProgramOperand) -> int:
    count = 1
    for n in x.shape:
        count *= greatest(n)
    return count


def _identifier(name: str) -> str:
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return text.strip("_") if text.strip("_")[:1].isalpha() else f"n_{text.strip('_')}"
