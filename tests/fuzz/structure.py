"""Multi-output operators, control flow, strings, empty tensors, reductions and movement in all types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from eqsat.ops.reference import ReferenceNode
from eqsat.schema.opset import PINNED_OPSET
from eqsat.schema.types import OpKey
from tests.fuzz.growing import Growing, RefusedError, Value, tensor_of
from tests.fuzz.numbers import is_float

INT64 = np.dtype(np.int64)


def any_value(g: Growing, least: int = 0) -> Value:
    """A run-time value of any type."""
    fits = [v for v in g.values if not v.constant and v.array.ndim >= least]
    if not fits:
        raise RefusedError
    return fits[-min(int(g.rng.geometric(0.25)), len(fits))]


def index(g: Growing, *numbers: int) -> Value:
    return g.constant(np.array(numbers, np.int64), np.int64)


# ---- movement and reductions ----------------------------------------------------------------------------


def movement(g: Growing) -> Value:
    """Data movement of whatever type, empty results among it."""
    x = any_value(g)
    rank, shape = len(x.shape), x.shape
    kind = g.size(0, 9)
    if kind == 0 and rank:
        return g.op("Transpose", x, perm=[int(i) for i in g.rng.permutation(rank)])
    if kind == 1:
        return g.op("Reshape", x, index(g, *g.one_of(((x.array.size,), (1, *shape), (*shape, 1), shape))))
    if kind == 2:
        return g.op("Unsqueeze", x, index(g, g.one_of((0, -1))))
    if kind == 3 and 1 in shape:
        return g.op("Squeeze", x) if g.chance(0.4) else g.op("Squeeze", x, index(g, shape.index(1)))
    if kind == 4 and rank:
        axis = g.size(0, rank - 1)
        n = shape[axis]
        start, end = sorted((g.size(0, n), g.size(0, n)))
        if start == end and g.chance(0.8):
            raise RefusedError
        spelt = (start - n, end if end < n or g.chance(0.5) else 2**31) if n and start else (start, end)
        return g.op("Slice", x, index(g, spelt[0]), index(g, spelt[1]), index(g, axis))
    if kind == 5 and rank:
        axis = g.size(0, rank - 1)
        if not shape[axis]:
            raise RefusedError
        i = g.constant(g.rng.integers(-shape[axis], shape[axis], g.one_of(((), (2,), (1, 2)))), np.int64)
        return g.op("Gather", x, i, axis=axis)
    if kind == 6 and rank and x.array.dtype != object:
        axis = g.size(0, rank - 1)
        same = [v for v in g.values if v.array.dtype == x.array.dtype and v.shape == shape]
        return g.op("Concat", x, *(g.one_of(same) for _ in range(g.size(0, 2))), axis=g.one_of((axis, axis - rank)))
    if kind == 7:
        return g.op("Expand", x, index(g, *g.one_of(((2, *shape), (1,) * rank, shape))))
    if kind == 8 and rank:
        return g.op("Tile", x, index(g, *[g.one_of((1, 1, 2)) for _ in shape]))
    return g.op("Flatten", x, axis=g.size(0, rank))


def reduction(g: Growing) -> Value:
    x = g.pick() if g.chance(0.7) else any_value(g)
    if x.array.dtype.kind in "Ob" or not x.array.size:
        raise RefusedError
    rank = len(x.shape)
    small = ("ReduceMax", "ReduceMin", "ReduceSum")
    real = ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceProd")
    if rank and g.chance(0.15):
        return g.op(g.one_of(("ArgMax", "ArgMin")), x, axis=g.size(-rank, rank - 1), keepdims=g.size(0, 1))
    name = g.one_of((*small, *real) if is_float(x.array.dtype) else small)
    if not is_float(x.array.dtype) and x.array.dtype not in (np.int32, np.int64) and name == "ReduceSum":
        raise RefusedError
    chosen = sorted(int(a) for a in g.rng.permutation(rank)[: g.size(0, rank)])
    if g.chance(0.4):
        chosen = [a - rank for a in chosen]
    axes = (index(g, *chosen),) if chosen or g.chance(0.3) else ()
    return g.op(name, x, *axes, keepdims=g.size(0, 1), noop_with_empty_axes=int(g.chance(0.2)))


def mixed(g: Growing) -> Value:
    """Other operators of float tensors."""
    x = g.pick(least=1)
    rank, kind = len(x.shape), g.size(0, 6)
    if kind == 0:
        return g.op("CumSum", x, g.constant(g.size(0, rank - 1), np.int64), reverse=g.size(0, 1))
    if kind == 1:
        return g.op(g.one_of(("Softmax", "LogSoftmax", "Hardmax")), x, axis=g.size(-rank, rank - 1))
    if kind == 2 and rank >= 2:
        return g.op("Trilu", x, upper=g.size(0, 1))
    if kind == 3 and rank == 4:
        return g.op("Resize", x, None, g.constant(np.array([1, 1, 2, 2]), np.float32), mode="nearest")
    if kind == 4 and rank == 4 and x.shape[1] % 4 == 0:
        return g.op("DepthToSpace", x, blocksize=2, mode=g.one_of(("DCR", "CRD")))
    if kind == 5 and rank >= 3:
        c = x.shape[1]
        return g.op("InstanceNormalization", x, g.weights(c), g.weights(c))
    widths = [g.size(0, 2) for _ in range(2 * rank)]
    return g.op("Pad", x, index(g, *widths), g.constant(g.one_of((0.0, -1.5))), mode="constant")


# ---- several outputs ------------------------------------------------------------------------------------


def several_outputs(g: Growing) -> Any:
    x = g.pick(least=1)
    rank = len(x.shape)
    kind = g.size(0, 7)
    if kind == 0:
        k = g.size(1, max(x.shape[-1], 1))
        return g.op("TopK", x, index(g, k), outputs=2, axis=-1, largest=g.size(0, 1))
    if kind == 1 and rank == 4:
        return g.op("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    if kind == 2:
        axis = g.size(0, rank - 1)
        parts = g.size(2, 4)
        if x.shape[axis] < parts or (parts - 1) * -(-x.shape[axis] // parts) > x.shape[axis]:
            raise RefusedError
        made = g.op("Split", x, outputs=parts, axis=axis, num_outputs=parts)
        return [g.op("Relu", made[0]), *made[1:]] if g.chance(0.4) else made
    if kind == 3:
        d = x.shape[-1]
        if not x.array.size:
            raise RefusedError
        return g.op("LayerNormalization", x, g.weights(d, shift=1.0), g.weights(d), outputs=g.size(2, 3), axis=-1)
    if kind == 4 and g.floats == np.float32 and x.array.size:
        return g.op("DynamicQuantizeLinear", x, outputs=3)
    if kind == 5 and x.shape[1:2] and rank >= 2 and x.array.size:
        c = x.shape[1]
        variance = g.constant(g.rng.uniform(0.5, 1.5, c))
        parameters = (g.weights(c, shift=1.0), g.weights(c), g.weights(c), variance)
        return g.op("BatchNormalization", x, *parameters, outputs=3, training_mode=1)
    if kind == 6 and rank == 1:
        return g.op("Unique", x, outputs=g.size(1, 4), sorted=1)
    if kind == 7 and rank == 3 and x.array.size:
        hidden, features = g.size(1, 3), x.shape[2]
        gates = g.one_of((("GRU", 3), ("LSTM", 4), ("RNN", 1)))
        w, r = g.weights(1, gates[1] * hidden, features), g.weights(1, gates[1] * hidden, hidden)
        return g.op(gates[0], x, w, r, outputs=3 if gates[0] == "LSTM" else 2, hidden_size=hidden)
    return g.op("Dropout", x, outputs=2)


# ---- control flow ---------------------------------------------------------------------------------------


class Body:
    """A subgraph in the making: nodes and constants of its own, other values captured."""

    def __init__(self, g: Growing) -> None:
        self.g = g
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        out = self.g.name(f"inner_{name.lower()}")
        self.nodes.append(helper.make_node(name, inputs, [out], **attributes))
        return out

    def constant(self, array: Any, dtype: Any) -> str:
        held = Value(self.g.name("inner_c"), np.asarray(array).astype(dtype), True, True, self.g.floats)
        self.tensors.append(tensor_of(held))
        return held.name

    def steps(self, x: str, like: Value) -> str:
        """Some arithmetic that keeps type and shape, in spellings that rules know."""
        dtype = like.array.dtype
        for _ in range(self.g.size(1, 3)):
            kind = self.g.size(0, 5)
            if kind == 0:
                x = self.op("Add", x, self.constant(0, dtype))
            elif kind == 1:
                x = self.op("Mul", x, self.constant(0.5, dtype))
            elif kind == 2:
                x = self.op("Identity", self.op("Neg", self.op("Neg", x)))
            elif kind == 3:
                x = self.op("Max", x, self.constant(0, dtype))
            elif kind == 4:
                x = self.op("Add", x, like.name)
            else:
                x = self.op("Sub", x, self.constant(1.5, dtype))
        return x

    def graph(self, inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, self.g.name("body"), inputs, outputs, self.tensors)


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, int(ir.DataType.from_numpy(array.dtype)), array.shape)


def _run(g: Growing, node: onnx.NodeProto, inputs: list[Value], captured: list[Value]) -> list[Value]:
    reference = ReferenceNode(
        OpKey("", node.op_type), PINNED_OPSET, list(node.attribute), len(node.output), PINNED_OPSET
    )
    try:
        with np.errstate(all="ignore"):
            found = reference([v.array for v in inputs], {v.name: v.array for v in captured})
    except Exception as error:  # the reference's own exceptions have no common base
        raise RefusedError(str(error)) from error
    kind = captured[0].array.dtype
    return g.results(
        node, [np.asarray(r).astype(kind) if is_float(np.asarray(r).dtype) else np.asarray(r) for r in found]
    )


def branch(g: Growing) -> list[Value]:
    """An If whose branches read outer values."""
    x = g.pick()
    if not x.array.size:
        raise RefusedError
    if g.chance(0.3):
        condition = g.input((), np.bool_)
    elif g.chance(0.3):
        condition = g.constant(g.chance(0.5), np.bool_)
    else:
        total = g.op("ReduceMax", x, keepdims=0)
        condition = g.op("Greater", total, g.constant(float(g.rng.standard_normal())))
    graphs = []
    for _ in range(2):
        body = Body(g)
        y = body.steps(x.name, x)
        graphs.append(
            body.graph([], [helper.make_tensor_value_info(y, int(ir.DataType.from_numpy(g.floats)), x.shape)])
        )
    node = helper.make_node("If", [condition.name], [g.name("if")], then_branch=graphs[0], else_branch=graphs[1])
    return _run(g, node, [condition], [x])


def loop(g: Growing) -> list[Value]:
    """A Loop with a carried value, of a constant number of trips.

    onnx 1.23's reference joins what is also returned for each trip along the wrong axis if rows are short: refused.
    """
    x = g.pick()
    body, trip, go, state = Body(g), g.name("trip"), g.name("go"), g.name("state")
    y = body.steps(state, x)
    kept = body.op("Identity", go)
    scanned = [body.op("Mul", y, body.constant(2, g.floats))] if g.chance(0.5) else []
    kind = int(ir.DataType.from_numpy(g.floats))
    graph = body.graph(
        [
            helper.make_tensor_value_info(trip, TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
            helper.make_tensor_value_info(state, kind, x.shape),
        ],
        [
            helper.make_tensor_value_info(kept, TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, kind, x.shape) for name in (y, *scanned)),
        ],
    )
    trips = g.size(1, 4)
    count, always = g.constant(trips, np.int64), g.constant(True, np.bool_)
    outputs = [g.name("loop") for _ in range(1 + len(scanned))]
    node = helper.make_node("Loop", [count.name, always.name, x.name], outputs, body=graph)
    made = _run(g, node, [count, always, x], [x])
    if any(v.shape != (trips, *x.shape) for v in made[1:]):
        raise RefusedError("the reference's own shape")
    return made


def scan(g: Growing) -> list[Value]:
    """A Scan over the first axis, with a sum as its state."""
    x = g.pick(least=2)
    if not x.array.size:
        raise RefusedError
    body, state, row = Body(g), g.name("state"), g.name("row")
    kind, rest = int(ir.DataType.from_numpy(g.floats)), x.shape[1:]
    total = body.op("Add", state, row)
    scaled = body.op("Mul", body.op("Mul", total, body.constant(2, g.floats)), body.constant(0.25, g.floats))
    graph = body.graph(
        [helper.make_tensor_value_info(n, kind, rest) for n in (state, row)],
        [helper.make_tensor_value_info(n, kind, rest) for n in (total, scaled)],
    )
    start = g.constant(np.zeros(rest))
    node = helper.make_node(
        "Scan", [start.name, x.name], [g.name("scan"), g.name("scan")], body=graph, num_scan_inputs=1
    )
    return _run(g, node, [start, x], [x])


# ---- strings --------------------------------------------------------------------------------------------


def words(g: Growing) -> Any:
    """Strings: moved, compared, joined."""
    known = [v for v in g.values if v.array.dtype == object and not v.constant]
    x = g.one_of(known) if known and g.chance(0.7) else g.input(g.one_of(((), (3,), (2, 3), (1, 2, 2))), object)
    kind = g.size(0, 6)
    if kind == 0:
        return g.op("Equal", x, g.constant(np.array("a", object), object))
    if kind == 1:
        same = [v for v in g.values if v.array.dtype == object and v.shape == x.shape]
        return g.op("StringConcat", x, g.one_of(same))
    if kind == 2:
        return g.op("RegexFullMatch", x, pattern=g.one_of(("a.*", "[a-z]+", "")))
    if kind == 3 and len(x.shape) == 1:
        return g.op("StringNormalizer", x, case_change_action=g.one_of(("LOWER", "UPPER")), locale="C")
    if kind == 4:
        return g.op("Identity", g.op("Identity", x))
    if kind == 5 and len(x.shape) >= 1:
        back = list(range(len(x.shape)))[::-1]
        return g.op("Transpose", g.op("Transpose", x, perm=back), perm=back)
    return movement(g)


STRUCTURE = (
    (movement, 5), (reduction, 3), (mixed, 2), (several_outputs, 3), (branch, 1), (loop, 1), (scan, 0.7), (words, 0.5),
)  # fmt: skip
