"""If, Loop and Scan in several worlds: bodies are executed node by node, so that rounding inside them is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tests.fuzz.values import Value

Body = Callable[[onnx.GraphProto, Mapping[str, Value]], list[Value]]
"""Executes a graph for given inner values."""
MOST_TRIPS = 100


def executed(node: onnx.NodeProto, operands: Sequence[Value | None], run: Body) -> list[Value] | None:
    """The results, or None where the worlds part (another branch, another number of trips) or it is none of these."""
    graphs = {a.name: a.g for a in node.attribute if a.HasField("g")}
    numbers = {a.name: a.i or list(a.ints) for a in node.attribute if not a.HasField("g")}
    if node.op_type == "If":
        condition = _agreed(operands[0])
        return None if condition is None else run(graphs["then_branch" if condition else "else_branch"], {})
    if node.op_type == "Loop":
        return _loop(graphs["body"], operands, run)
    if node.op_type == "Scan" and operands[0] is not None:
        return _scan(graphs["body"], operands, numbers, run)
    return None


def _agreed(value: Value | None) -> Any:
    """A number that all worlds have, None if they differ or it is absent."""
    if value is None:
        return None
    found = {np.asarray(w).item() for w in value.worlds}
    return found.pop() if len(found) == 1 else None


def _same(array: Any, like: Value) -> Value:
    return Value(array.dtype, (array,) * len(like.worlds))


def _loop(body: onnx.GraphProto, operands: Sequence[Value | None], run: Body) -> list[Value] | None:
    trips = _agreed(operands[0])
    states = [v for v in operands[2:] if v is not None]
    if trips is None or not 0 < trips <= MOST_TRIPS or not states or _agreed(operands[1]) is False:
        return None
    names = [i.name for i in body.input]
    rows: list[list[Value]] = []
    for trip in range(trips):
        known = {
            names[0]: _same(np.array(trip, np.int64), states[0]),
            names[1]: _same(np.array(True), states[0]),
            **dict(zip(names[2:], states, strict=True)),
        }
        found = run(body, known)
        if _agreed(found[0]) is not True:
            return None
        states = found[1 : 1 + len(states)]
        rows.append(found[1 + len(states) :])
    return [*states, *_stacked(rows)]


def _scan(
    body: onnx.GraphProto, operands: Sequence[Value | None], attributes: Mapping[str, Any], run: Body
) -> list[Value] | None:
    scanned = attributes["num_scan_inputs"]
    given = [v for v in operands if v is not None]
    states, inputs = given[: len(given) - scanned], given[len(given) - scanned :]
    count = len(states)
    names = [i.name for i in body.input]
    axes = attributes.get("scan_input_axes") or [0] * len(inputs)
    backwards = attributes.get("scan_input_directions") or [0] * len(inputs)
    rows: list[list[Value]] = []
    rounds = inputs[0].exact.shape[axes[0]]
    for row in range(rounds):
        parts = [
            Value(v.dtype, tuple(w.take(rounds - 1 - row if back else row, axis) for w in v.worlds), v.left)
            for v, axis, back in zip(inputs, axes, backwards, strict=True)
        ]
        found = run(body, dict(zip(names, [*states, *parts], strict=True)))
        states = found[:count]
        rows.append(found[count:])
    if not rows:
        return None
    axes = attributes.get("scan_output_axes") or [0] * len(rows[0])
    backwards = attributes.get("scan_output_directions") or [0] * len(rows[0])
    return [*states, *_stacked(rows, axes, backwards)]


def _stacked(rows: Sequence[Sequence[Value]], axes: Sequence[int] = (), backwards: Sequence[int] = ()) -> list[Value]:
    columns = list(zip(*rows, strict=True))
    result = []
    for k, column in enumerate(columns):
        ordered = column[::-1] if backwards and backwards[k] else column
        axis = axes[k] if axes else 0
        worlds = tuple(np.stack(arrays, axis) for arrays in zip(*(v.worlds for v in ordered), strict=True))
        result.append(Value(column[0].dtype, worlds, any(v.left for v in column)))
    return result
