"""Executes the body of a loop symbolically, on rows of lanes.

It supports the operators that exporters use in the rounds of recurrent networks; a body with any other stays a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat.control.recurrent.lanes import Lanes, Row, constant_row, mask_row, width
from eqsat.control.recurrent.trips import Position
from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.families.recurrent import WITHOUT_PARAMETERS
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import array_of, attr, op_key, to_attrs
from eqsat.schema.types import Attrs, OpKey, TensorType, type_of
from eqsat.simplify.edit import constant_of

MOST_CONSTANT = 1 << 24
"""Elements of a constant expression that is computed."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A tensor of all rounds.

    Attributes:
        name: Of the value outside.
        type: Its type.
    """

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Read:
    """A row that a round reads of a sequence.

    Attributes:
        name: Name of the outer value.
        axis: The axis of the rounds.
        position: Position of the row.
    """

    name: str
    axis: int
    position: Position


@dataclass(frozen=True, slots=True)
class Active:
    """Whether a sample takes part in the round: its length is greater than the round's number."""

    lengths: str
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Going:
    """When the loop continues: always, or while the round's number is less than some limits."""

    limits: tuple[Position, ...] = ()


RoundValue = np.ndarray | Row | Position | Stack | Active | Going
"""The known facts about a value of the body."""


class NoRoundForm(Exception):
    """A value does not have such a form."""


_TO_THE_END = 10**9
"""Ends of a Slice from here on keep all rows."""
_SAME_ROWS = frozenset({"Identity", "Reshape", "Flatten", "Expand"})


