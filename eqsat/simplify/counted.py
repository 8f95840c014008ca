"""Gives loops that end by counting an explicit number of rounds.

A TensorFlow ``while i < n`` becomes a Loop without a number of rounds whose body compares a counter. With the number as
an input, the sizes of stacked results are known, the loop may be unrolled, and generated C can hold its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.simplify.edit import Editor, constant_of, number_of, through_identities

_NUMBERS = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""Types that hold each count: float32 does up to 2^24, more rounds than any execution is allowed."""
_MOST_ROUNDS = 2**31
"""A number of rounds that no execution reaches."""


@dataclass(frozen=True, slots=True)
class _Count:
    """A value that a condition compares: ``start + step * rounds``.

    Attributes:
        start: The value before the first round, besides an offset; None for 0.
        offset: Added to it in each comparison.
        step: Added in each round.
    """

    start: ir.Value | None
    offset: int
    step: int


_End = ir.Value | int
"""The limit of a counter: a value outside of the loop, or a number."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """``low < high``, without casts that do not change the comparison."""

    low: ir.Value
    high: ir.Value


def count_rounds(node: ir.Node, editor: Editor) -> bool:
    """Gives a Loop that continues while counters are below numbers its greatest number of rounds.

    Args:
        node: A loop; changed in place.
        editor: Of its graph.
    """
    body = node.attributes["body"].as_graph()
    if node.op_type != "Loop" or len(node.inputs) < 2 or len(body.inputs) < 2:
        return False
    comparisons = _comparisons(body.outputs[0], body)
    if not comparisons:
        return False
    counted: list[tuple[_Count, _End]] = []
    for each in comparisons:
        count, end = _counter(node, body, each.low), _outside(node, body, each.high)
        if count is None or end is None:
            return False
        counted.append((count, end))
    counted = _decisive(counted)
    firsts = [] if node.inputs[1] is None else _comparisons(node.inputs[1], None)
    by_counter = [[_alike(first, *c) for first in firsts] for c in counted]
    begins = all(map(any, by_counter)) and all(any(row[k] for row in by_counter) for k in range(len(firsts)))
    given = [] if node.inputs[0] is None else [node.inputs[0]]
    rounds = [_rounds(node, editor, count, end, least=0 if begins else 1) for count, end in counted]
    first = number_of(node.inputs[1])
    if begins or (first is not None and first.all()):
        node.replace_input_with(1, None)
    limits = [*given, *rounds]
    limit = limits[0] if len(limits) == 1 else editor.insert(node, "Min", limits, "rounds")
    known = number_of(limit)
    if known is not None:
        assert isinstance(node.graph, ir.Graph)
        limit = editor.constant(node.graph, "rounds", known.astype(np.int64).reshape(()))
    node.replace_input_with(0, limit)
    bridge = ir.Node("", "Identity", [body.inputs[1]])
    bridge.outputs[0].name = editor.name(body.outputs[0].name)
    bridge.outputs[0].type, bridge.outputs[0].shape = body.inputs[1].type, body.inputs[1].shape
    body.append(bridge)
    body.outputs[0] = bridge.outputs[0]
    return True


def _comparisons(condition: ir.Value, body: ir.Graph | None) -> list[_Comparison]:
    """The comparisons that must all be true for a condition; empty if it is not made of comparisons in the body."""
    node = through_identities(condition).producer()
    if node is None or node.domain or (body is not None and node.graph is not body) or None in node.inputs:
        return []
    left, right = node.inputs[0], node.inputs[-1]
    assert left is not None and right is not None
    if node.op_type == "And":
        parts = [_comparisons(part, body) for part in (left, right)]
        return [*parts[0], *parts[1]] if all(parts) else []
    if node.op_type not in ("Less", "Greater"):
        return []
    low, high = (left, right) if node.op_type == "Less" else (right, left)
    return [_Comparison(_uncast(low), _uncast(high))]


def _decisive(counted: Sequence[tuple[_Count, _End]]) -> list[tuple[_Count, _End]]:
    """The counters without those that cannot be the first to reach their end.

    TensorFlow compares the number of a round with the same end as the next position in a sequence.
    """
    kept: list[tuple[_Count, _End]] = []
    for count, end in sorted(counted, key=lambda pair: -pair[0].offset):
        same_end = [c for c, other in kept if (end is other if isinstance(end, ir.Value) else end == other)]
        if not any(c.step == count.step and _begin_alike(c, count) for c in same_end):
            kept.append((count, end))
    return kept


def _begin_alike(one: _Count, other: _Count) -> bool:
    if one.start is not None and other.start is not None and one.start is other.start:
        return True
    first, second = (np.array(0) if c.start is None else number_of(c.start) for c in (one, other))
    return first is not None and second is not None and bool(first.item() == second.item())


def _alike(first: _Comparison, count: _Count, end: _End) -> bool:
    """Whether the first round is made if its counter is below the same number: the condition of a ``while``."""
    same_end = first.high is end if isinstance(end, ir.Value) else _whole(number_of(first.high)) == end
    if count.offset != count.step or not same_end:
        return False
    if count.start is not None and first.low is through_identities(count.start):
        return True
    begin, start = number_of(first.low), number_of(count.start) if count.start is not None else np.array(0)
    return begin is not None and start is not None and bool(begin.item() == start.item())


def _whole(number: np.ndarray | None) -> int | None:
    """The least whole number that is not below a constant: a counter is below both or below neither."""
    if number is None or number.size != 1 or number.dtype.kind not in "if" or not (np.abs(number) < _MOST_ROUNDS).all():
        return None
    return math.ceil(number.item())


def _rounds(node: ir.Node, editor: Editor, count: _Count, end: _End, least: int) -> ir.Value:
    """How many rounds are made: ``max(least, ceil((end - start - offset) / step) + 1)``.

    The first is made without being counted, so that ``least`` is 1 unless its own condition counts alike.
    """
    graph = node.graph
    assert isinstance(graph, ir.Graph)

    def number(n: int) -> ir.Value:
        return editor.constant(graph, "count", np.array(n, np.int64))

    def step(op: str, *operands: ir.Value, **attrs: int) -> ir.Value:
        return editor.insert(node, op, operands, "rounds", **attrs)

    wide = int(ir.DataType.INT64)
    left = number(end) if isinstance(end, int) else step("Cast", end, to=wide)
    if count.start is not None:
        left = step("Sub", left, step("Cast", count.start, to=wide))
    # The one is added before the division, which rounds towards zero: nothing below the least number becomes more.
    left = step("Add", left, number(2 * count.step - 1 - count.offset))
    if count.step != 1:
        left = step("Div", left, number(count.step))
    return step("Max", left, number(least))


def _counter(node: ir.Node, body: ir.Graph, value: ir.Value) -> _Count | None:
    """A value that grows by the same number in each round."""
    offset = 0
    while (added := _increment(value)) is not None:
        value, more = added
        offset += more
    if value is body.inputs[0]:
        return _Count(None, offset, 1)
    if value not in body.inputs:
        return None
    k = body.inputs.index(value)
    start = node.inputs[k] if 2 <= k < len(node.inputs) else None
    update = _increment(through_identities(body.outputs[k - 1])) if start is not None else None
    if update is None or update[0] is not value or update[1] < 1:
        return None
    return _Count(start, offset, update[1]) if _is_one(start) else None


def _increment(value: ir.Value) -> tuple[ir.Value, int] | None:
    """The operand to which an Add adds an integer constant, and the constant."""
    value = through_identities(value)
    node = value.producer()
    if node is None or node.op_type != "Add" or node.domain:
        return None
    for one, other in (node.inputs, reversed(node.inputs)):
        number = constant_of(other)
        if one is not None and number is not None and number.size == 1 and number.dtype.kind == "i":
            return through_identities(one), int(number.reshape(-1)[0])
    return None


def _outside(node: ir.Node, body: ir.Graph, value: ir.Value) -> _End | None:
    """The value outside of a loop that one inside always equals, or the number that it is."""
    number = _whole(number_of(value))
    if number is not None:
        return number
    outer: ir.Value | None = value
    if value in body.inputs:
        k = body.inputs.index(value)
        is_kept = 2 <= k < len(node.inputs) and through_identities(body.outputs[k - 1]) is value
        outer = _uncast(kept) if is_kept and (kept := node.inputs[k]) is not None else None
        number = _whole(number_of(outer))
    elif (producer := value.producer()) is not None and producer.graph is body:
        outer = None
    if number is not None:
        return number
    is_counted = outer is not None and outer.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    return outer if is_counted and _is_one(outer) else None


def _is_one(value: ir.Value | None) -> bool:
    """Whether a value is a scalar."""
    return value is not None and value.shape is not None and value.shape.rank() == 0


def _uncast(value: ir.Value) -> ir.Value:
    """The number before casts that keep it."""
    value = through_identities(value)
    while (node := value.producer()) is not None and node.op_type == "Cast" and not node.domain:
        source = node.inputs[0]
        before, after = (None, None) if source is None else (source.dtype, value.dtype)
        if source is None or before is None or after is None or not {before, after} <= _NUMBERS:
            break
        if before.is_floating_point() and not after.is_floating_point():
            break
        value = through_identities(source)
    return value
