"""Loops as their bodies, as often as they make rounds."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.simplify.edit import Editor, is_read
from eqsat.simplify.loops import axis_is_first, carried_count, runs
from eqsat.simplify.site import sites

MOST_OPERATORS = 512
"""Most operators of all rounds of a loop that is unrolled: the e-graph contains each of them."""
MOST_BODIES = 16
"""Bodies of control flow in all rounds together; each is searched by itself."""
MOST_JOINED = 32
"""Rows of a stack that one operator joins."""


def copies(node: ir.Node) -> int | None:
    """The number of times the body of a loop runs; None if it is unknown, or too large for copies."""
    rounds = runs(node)
    body = node.attributes["body"].as_graph()
    size = sum(1 for _ in ir.traversal.RecursiveGraphIterator(body))
    inner = sum(1 for _ in sites(body))
    if rounds is None or rounds * max(size, 1) > MOST_OPERATORS or rounds * inner > MOST_BODIES:
        return None
    return rounds


def unroll(node: ir.Node, editor: Editor, rounds: int) -> bool:
    """Puts as many copies of its body in the place of a loop as it makes rounds.

    Args:
        node: A Loop or Scan; removed if it is unrolled.
        editor: Of the graph.
        rounds: How many it makes.

    Returns:
        Whether it is unrolled: not if a state is missing.
    """
    graph = node.graph
    body = node.attributes["body"].as_graph()
    count = carried_count(node)
    is_loop = node.op_type == "Loop"
    first = 2 if is_loop else 0
    state = list(node.inputs[first : first + count])
    if None in state:
        return False
    stacks: list[list[ir.Value]] = [[] for _ in body.outputs[count + (1 if is_loop else 0) :]]
    assert isinstance(graph, ir.Graph)
    go = editor.constant(graph, "go", np.array(True)) if is_loop else None
    for k in range(rounds):
        given = [v for v in state if v is not None]
        if is_loop:
            assert go is not None
            given = [editor.constant(graph, "round", np.array(k, np.int64)), go, *given]
        else:
            given += [_slice(node, editor, j, k, rounds) for j in range(len(node.inputs) - count)]
        made = editor.copy_in(body, node, dict(zip(body.inputs, given, strict=True)))
        made = made[1:] if is_loop else made
        state = made[:count]
        for rows, value in zip(stacks, made[count:], strict=True):
            rows.append(value)
    read = [j for j, v in enumerate(node.outputs[count:]) if is_read(v)]
    results = [*state, *(_stack(node, editor, j, stacks[j]) for j in read)]
    read = [*node.outputs[:count], *(node.outputs[count + j] for j in read)]
    for value, result in zip(read, results, strict=True):
        assert result is not None
        editor.replace(value, result, node)
    graph.remove(node, safe=True)
    return True


def _slice(node: ir.Node, editor: Editor, index: int, k: int, rounds: int) -> ir.Value:
    """The slice of an input that a Scan reads in one step."""
    axis = _of(node, "scan_input_axes", index)
    at = rounds - 1 - k if _of(node, "scan_input_directions", index) else k
    value = node.inputs[carried_count(node) + index]
    graph = node.graph
    assert value is not None and isinstance(graph, ir.Graph)
    number = editor.constant(graph, "step", np.array(at, np.int64))
    return editor.insert(node, "Gather", [value, number], f"{value.name}_at_{at}", axis=axis)


def _stack(node: ir.Node, editor: Editor, index: int, rows: list[ir.Value]) -> ir.Value:
    """The stack of the results of all rounds."""
    axis = _of(node, "scan_output_axes", index)
    if _of(node, "scan_output_directions", index):
        rows = rows[::-1]
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    axes = editor.constant(graph, "axes", np.array([axis], np.int64))
    parts = [editor.insert(node, "Unsqueeze", [row, axes], f"{row.name}_row") for row in rows]
    while len(parts) > MOST_JOINED:
        groups = [parts[k : k + MOST_JOINED] for k in range(0, len(parts), MOST_JOINED)]
        parts = [editor.insert(node, "Concat", group, "some_rows", axis=axis) for group in groups]
    return editor.insert(node, "Concat", parts, "rows", axis=axis)


def _of(node: ir.Node, name: str, index: int) -> int:
    values = node.attributes.get(name)
    return 0 if axis_is_first(values) or values is None else values.as_ints()[index]
