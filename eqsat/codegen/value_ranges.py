"""Between which numbers the integers of a tensor lie: what bounds a size that data decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.ops.operators import operator
from eqsat.schema import integer_ranges
from eqsat.schema.integer_ranges import IntegerRange
from eqsat.schema.size import bounds
from eqsat.schema.size_questions import greatest
from eqsat.schema.symbol import LARGEST
from eqsat.schema.types import OpKey

_Rule = Callable[[Mapping[str, Any], Sequence[IntegerRange]], IntegerRange | None]


@dataclass(frozen=True)
class Producer:
    """The operator that computes a tensor.

    Attributes:
        op: The operator.
        attributes: All attributes.
        operands: Its operands.
    """

    op: OpKey
    attributes: Mapping[str, Any]
    operands: Sequence[ProgramOperand | None]


@dataclass
class ValueRanges:
    """Knows the origins of a program's integers, and so their ranges.

    Attributes:
        origins: By tensor.
        known: Ranges that no origin tells.
    """

    origins: dict[ProgramTensor, Producer] = field(default_factory=dict)
    known: dict[ProgramTensor, IntegerRange | None] = field(default_factory=dict)

    def of(self, operand: ProgramOperand) -> IntegerRange | None:
        """The range that all known facts allow for an element; None for types other than integers."""
        if isinstance(operand, np.ndarray):
            return _of_constant(operand)
        if operand not in self.known:
            self.known[operand] = None
            self.known[operand] = self._computed(operand)
        return self.known[operand]

    def _computed(self, tensor: ProgramTensor) -> IntegerRange | None:
        widest = _range_of(tensor.dtype)
        origin = self.origins.get(tensor)
        if origin is None or origin.op.domain or widest is None:
            return widest
        name = origin.op.name
        if name in ("ArgMax", "ArgMin") and origin.operands[0] is not None:
            shape = origin.operands[0].shape
            return 0, max(greatest(shape[origin.attributes["axis"]]) - 1, 0)
        if name == "ReduceSum" and origin.operands[0] is not None:
            return self._sum(origin.operands[0], tensor) or widest
        selects = operator(origin.op).selects
        is_part = selects is not None and not selects.adds
        if not is_part and name not in _RULES:
            return widest
        count = len(origin.operands)
        sources = selects.sources(count) if selects is not None and is_part else range(count)
        operands = [x for i in sources if (x := origin.operands[i]) is not None]
        ranges = [r for x in operands if (r := self.of(x)) is not None]
        if len(ranges) < len(operands) or not ranges:
            return widest
        found = integer_ranges.hull(ranges) if is_part else _RULES[name](origin.attributes, ranges)
        # A value outside the type's range wraps around.
        return found if found is not None and widest[0] <= found[0] and found[1] <= widest[1] else widest

    def _sum(self, x: ProgramOperand, result: ProgramTensor) -> IntegerRange | None:
        """The range of the sum of all elements that go into a result."""
        each = self.of(x)
        if each is None:
            return None
        count = 1
        for n in x.shape:
            count *= greatest(n)
        for n in result.shape:
            count //= max(bounds(n)[0], 1)
        return max(min(each[0] * count, 0), -LARGEST), min(max(each[1] * count, 0), LARGEST)


def _of_constant(array: np.ndarray) -> IntegerRange | None:
    if array.dtype == object:
        ends = [bounds(x) for x in array.reshape(-1)]
        return integer_ranges.hull(ends) if ends else None
    if array.dtype.kind not in "iub" or not array.size:
        return None
    return int(array.min()), int(array.max())


def _range_of(dtype: ir.DataType) -> IntegerRange | None:
    """The range of an integer type."""
    if dtype == ir.DataType.BOOL:
        return 0, 1
    if not dtype.is_integer():
        return None
    bits = dtype.bitwidth
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed() else (0, (1 << bits) - 1)


def _modulo(attributes: Mapping[str, Any], ranges: Sequence[IntegerRange]) -> IntegerRange | None:
    return None if ranges[0][0] < 0 and attributes.get("fmod") else integer_ranges.remainders(*ranges)


def _clipped(attributes: Mapping[str, Any], ranges: Sequence[IntegerRange]) -> IntegerRange | None:
    if len(ranges) < 3:
        return None
    (low, high), (least, _), (_, most) = ranges
    return min(max(low, least), most), max(min(high, most), least)


_RULES: dict[str, _Rule] = {
    "Abs": lambda a, r: (0 if r[0][0] <= 0 <= r[0][1] else min(map(abs, r[0])), max(map(abs, r[0]))),
    "Add": lambda a, r: (r[0][0] + r[1][0], r[0][1] + r[1][1]),
    "Cast": lambda a, r: r[0],
    "Clip": _clipped,
    "Div": lambda a, r: integer_ranges.quotients(*r),
    "Max": lambda a, r: integer_ranges.greater(r),
    "Min": lambda a, r: integer_ranges.smaller(r),
    "Mod": _modulo,
    "Mul": lambda a, r: integer_ranges.products(*r),
    "Neg": lambda a, r: (-r[0][1], -r[0][0]),
    "Sub": lambda a, r: (r[0][0] - r[1][1], r[0][1] - r[1][0]),
}