@dataclass
class Round:
    """One execution of a body.

    Attributes:
        lanes: Arithmetic on all rows.
        reads: The source of each row by name.
        values: Known values.
    """

    lanes: Lanes = field(default_factory=Lanes)
    reads: dict[str, Read] = field(default_factory=dict)
    values: dict[ir.Value, RoundValue] = field(default_factory=dict)

    def run(self, graph: ir.Graph, given: Mapping[ir.Value, RoundValue]) -> None:
        """Executes all nodes; values of another form stay unknown."""
        self.values = dict(given)
        for value in graph.initializers.values():
            if value.const_value is not None and value not in self.values:
                self.values[value] = array_of(value.const_value)
        for node in graph:
            try:
                found = self._node(node)
            except (NoRoundForm, ValueError, IndexError, EqsatError):
                continue
            for value, known in zip(node.outputs, found, strict=False):
                self.values[value] = known

    def row(self, value: ir.Value) -> Row:
        """A value as a row.

        Raises:
            NoRoundForm: It is not a row.
        """
        found = self.values.get(value)
        if isinstance(found, tuple):
            return found
        raise NoRoundForm

    # ---- operators -------------------------------------------------------------------------------------

    def _node(self, node: ir.Node) -> Sequence[RoundValue]:
        op, attrs = op_key(node), to_attrs(node)
        if op.domain:
            raise NoRoundForm
        inputs = [None if v is None else self._known(v) for v in node.inputs]
        if all(x is None or isinstance(x, np.ndarray) for x in inputs):
            kind = type_of(node.outputs[0])
            if kind is None or (kind.elements or MOST_CONSTANT + 1) > MOST_CONSTANT:
                raise NoRoundForm
            arrays = [x if isinstance(x, np.ndarray) else None for x in inputs]
            return [x for x in evaluate(op, attrs, arrays, len(node.outputs)) if x is not None]
        first = next(x for x in inputs if x is not None and not isinstance(x, np.ndarray))
        if any(isinstance(x, Active) for x in inputs):
            return [self._masked(op.name, node, inputs)]
        if any(isinstance(x, Going) for x in inputs):
            return [_going(op.name, inputs)]
        if any(isinstance(x, Stack) for x in inputs):
            return [self._of_sequence(op.name, node, attrs, inputs)]
        if isinstance(first, Position):
            return [_number(op.name, node, inputs)]
        return self._of_rows(op.name, node, attrs, inputs)

    def _known(self, value: ir.Value) -> RoundValue:
        array = constant_of(value)
        if array is not None:
            return array
        if value not in self.values:
            raise NoRoundForm
        return self.values[value]

    def _of_sequence(self, op: str, node: ir.Node, attrs: Attrs, inputs: Sequence[RoundValue | None]) -> RoundValue:
        """A row that is read, or whether a sample is active."""
        source, at = inputs[0], inputs[1] if len(inputs) > 1 else None
        if has(OpKey("", op), Trait.REARRANGES) and op != "Transpose" and isinstance(source, Stack):
            if source.type.dtype.is_floating_point() and op != "Identity":
                raise NoRoundForm
            return source
        if op in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual") and isinstance(at, Stack | Position):
            return _active(op, source, at)
        if op not in ("Gather", "Slice") or not isinstance(source, Stack) or not isinstance(at, Position):
            raise NoRoundForm
        shape = source.type.shape
        assert shape is not None
        axis = attr(attrs, "axis", 0)
        if op == "Slice":
            end, axes = inputs[2], inputs[3] if len(inputs) > 3 else None
            steps = inputs[4] if len(inputs) > 4 else None
            whole = axes is None and len(shape) > 1
            if not isinstance(end, Position) or whole or end.minus(at) != Position(offset=1):
                raise NoRoundForm
            if steps is not None and not (isinstance(steps, np.ndarray) and steps.reshape(-1)[0] == 1):
                raise NoRoundForm
            axis = int(axes.reshape(-1)[0]) if isinstance(axes, np.ndarray) else 0
        axis += len(shape) if axis < 0 else 0
        if axis == len(shape) - 1 or len(shape) < 2:
            raise NoRoundForm
        read = Read(source.name, axis, at)
        name = f"{read.name} {read.axis} {read.position}"
        self.reads[name] = read
        row = tuple(d for k, d in enumerate(shape) if k != axis)
        return self.lanes.given(name, _lanes(TensorType(source.type.dtype, row)))

    def _masked(self, op: str, node: ir.Node, inputs: Sequence[RoundValue | None]) -> RoundValue:
        known, of = inputs[0], type_of(node.inputs[0]) if node.inputs[0] is not None else None
        by_sample = of is not None and bool(of.shape) and of.shape[-1] == 1
        if op in ("Expand", "Cast", "Where") and not by_sample and of != type_of(node.outputs[0]):
            shape = None if (made := type_of(node.outputs[0])) is None else made.shape
            if op != "Where" or of is None or of.shape != shape:
                raise NoRoundForm  # Lanes would be masked, and not samples.
        if op in ("Identity", "Unsqueeze", "Reshape", "Expand") and isinstance(known, Active):
            return known
        if op == "Not" and isinstance(known, Active):
            return Active(known.lengths, not known.holds)
        if op == "Cast" and isinstance(known, Active):
            return self._mask(known, 1)
        if op == "Where" and isinstance(known, Active):
            lanes = _lanes(_type(node.outputs[0]))
            one, other = (self._as_row(x, lanes) for x in inputs[1:3])
            mask = self._mask(known, lanes)
            # other + mask * (one - other)
            change = self.lanes.add(one, self.lanes.scale(other, -1.0))
            return self.lanes.add(other, self.lanes.multiply(mask, change))
        raise NoRoundForm

    def _mask(self, active: Active, lanes: int) -> Row:
        mask = mask_row(active.lengths, lanes)
        if active.holds:
            return mask
        return self.lanes.add(constant_row(np.ones(lanes)), self.lanes.scale(mask, -1.0))

    def _of_rows(
        self, op: str, node: ir.Node, attrs: Attrs, inputs: Sequence[RoundValue | None]
    ) -> Sequence[RoundValue]:
        lanes = self.lanes
        first = inputs[0]
        if op in ("Squeeze", "Unsqueeze") and isinstance(first, tuple):
            self._keeps_lanes(node, inputs[1] if len(inputs) > 1 else None)
            return [first]
        if op in ("Concat", "Split", "Slice"):
            return self._moved(op, node, attrs, inputs)
        kind = _type(node.outputs[0])
        count = _lanes(kind)
        if op.lower() in WITHOUT_PARAMETERS:
            return [lanes.activate(self._as_row(first, count), op)]
        if op == "HardSigmoid":
            slope, shift = attr(attrs, "alpha", 0.2), attr(attrs, "beta", 0.5)
            row = lanes.add(lanes.scale(self._as_row(first, count), slope), constant_row(np.full(count, shift)))
            return [lanes.activate(row, "HardSigmoid")]
        if op == "Clip":
            limits = [x.reshape(-1).tolist() if isinstance(x, np.ndarray) else None for x in inputs[1:3]]
            if limits != [[0.0], [1.0]]:
                raise NoRoundForm
            return [lanes.activate(self._as_row(first, count), "HardSigmoid")]
        if op in ("Add", "Sub", "Mul", "Sum"):
            rows = [self._as_row(x, count) for x in inputs]
            total = rows[0]
            for row in rows[1:]:
                if op == "Mul":
                    total = lanes.multiply(total, row)
                else:
                    total = lanes.add(total, lanes.scale(row, -1.0) if op == "Sub" else row)
            return [total]
        if op == "Div" and isinstance(inputs[1], np.ndarray):
            return [lanes.multiply(self._as_row(first, count), self._as_row(1.0 / inputs[1], count))]
        if op == "Neg":
            return [lanes.scale(self._as_row(first, count), -1.0)]
        if op == "Cast" and type_of(node.inputs[0]) == kind:  # pyright: ignore[reportArgumentType]
            return [self._as_row(first, count)]
        if op in _SAME_ROWS and isinstance(first, tuple) and width(first) == count:
            return [first]
        if op == "MatMul" and isinstance(first, tuple) and isinstance(inputs[1], np.ndarray) and inputs[1].ndim == 2:
            return [lanes.matmul(first, np.asarray(inputs[1], np.float64))]
        if op == "Gemm":
            return [self._gemm(attrs, inputs, count)]
        raise NoRoundForm

    @staticmethod
    def _keeps_lanes(node: ir.Node, axes: RoundValue | None) -> None:
        """Raises NoRoundForm if an axis after the lanes is added, or the lanes are removed."""
        source = node.inputs[0]
        rank = None if source is None or source.shape is None else len(source.shape)
        if rank is None or not isinstance(axes, np.ndarray):
            raise NoRoundForm
        made = rank + axes.size if node.op_type == "Unsqueeze" else rank
        if any(int(axis) % made == made - 1 for axis in axes.reshape(-1)):
            raise NoRoundForm

    def _gemm(self, attrs: Attrs, inputs: Sequence[RoundValue | None], count: int) -> Row:
        first, weights = inputs[:2]
        if attr(attrs, "transA", 0) or not isinstance(first, tuple) or not isinstance(weights, np.ndarray):
            raise NoRoundForm
        weights = np.asarray(weights.T if attr(attrs, "transB", 0) else weights, np.float64)
        row = self.lanes.matmul(first, weights * attr(attrs, "alpha", 1.0))
        if len(inputs) < 3 or inputs[2] is None:
            return row
        return self.lanes.add(row, self.lanes.scale(self._as_row(inputs[2], count), attr(attrs, "beta", 1.0)))

    def _moved(self, op: str, node: ir.Node, attrs: Attrs, inputs: Sequence[RoundValue | None]) -> Sequence[RoundValue]:
        """Lanes that are joined or taken apart."""
        kind, first = _type(node.outputs[0]), inputs[0]
        rank = len(kind.shape or ())
        axis = attr(attrs, "axis", 0)
        if op == "Concat" and axis % rank == rank - 1:
            if not all(isinstance(x, tuple) for x in inputs):
                raise NoRoundForm
            return [self.lanes.concat([x for x in inputs if isinstance(x, tuple)])]
        if not isinstance(first, tuple):
            raise NoRoundForm
        if op == "Split" and axis % rank == rank - 1:
            widths = [_lanes(_type(v)) for v in node.outputs]
            ends = np.cumsum(widths).tolist()
            return [self.lanes.cut(first, end - n, end) for end, n in zip(ends, widths, strict=True)]
        lanes = np.arange(width(first))
        if op == "Slice" and all(x is None or isinstance(x, np.ndarray) for x in inputs[1:]):
            numbers = [None if x is None else np.asarray(x).reshape(-1).tolist() for x in inputs[1:]]
            starts, ends = numbers[:2]
            axes = numbers[2] if len(numbers) > 2 and numbers[2] is not None else list(range(len(starts or ())))
            steps = numbers[3] if len(numbers) > 3 and numbers[3] is not None else [1] * len(axes)
            if starts is None or ends is None or any(step != 1 for step in steps):
                raise NoRoundForm
            of_axis = dict(zip((a % rank for a in axes), zip(starts, ends, strict=True), strict=True))
            of_lanes = of_axis.pop(rank - 1, None)
            if of_lanes is None or any(start != 0 or end < _TO_THE_END for start, end in of_axis.values()):
                raise NoRoundForm
            chosen = lanes[slice(*of_lanes)]
            return [self.lanes.cut(first, int(chosen[0]), int(chosen[-1]) + 1)]
        raise NoRoundForm

    def _as_row(self, known: RoundValue | None, lanes: int) -> Row:
        if isinstance(known, tuple):
            return known
        if not isinstance(known, np.ndarray) or known.dtype.kind != "f" or known.size not in (1, *known.shape[-1:]):
            raise NoRoundForm
        flat = known.reshape(-1)
        return constant_row(np.broadcast_to(flat, (lanes,)) if flat.size == 1 else flat)


