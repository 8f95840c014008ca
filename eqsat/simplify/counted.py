"""Loops that end by counting are told how many rounds they make.

A TensorFlow ``while i < n`` becomes a Loop without a number of rounds whose body compares a counter. Where the number
stands at its inputs, sizes of what the loop stacks are known, it may be unrolled, and generated C can hold its results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.simplify.edit import Editor, constant_of, through_identities

_NUMBERS = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""Types that hold each count: float32 does up to 2^24, more rounds than any execution is allowed."""


@dataclass(frozen=True, slots=True)
class _Count:
    """What a condition compares: ``start + step * rounds``.

    Attributes:
        start: The value before the first round, besides an offset; None for 0.
        offset: Added to it in each comparison.
        step: Added in each round.
    """

    start: ir.Value | None
    offset: int
    step: int


def count_rounds(node: ir.Node, editor: Editor) -> bool:
    """Gives a Loop that goes on while a counter is below a number the rounds that it makes at most.

    Args:
        node: A loop; changed in place.
        editor: Of its graph.
    """
    body = node.attributes["body"].as_graph()
    if node.op_type != "Loop" or len(node.inputs) < 2 or len(body.inputs) < 2:
        return False
    last = through_identities(body.outputs[0]).producer()
    if last is None or last.domain or last.op_type not in ("Less", "Greater") or last.graph is not body:
        return False
    low, high = last.inputs if last.op_type == "Less" else reversed(last.inputs)
    if low is None or high is None:
        return False
    count, end = _counter(node, body, _uncast(low)), _outside(node, body, _uncast(high))
    if count is None or end is None or end.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return False
    begins = _begins_alike(node.inputs[1], count, end)
    rounds = _rounds(node, editor, count, end, least=0 if begins else 1)
    if begins:
        node.replace_input_with(1, None)
    given = node.inputs[0]
    node.replace_input_with(0, rounds if given is None else editor.insert(node, "Min", [given, rounds], "rounds"))
    bridge = ir.Node("", "Identity", [body.inputs[1]])
    bridge.outputs[0].name = editor.name(body.outputs[0].name)
    bridge.outputs[0].type, bridge.outputs[0].shape = body.inputs[1].type, body.inputs[1].shape
    body.append(bridge)
    body.outputs[0] = bridge.outputs[0]
    return True


def _begins_alike(condition: ir.Value | None, count: _Count, end: ir.Value) -> bool:
    """Whether the first round is made if its counter is below the same number: the condition of a ``while``."""
    node = None if condition is None else through_identities(condition).producer()
    if count.offset != count.step or node is None or node.domain or node.op_type not in ("Less", "Greater"):
        return False
    low, high = node.inputs if node.op_type == "Less" else reversed(node.inputs)
    if low is None or high is None or _uncast(high) is not _uncast(end):
        return False
    low = _uncast(low)
    if count.start is not None and low is through_identities(count.start):
        return True
    first, start = constant_of(low), constant_of(count.start) if count.start is not None else np.array(0)
    return first is not None and start is not None and first.size == 1 and bool(first.reshape(-1)[0] == start.item())


def _rounds(node: ir.Node, editor: Editor, count: _Count, end: ir.Value, least: int) -> ir.Value:
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
    left = step("Cast", end, to=wide)
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
    """What an Add of an integer constant adds to, and the constant."""
    value = through_identities(value)
    node = value.producer()
    if node is None or node.op_type != "Add" or node.domain:
        return None
    for one, other in (node.inputs, reversed(node.inputs)):
        number = constant_of(other)
        if one is not None and number is not None and number.size == 1 and number.dtype.kind == "i":
            return through_identities(one), int(number.reshape(-1)[0])
    return None


def _outside(node: ir.Node, body: ir.Graph, value: ir.Value) -> ir.Value | None:
    """The value outside of a loop that one inside always equals."""
    if value in body.inputs:
        k = body.inputs.index(value)
        is_kept = 2 <= k < len(node.inputs) and through_identities(body.outputs[k - 1]) is value
        outer = node.inputs[k] if is_kept else None
    else:
        producer = value.producer()
        is_inner = value.name in body.initializers or (producer is not None and producer.graph is body)
        outer = None if is_inner else value
    return outer if _is_one(outer) else None


def _is_one(value: ir.Value | None) -> bool:
    """Whether a value is a scalar."""
    return value is not None and value.shape is not None and value.shape.rank() == 0


def _uncast(value: ir.Value) -> ir.Value:
    """The number behind casts that keep it."""
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
