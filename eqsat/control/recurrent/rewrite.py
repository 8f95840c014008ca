"""A loop whose rounds step recurrent cells, as LSTM, GRU and RNN over the tensors that the rounds read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat.control.body_as_model import body_model
from eqsat.control.recurrent.cells import Cell, CellMismatch, cells
from eqsat.control.recurrent.cells_as_operators import (
    Stacked,
    Stepped,
    from_samples,
    lengths_of,
    moved,
    part,
    step,
    to_samples,
)
from eqsat.control.recurrent.lanes import LaneBlock, Lanes, Row, RowSource, masks, without_mask
from eqsat.control.recurrent.round import Going, Read, Round, RoundValue, Stack
from eqsat.control.recurrent.trips import Position, dimension, outer_number
from eqsat.egraph.alternatives import Alternative, can_be_written
from eqsat.errors import EqsatError
from eqsat.model.builder import constant, graph, op
from eqsat.model.builder import input as make_input
from eqsat.model.expression import Tensor
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key
from eqsat.schema.types import TensorType, type_of
from eqsat.simplify.edit import constant_of, is_read, number_of, through_identities
from eqsat.simplify.loops import axis_is_first, carried_count, first_carried
from eqsat.simplify.site import BodySite

NAME = "recurrent cells"
"""In the place of a rule's name."""
MANY = (1 << 31) - 1
"""From this many rounds on, a limit means no limit."""


def recurrent(node: ir.Node, model: ir.Model) -> Alternative | None:
    """Operators that compute the same as a loop; None if it is not a recurrent network.

    Args:
        node: A Loop or Scan of the model's main graph.
        model: The loaded model; not changed.
    """
    site = BodySite(node, "body", node.attributes["body"].as_graph())
    try:
        body = body_model(site, model).graph
        rewriting = _Rewriting(node, body, {v.name or "": v for v in site.captured})
        outputs = rewriting.outputs()
        if not outputs:
            return None
        made = graph(outputs, inputs=list(rewriting.inputs.values()))
    except (EqsatError, CellMismatch):
        return None
    return Alternative(NAME, made, tuple(outputs), "real") if can_be_written(made) else None


