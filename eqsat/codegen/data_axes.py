"""Lowers operators whose axes, steps or widths are data: kernels find sizes by axis, and others take them at run time.

The axes of a reduction, a slice or a pad only change bounds of loops and positions. A kernel therefore clamps and
checks the data and writes numbers for each axis of the operand; sizes among them are read like other sizes that data
decides (:mod:`eqsat.codegen.found_sizes`). An operator along one axis sees its operand as three axes: those before the
axis, the axis, and those after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen.found_sizes import FoundSizes, Unbounded
from eqsat.codegen.operator_call import OperatorCall, finding_node, in_memory
from eqsat.codegen.program import ProgramNode, ProgramOperand, ProgramOperands, ProgramTensor
from eqsat.codegen.shape_arithmetic import depends_on_inputs, elements, is_sizes
from eqsat.ops.sets import operator_sets
from eqsat.schema.attributes import plain
from eqsat.schema.size import bounds
from eqsat.schema.size_choices import largest
from eqsat.schema.size_questions import greatest, is_free
from eqsat.schema.symbol import LARGEST

REDUCTIONS = tuple(op.name for op in operator_sets()["reductions"].operators)
_INT64 = ir.DataType.INT64


@dataclass(frozen=True)
class DataAxes:
    """Lowers these operators.

    Attributes:
        sizes: Makes sizes of data.
        nodes: Receives nodes.
        one: The result of an operator of ONNX on given operands: call, operator, attributes, operands, name.
    """

    sizes: FoundSizes
    nodes: list[ProgramNode]
    one: Callable[..., ProgramOperand]

    def lower(self, call: OperatorCall) -> ProgramOperands | None:
        """The results of an operator; None if it is not one of these or its axes are known.

        Raises:
            Unbounded: A size has no greatest value.
        """
        rule = _RULES.get(call.op.name)
        return None if rule is None or call.op.domain or call.operand(0) is None else rule(self, call)

    def _reduced(self, call: OperatorCall) -> ProgramOperands | None:
        """A reduction: each axis is one of the kept ones or of the reduced ones, and has one index in the others."""
        axes = call.operand(1)
        if not isinstance(axes, ProgramTensor):
            return None
        attributes = dict(plain(call.attrs))
        x = self._operand(call)
        rank, keeps = len(x.shape), bool(attributes.get("keepdims", 1))
        result = self._rank(rank, axes, keeps)
        if result is None:
            return None
        kept, reduced = (ProgramTensor(f"{call.name}_{part}", _INT64, (rank,)) for part in ("kept", "reduced"))
        dims = None if result in (0, rank) else ProgramTensor(f"{call.name}_dims", _INT64, (result,))
        form = {"kind": "reduce", "sizes": x.shape, "noop": bool(attributes.get("noop_with_empty_axes"))}
        self._add("Axes", call, form, [axes], [kept, reduced, dims])
        most = [(min(bounds(n)[0], 1), largest(greatest(n), 1)) for n in x.shape]
        total = math.prod(high for _, high in most)
        shape = elements(self.sizes.read(kept, call.name, most, total))
        gone = self.sizes.read(reduced, call.name, most, total)
        y = ProgramTensor(f"{call.label(0)}{'' if keeps else '_kept'}", x.dtype, tuple(shape))
        self._add(call.op.name, call, attributes, [x, gone], [y])
        if keeps:
            return [y]
        return [self._viewed(call, y, dims, result, total, call.label(0))]

    def _rank(self, rank: int, axes: ProgramTensor, keeps: bool) -> int | None:
        """The number of axes of a reduction's result; None if data decides it."""
        (count,) = axes.shape if axes.shape else (1,)
        if keeps:
            return rank
        return rank - count if not is_free(count) and count <= rank else None

    def _squeezed(self, call: OperatorCall) -> ProgramOperands | None:
        """Axes of one index that go or come."""
        axes = call.operand(1)
        if not isinstance(axes, ProgramTensor) or any(map(is_free, axes.shape)):
            return None
        x = self._operand(call)
        kind, count = call.op.name.lower(), math.prod(axes.shape)
        rank = len(x.shape) + (count if kind == "unsqueeze" else -count)
        if rank < 0:
            return None
        dims = ProgramTensor(f"{call.name}_dims", _INT64, (rank,)) if rank else None
        kept = ProgramTensor(f"{call.name}_kept", _INT64, (max(rank, len(x.shape)),))
        self._add("Axes", call, {"kind": kind, "sizes": x.shape, "noop": True}, [axes], [kept, None, dims])
        if dims is None:
            # Compared all the same: each axis that disappears has one index.
            self.sizes.reading(kept, [1] * len(kept.shape), self.nodes)
        total = math.prod(largest(greatest(n), 1) for n in x.shape)
        return [self._viewed(call, x, dims, rank, total, call.label(0))]

    def _viewed(
        self, call: OperatorCall, x: ProgramTensor, dims: ProgramTensor | None, rank: int, total: int, name: str
    ) -> ProgramTensor:
        """The same elements with dimensions that data decides; without dimensions a scalar."""
        found = [] if dims is None else elements(self.sizes.read(dims, call.name, [(0, total)] * rank, total))
        y = ProgramTensor(name, x.dtype, tuple(found))
        self._add("Reshape", call, {}, [x], [y])
        return y

    def _along(self, call: OperatorCall) -> ProgramOperands | None:
        """An operator along one axis that data says."""
        axis = call.operand(1)
        if not isinstance(axis, ProgramTensor):
            return None
        x = self._operand(call)
        total = math.prod(largest(greatest(n), 1) for n in x.shape)
        parts = ProgramTensor(f"{call.name}_parts", _INT64, (3,))
        self._add("Axes", call, {"kind": "along", "sizes": x.shape, "noop": True}, [axis], [parts, None, None])
        found = elements(self.sizes.read(parts, call.name, [(0, total)] * 3, total))
        view = ProgramTensor(f"{call.name}_view", x.dtype, tuple(found))
        self._add("Reshape", call, {}, [x], [view])
        made = self.one(call, call.op.name, call.attrs, [view, np.array(1)], f"{call.name}_along")
        y = ProgramTensor(call.label(0), x.dtype, x.shape)
        self._add("Reshape", call, {}, [made], [y])
        return [y]

    def _sliced(self, call: OperatorCall) -> ProgramOperands | None:
        """A slice whose axes or steps are data: its first indices and steps stay in memory."""
        _, starts, ends, axes, steps = (call.operand(k) for k in range(5))
        if not (depends_on_inputs(axes) or depends_on_inputs(steps)):
            return None
        x = self._operand(call)
        rank = len(x.shape)
        first, step, count = (
            ProgramTensor(f"{call.name}_{part}", _INT64, (rank,)) for part in ("first", "step", "count")
        )
        given = [self._written(call, k, b) for k, b in enumerate((starts, ends, axes, steps))]
        self._add("SliceAxes", call, {"sizes": x.shape}, given, [count, first, step])
        shape = elements(self.sizes.read(count, call.name, [(0, greatest(n)) for n in x.shape]))
        y = ProgramTensor(call.label(0), x.dtype, tuple(shape))
        self._add("Slice", call, {}, [x, first, step], [y])
        return [y]

    def _padded(self, call: OperatorCall) -> ProgramOperands | None:
        """A pad whose axes are data, or whose widths are and may be negative."""
        x, pads, fill, axes = (call.operand(k) for k in range(4))
        if pads is None or not (isinstance(axes, ProgramTensor) or self._may_crop(call, pads)):
            return None
        x = self._operand(call)
        rank = len(x.shape)
        kept, shift, first, dims = (
            ProgramTensor(f"{call.name}_{part}", _INT64, (rank,)) for part in ("kept", "shift", "first", "dims")
        )
        given = [self._written(call, k, b) for k, b in enumerate((pads, axes))]
        self._add("PadAxes", call, {"sizes": x.shape}, given, [dims, kept, shift, first])
        high = (self.sizes.ranges.of(given[0]) if given[0] is not None else None) or (0, LARGEST)
        declared = declared_sizes(call)
        most = [
            greatest(n) + 2 * max(high[1], 0) if says is None else says
            for n, says in zip(x.shape, declared or [None] * rank, strict=True)
        ]
        shape = elements(self.sizes.read(dims, call.name, [(0, n) for n in most]))
        y = ProgramTensor(call.label(0), x.dtype, tuple(shape))
        mode = dict(plain(call.attrs)).get("mode", "constant")
        self._add("Pad", call, {"mode": mode}, [x, kept, shift, first, fill], [y])
        return [y]

    def _may_crop(self, call: OperatorCall, pads: ProgramOperand) -> bool:
        """Whether widths that data says have no bounds, or may be negative."""
        if not isinstance(pads, ProgramTensor):
            return False
        try:
            return any(bounds(n)[0] < 0 for n in elements(self.sizes.as_sizes(pads, call.name, signed=True)))
        except Unbounded:
            return True

    # ---- details ---------------------------------------------------------------------------------------

    def _operand(self, call: OperatorCall) -> ProgramTensor:
        x = call.operand(0)
        assert x is not None
        return in_memory(call, x, self.nodes)

    def _written(self, call: OperatorCall, number: int, x: ProgramOperand | None) -> ProgramOperand | None:
        if isinstance(x, np.ndarray) and is_sizes(x):
            return self.sizes.written(f"{call.name}_sizes_{number}", x)
        return x

    def _add(
        self,
        operator: str,
        call: OperatorCall,
        attributes: dict[str, object],
        inputs: Sequence[ProgramOperand | None],
        outputs: Sequence[ProgramTensor | None],
    ) -> None:
        self.nodes.append(finding_node(operator, call, attributes, inputs, outputs))


def declared_sizes(call: OperatorCall) -> list[int | None] | None:
    """The dimensions that the model declares for the first result; None for each that it leaves open."""
    kind = call.types[0] if call.types else None
    if kind is None or kind.shape is None:
        return None
    return [n if isinstance(n, int) and n >= 0 else None for n in kind.shape]


_RULES: dict[str, Callable[[DataAxes, OperatorCall], ProgramOperands | None]] = {
    **dict.fromkeys(REDUCTIONS, DataAxes._reduced),
    "CumProd": DataAxes._along,
    "CumSum": DataAxes._along,
    "Pad": DataAxes._padded,
    "Slice": DataAxes._sliced,
    "Squeeze": DataAxes._squeezed,
    "Unsqueeze": DataAxes._squeezed,
}
