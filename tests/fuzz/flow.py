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
    numbers = {a.name: a for a in node.attribute if not a.HasField("g")}
    if node.op_type == "If":
        condition = _agreed(operands[0])
        return None if condition is None else run(graphs["then_branch" if condition else "else_branch"], {})
    if node.op_type == "Loop":
        return _loop(graphs["body"], operands, run)
    if node.op_type == "Scan" and set(numbers) == {"num_scan_inputs"} and operands[0] is not None:
        return _scan(graphs["body"], operands, int(numbers["num_scan_inputs"].i), run)
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


def _scan(body: onnx.GraphProto, operands: Sequence[Value | None], scanned: int, run: Body) -> list[Value] | None:
    given = [v for v in operands if v is not None]
    states, inputs = given[: len(given) - scanned], given[len(given) - scanned :]
    names = [i.name for i in body.input]
    rows: list[list[Value]] = []
    for row in range(inputs[0].exact.shape[0]):
        parts = [Value(v.dtype, tuple(w[row] for w in v.worlds), v.left) for v in inputs]
        found = run(body, dict(zip(names, [*states, *parts], strict=True)))
        states = found[: len(states)]
        rows.append(found[len(states) :])
    return None if not rows else [*states, *_stacked(rows)]


def _stacked(rows: Sequence[Sequence[Value]]) -> list[Value]:
    return [
        Value(
            column[0].dtype,
            tuple(np.stack(arrays) for arrays in zip(*(v.worlds for v in column), strict=True)),
            any(v.left for v in column),
        )
        for column in zip(*rows, strict=True)
    ]