@dataclass
class _Rewriting:
    node: ir.Node
    body: ir.Graph
    captured: dict[str, ir.Value]
    inputs: dict[str, Tensor] = field(default_factory=dict)

    def outputs(self) -> dict[str, Tensor]:
        """By output of the loop that is read, what computes it, as far as that is known."""
        node = self.node
        self.count = carried_count(node)
        self.operand, self.given, self.made = first_carried(node)
        found = self._run()
        rounds = None if found is None else self._rounds(found)
        if found is None or rounds is None:
            return {}
        self.round, self.rounds = found, rounds
        made = {
            f"state{k}": row[0]
            for k in range(self.count)
            if len(row := self._row(self.body.outputs[self.made + k])) == 1 and f"state{k}" in found.lanes.widths
        }
        self.stepped: list[tuple[Cell, Stepped]] = []
        waiting = cells(found.lanes, made)
        while ready := [cell for cell in waiting if all(self._stack(s) is not None for s in cell.sources)]:
            for cell in ready:
                waiting.remove(cell)
                if cell.sources:
                    self.stepped.append((cell, self._step(cell)))
        results = {}
        for k, value in enumerate(node.outputs):
            if is_read(value):
                tensor = self._state(k) if k < self.count else self._rows(k)
                if tensor is not None:
                    results[value.name or ""] = tensor
        return results

    # ---- the round -------------------------------------------------------------------------------------

    def _run(self) -> Round | None:
        """The body executed; counters are guessed and confirmed."""
        steps = {k: 1 for k in range(self.count) if self._initial(k) is not None}
        for _ in range(2 * len(steps) + 1):
            found = Round(Lanes())
            found.run(self.body, self._given(found, steps))
            wrong = []
            for k, times in steps.items():
                before = self._position(k, times)
                after = found.values.get(self.body.outputs[self.made + k])
                if after != before.plus(Position(offset=times)):
                    wrong.append(k)
            if not wrong:
                return found
            for k in wrong:
                if steps[k] == 1:
                    steps[k] = -1
                else:
                    del steps[k]
        return None

    def _initial(self, k: int) -> Position | None:
        kind = type_of(self.body.inputs[self.given + k])
        if kind is None or not kind.dtype.is_integer() or (kind.elements or 2) != 1:
            return None
        return outer_number(self.node.inputs[self.operand + k])

    def _position(self, k: int, times: int) -> Position:
        first = self._initial(k)
        assert first is not None
        return Position(times, first.size, first.offset)

    def _given(self, found: Round, steps: dict[int, int]) -> dict[ir.Value, RoundValue]:
        given: dict[ir.Value, RoundValue] = {}
        for index, value in enumerate(self.body.inputs):
            kind = type_of(value)
            k = index - self.given
            if kind is None or kind.shape is None:
                continue
            if self.node.op_type == "Loop" and index < 2:
                given[value] = Position(1) if index == 0 else Going()
            elif k < self.count:
                if k in steps:
                    given[value] = self._position(k, steps[k])
                elif kind.dtype.is_floating_point() and (lanes := _lanes(kind)):
                    given[value] = found.lanes.given(f"state{k}", lanes)
            elif (outer := self.captured.get(value.name or "")) is not None:
                number = outer_number(outer) if not kind.dtype.is_floating_point() and kind.elements == 1 else None
                given[value] = Stack(value.name or "", kind) if number is None else number
            elif self.node.op_type == "Scan" and (lanes := _lanes(kind)) and kind.dtype.is_floating_point():
                read = self._scanned(k - self.count)
                if read is not None:
                    name = f"scan{k - self.count}"
                    found.reads[name] = read
                    given[value] = found.lanes.given(name, lanes)
        return given

    def _scanned(self, index: int) -> Read | None:
        value = self.node.inputs[self.count + index]
        kind = None if value is None else type_of(value)
        if value is None or kind is None or kind.shape is None:
            return None
        axis = _of(self.node, "scan_input_axes", index) % len(kind.shape)
        if not _of(self.node, "scan_input_directions", index):
            return Read(value.name or "", axis, Position(1))
        size = dimension(kind.shape[axis])
        return None if size is None else Read(value.name or "", axis, Position(-1, size.size, size.offset - 1))

    def _rounds(self, run: Round) -> Position | None:
        """How many rounds the loop makes."""
        node = self.node
        if node.op_type == "Scan":
            value = node.inputs[self.count]
            kind = None if value is None else type_of(value)
            return (
                None if kind is None or kind.shape is None else dimension(kind.shape[_of(node, "scan_input_axes", 0)])
            )
        going = run.values.get(self.body.outputs[0])
        if isinstance(going, np.ndarray) and going.all():
            going = Going()
        if not isinstance(going, Going) or not _surely(node.inputs[1] if len(node.inputs) > 1 else None):
            return None
        limits = list(going.limits)
        if node.inputs[0] is not None:
            most = outer_number(node.inputs[0])
            if most is None:
                return None
            limits.append(most)
        limits = [p for p in dict.fromkeys(limits) if p.size or p.offset < MANY]
        if all(not p.size for p in limits) and limits:
            limits = [min(limits, key=lambda p: p.offset)]
        if len(limits) != 1 or (not limits[0].size and limits[0].offset < 1) or (limits[0].size and limits[0].offset):
            return None
        return limits[0]

    def _row(self, value: ir.Value) -> Row:
        found = self.round.values.get(through_identities(value), self.round.values.get(value))
        return found if isinstance(found, tuple) else ()

    # ---- operators -------------------------------------------------------------------------------------

    def _outer(self, name: str) -> Tensor | None:
        """A value of the graph around the loop."""
        values = [*(v for v in self.node.inputs if v is not None), *self.captured.values()]
        value = next((v for v in values if v.name == name), None)
        kind = None if value is None else type_of(value)
        if value is None or kind is None:
            return None
        array = constant_of(value)
        if array is not None:
            return constant(array)
        if name not in self.inputs:
            self.inputs[name] = make_input(name, kind.shape, kind.dtype.numpy())
        return self.inputs[name]

    def _stack(self, source: RowSource) -> Stacked | None:
        """The rows of all rounds that a row is one of."""
        if not source.name:
            return next((s.rows for cell, s in self.stepped if cell.made.key == source.key and not cell.lengths), None)
        read = self.round.reads.get(source.name)
        if read is None:
            return None
        value = next(v for v in (*self.node.inputs, *self.captured.values()) if v is not None and v.name == read.name)
        kind = type_of(value)
        assert kind is not None and kind.shape is not None
        cut = _cut(read.position, dimension(kind.shape[read.axis]), self.rounds)
        tensor = self._outer(read.name) if cut is not None else None
        if tensor is None or cut is None:
            return None
        if cut.stop is not None:
            tensor = part(tensor, read.axis, cut.start, cut.stop)
        tensor = moved(tensor, len(kind.shape), read.axis, 0)
        lead = [d for k, d in enumerate(kind.shape[:-1]) if k != read.axis]
        return Stacked(to_samples(tensor, lead, 1), cut.backwards)

    def _step(self, cell: Cell) -> Stepped:
        stacks = [stack for s in cell.sources if (stack := self._stack(s)) is not None]
        initial: list[Tensor | None] = []
        for name in cell.states:
            index = self.operand + int(name.removeprefix("state"))
            value = self.node.inputs[index]
            kind = None if value is None else type_of(value)
            if value is None or kind is None or kind.shape is None:
                raise CellMismatch
            tensor = None if _is_zero(value) else self._outer(value.name or "")
            if tensor is not None and cell.lengths:
                raise CellMismatch  # Implementations disagree about the last state of a sample without a round.
            initial.append(None if tensor is None else to_samples(tensor, kind.shape[:-1], 0))
        lengths = None
        if cell.lengths:
            given = self._outer(cell.lengths)
            if given is None:
                raise CellMismatch
            lengths = lengths_of(given, stacks[0].tensor)
        kind = type_of(self.body.inputs[self.given + int(cell.states[0].removeprefix("state"))])
        assert kind is not None
        return step(cell, stacks, initial, lengths, kind.dtype.numpy())

    # ---- results ---------------------------------------------------------------------------------------

    def _state(self, k: int) -> Tensor | None:
        """The last value of a carried one."""
        kind = type_of(self.body.outputs[self.made + k])
        row = self._row(self.body.outputs[self.made + k])
        if kind is None or kind.shape is None:
            return None
        for cell, stepped in self.stepped:
            for name, last in zip(cell.states, stepped.last, strict=True):
                same = name == cell.states[0] and len(row) == 1 and self._is_row_of(row[0], cell, held=True)
                if name == f"state{k}" or same:
                    return from_samples(last, kind.shape[:-1], 0)
        return None

    def _is_row_of(self, block: LaneBlock, cell: Cell, *, held: bool = False) -> bool:
        """Whether a block is the cell's state, or zero for samples that have ended."""
        if not cell.lengths:
            return block.key == cell.made.key
        if held or masks(block) != {cell.lengths}:
            return False
        active, ended = without_mask(block, cell.lengths)
        return active.key == cell.made.key and ended.is_constant and not ended.constant.any()

    def _rows(self, k: int) -> Tensor | None:
        """The rows that the rounds collect."""
        value = self.body.outputs[self.made + k]
        kind, row = type_of(value), self._row(value)
        if kind is None or kind.shape is None or len(row) != 1:
            return None
        for cell, stepped in self.stepped:
            rows = stepped.rows
            if not self._is_row_of(row[0], cell):
                weights = row[0].linear.get(RowSource(key=cell.made.key))
                if weights is None or cell.lengths or len(row[0].linear) > 1 or row[0].lanes:
                    continue
                dtype = kind.dtype.numpy()
                product = op.MatMul(rows.tensor, weights.astype(dtype))
                rows = Stacked(op.Add(product, row[0].constant.astype(dtype)), rows.backwards)
            rank = len(kind.shape) + 1
            backwards = bool(_of(self.node, "scan_output_directions", k - self.count))
            tensor = from_samples(rows.in_order(backwards), kind.shape[:-1], 1)
            return moved(tensor, rank, 0, _of(self.node, "scan_output_axes", k - self.count) % rank)
        return None


