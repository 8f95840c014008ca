"""Control flow: If, Loop, Scan and SequenceMap around compiled bodies.

Each function returns the operation of one node. Its inputs are the node's own, then the values that its bodies
capture from outside, body after body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from eqsat.ops.evaluate import EvaluateOperator, TensorValue
from eqsat.ops.families.casting import numpy_dtype

Ints = Sequence[int]


class CompiledSubgraph(Protocol):
    """A compiled subgraph."""

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """The values returned."""
        ...

    @property
    def captures(self) -> int:
        """Number of captured values."""
        ...

    def run(self, arguments: Sequence[TensorValue]) -> list[TensorValue]:
        """Run on inputs followed by captured values."""
        ...


def if_operation(then: CompiledSubgraph, otherwise: CompiledSubgraph) -> EvaluateOperator:
    """One of two bodies without inputs."""

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        condition, captured = inputs[0], inputs[1:]
        if np.asarray(condition).reshape(-1)[0]:
            return tuple(then.run(captured[: then.captures]))
        return tuple(otherwise.run(captured[then.captures :]))

    return call


def loop_operation(body: CompiledSubgraph, carried: int) -> EvaluateOperator:
    """At most M rounds while the condition holds.

    Args:
        body: Takes (round, condition, *carried), returns (condition, *carried, *scanned).
        carried: Number of carried values.
    """

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        limit, condition = inputs[0], inputs[1]
        state = list(inputs[2 : 2 + carried])
        captured = list(inputs[2 + carried :])
        count = None if limit is None else int(np.asarray(limit).reshape(-1)[0])
        go = True if condition is None else bool(np.asarray(condition).reshape(-1)[0])
        scanned: list[list[TensorValue]] = [[] for _ in body.outputs[1 + carried :]]
        i = 0
        while go and (count is None or i < count):
            results = body.run([np.array(i, np.int64), np.array(go), *state, *captured])
            go = bool(np.asarray(results[0]).reshape(-1)[0])
            state = results[1 : 1 + carried]
            for rows, value in zip(scanned, results[1 + carried :], strict=True):
                rows.append(value)
            i += 1
        stacked = [_stack(rows, 0, out) for rows, out in zip(scanned, body.outputs[1 + carried :], strict=True)]
        return (*state, *stacked)

    return call


def scan_operation(
    body: CompiledSubgraph, states: int, scans: int, in_axes: Ints, in_reverse: Ints, out_axes: Ints, out_reverse: Ints
) -> EvaluateOperator:
    """A body for each slice of some inputs.

    Args:
        body: Takes (*states, *slices), returns (*states, *slices).
        states: Number of state variables.
        scans: Number of inputs that are cut.
        in_axes: Axis of each, 0 where the list is empty.
        in_reverse: 1 to run through it backwards.
        out_axes: Axis along which each output's slices are put together.
        out_reverse: 1 to put them together backwards.
    """

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        state = list(inputs[:states])
        captured = list(inputs[states + scans :])
        columns = []
        for k, x in enumerate(inputs[states : states + scans]):
            moved = np.moveaxis(x, in_axes[k] if in_axes else 0, 0)
            columns.append(moved[::-1] if in_reverse and in_reverse[k] else moved)
        lengths = {len(c) for c in columns}
        if len(lengths) > 1:
            raise ValueError(f"scanned inputs must have the same length, not {sorted(lengths)}")
        rows: list[list[TensorValue]] = [[] for _ in body.outputs[states:]]
        for i in range(lengths.pop() if lengths else 0):
            results = body.run([*state, *(np.asarray(c[i]) for c in columns), *captured])
            state = results[:states]
            for collected, value in zip(rows, results[states:], strict=True):
                collected.append(value)
        stacked = []
        for k, (collected, out) in enumerate(zip(rows, body.outputs[states:], strict=True)):
            ordered = collected[::-1] if out_reverse and out_reverse[k] else collected
            stacked.append(_stack(ordered, out_axes[k] if out_axes else 0, out))
        return (*state, *stacked)

    return call


def batched_scan_operation(body: CompiledSubgraph, states: int, scans: int, directions: Ints) -> EvaluateOperator:
    """Scan of version 8: a batch of independent scans over axis 1, each with its own length."""
    single = scan_operation(body, states, scans, (), directions, (), ())

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        lengths, own, captured = inputs[0], inputs[1 : 1 + states + scans], inputs[1 + states + scans :]
        batch, longest = own[states].shape[:2]
        results = []
        for b in range(batch):
            length = longest if lengths is None else int(lengths[b])
            cut = [np.asarray(x[b]) if k < states else x[b][:length] for k, x in enumerate(own)]
            outputs = single([*cut, *captured])
            padded = [
                np.pad(y, [(0, longest - length)] + [(0, 0)] * (y.ndim - 1)) if k >= states else y
                for k, y in enumerate(outputs)
            ]
            results.append(padded)
        return tuple(np.stack(column) for column in zip(*results, strict=True))

    return call


def sequence_map_operation(body: CompiledSubgraph, inputs_of_node: int) -> EvaluateOperator:
    """A body for each element of a sequence; further sequences advance with it, tensors stay."""

    def call(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        own, captured = inputs[:inputs_of_node], inputs[inputs_of_node:]
        results = [
            body.run([*(x[i] if isinstance(x, list) else x for x in own), *captured]) for i in range(len(own[0]))
        ]
        return tuple([row[k] for row in results] for k in range(len(body.outputs)))

    return call


def _stack(rows: list[TensorValue], axis: int, out: ir.Value) -> np.ndarray:
    """Slices put together; without slices, an empty array of the type that the body declares."""
    if rows:
        return np.stack(rows, axis)
    dtype = numpy_dtype(int(out.dtype)) if out.dtype is not None else np.dtype(np.float32)
    dims = [d if isinstance(d, int) else 0 for d in out.shape] if out.shape is not None else []
    dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 0)
    return np.zeros(dims, dtype)