def _type(value: ir.Value) -> TensorType:
    found = type_of(value)
    if found is None or found.shape is None:
        raise NoRoundForm
    return found


def _lanes(kind: TensorType | None) -> int:
    """The lanes of a batch of rows: at most one of its other dimensions may differ from 1."""
    if kind is None or not kind.shape or not isinstance(kind.shape[-1], int):
        raise NoRoundForm
    if not kind.dtype.is_floating_point() or sum(d != 1 for d in kind.shape[:-1]) > 1:
        raise NoRoundForm
    return kind.shape[-1]


def _position(known: RoundValue | None) -> Position | None:
    if isinstance(known, np.ndarray) and known.size == 1 and known.dtype.kind in "iu":
        return Position(offset=int(known.reshape(-1)[0]))
    return known if isinstance(known, Position) else None


def _number(op: str, node: ir.Node, inputs: Sequence[RoundValue | None]) -> RoundValue:
    numbers = [_position(x) for x in inputs]
    one, other = numbers[0], numbers[1] if len(numbers) > 1 else None
    if has(OpKey("", op), Trait.REARRANGES) and one is not None:
        return one
    found = None
    if one is not None and other is not None:
        if op in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
            if op.startswith("Greater"):
                one, other = other, one
            limit = other.plus(Position(offset=1)) if op.endswith("OrEqual") else other
            if limit is None or not limit.is_fixed or one.times != 1 or one.size:
                raise NoRoundForm
            # The condition is asked after a round: the next one is made if round + offset < limit.
            return Going((Position(size=limit.size, offset=limit.offset - one.offset + 1),))
        found = one.plus(other) if op == "Add" else one.minus(other) if op == "Sub" else None
    if found is None:
        raise NoRoundForm
    return found


def _going(op: str, inputs: Sequence[RoundValue | None]) -> RoundValue:
    limits: list[Position] = []
    for known in inputs:
        if isinstance(known, Going):
            limits += known.limits
        elif not (isinstance(known, np.ndarray) and known.dtype == bool and known.all()):
            raise NoRoundForm
    if op == "And" or has(OpKey("", op), Trait.REARRANGES):
        return Going(tuple(dict.fromkeys(limits)))
    raise NoRoundForm


def _active(op: str, one: RoundValue | None, other: RoundValue | None) -> RoundValue:
    """A comparison of the round's number with the lengths of samples."""
    if isinstance(one, Stack):
        one, other = other, one
        op = op.replace("Less", "?").replace("Greater", "Less").replace("?", "Greater")
    if not isinstance(other, Stack) or other.type.dtype.is_floating_point() or one != Position(1):
        raise NoRoundForm
    if op in ("Less", "GreaterOrEqual"):
        return Active(other.name, op == "Less")
    raise NoRoundForm