@dataclass(frozen=True, slots=True)
class _Cut:
    """The rows of a sequence that rounds read: all of them if ``stop`` is None."""

    backwards: bool
    start: int = 0
    stop: int | None = None


def _cut(position: Position, size: Position | None, rounds: Position) -> _Cut | None:
    if position.times == 1:
        if position == Position(1) and size == rounds:
            return _Cut(False)
        stop = position.offset + rounds.offset
        if position.size or rounds.size or position.offset < 0 or not _contains(size, stop):
            return None
        return _Cut(False, position.offset, stop)
    if position.times != -1:
        return None
    first = Position(0, position.size, position.offset + 1)
    if first == rounds and size == rounds:
        return _Cut(True)
    if first.size or rounds.size or first.offset < rounds.offset or not _contains(size, first.offset):
        return None
    return _Cut(True, first.offset - rounds.offset, first.offset)


def _contains(size: Position | None, stop: int) -> bool:
    """Whether a sequence certainly has this many rows; a loop that reads past its end fails."""
    return size is not None and not size.size and stop <= size.offset


def _lanes(kind: TensorType) -> int:
    """The lanes of a batch of rows; 0 if the tensor is not one."""
    *lead, lanes = kind.shape or (None,)
    return lanes if isinstance(lanes, int) and sum(d != 1 for d in lead) <= 1 else 0


def _is_zero(value: ir.Value) -> bool:
    """Whether a tensor is zero everywhere."""
    array = constant_of(value)
    if array is not None:
        return not array.any()
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type == "ConstantOfShape":
        return "value" not in node.attributes or not node.attributes["value"].as_tensor().numpy().any()
    if has(op_key(node), Trait.REARRANGES) or node.op_type in ("Expand", "Tile"):
        return node.inputs[0] is not None and _is_zero(node.inputs[0])
    return False


def _surely(value: ir.Value | None) -> bool:
    """Whether a condition is true at first: it is absent, true, or compares zero with a size."""
    if value is None:
        return True
    array = number_of(value)
    if array is not None:
        return bool(array.all())
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type == "And" or has(op_key(node), Trait.REARRANGES):
        return all(_surely(v) for v in (node.inputs if node.op_type == "And" else node.inputs[:1]))
    if node.op_type in ("Less", "Greater"):
        one, other = (outer_number(v) for v in node.inputs)
        if node.op_type == "Greater":
            one, other = other, one
        if one is None or other is None or one.size:
            return False
        return one.offset < other.offset + (1 if other.size else 0)
    return False


def _of(node: ir.Node, name: str, index: int) -> int:
    values = node.attributes.get(name)
    return 0 if values is None or axis_is_first(values) else values.as_ints()[index]
