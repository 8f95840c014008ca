"""Graphs on which a greedy partitioner loses, and graphs that grow: builders with their optimum.

Each builder says what the optimum is and why the first match or the first merge misses it. What TVM makes of them was
measured with TVM 0.11.1 (Relay) and 0.27 (Relax); the baseline reproduces it (``tests/benchmarks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20

CHAINS = ("add relu mul add", "relu mul add relu", "mul add relu mul")
"""Three chains that pairs of operators cover exactly, if the pairs are chosen for the whole chain."""

HOST_FUNCTIONS = (
    "Tanh",
    "Exp",
    "Sin",
    "Cos",
    "Atan",
    "Sinh",
    "Cosh",
    "Erf",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Elu",
    "Selu",
    "Asinh",
    "Mish",
    "HardSwish",
)
"""Operators that no toy target takes, for as many different values on the host."""

SPELLINGS = ("plain", "max_right", "max_left", "clip", "minus_negated", "residual_first", "reshape_pair")
"""Ways to write ``relu(x @ w + b)``, see :func:`dense_spelling`."""


def overlapping_chains(
    shape: Sequence[int] = (16, 64), *, chains: Sequence[str] = CHAINS, separator: str = "Softmax"
) -> onnx.ModelProto:
    """Chains of add, mul and relu for the pairs add+relu, relu+mul, mul+add, with an operator of the host between them.

    Each chain is two pairs: 6 composites and nothing of it on the host. Whatever pattern is tried first takes the
    middle of one chain and leaves its ends alone: 5 composites and 2 operators, in each of the six orders.

    Args:
        shape: Of every tensor.
        chains: Names of operators, in order.
        separator: The operator between two chains.
    """
    graph = _Builder(shape)
    x = graph.input("x")
    for number, chain in enumerate(chains):
        if number:
            x = graph.node(separator, x)
        for op in chain.split():
            operands = [x] if op == "relu" else [x, graph.input(f"{op}{len(graph.inputs)}")]
            x = graph.node(op.capitalize(), *operands)
    return graph.model([x], "overlapping_chains")


def region_order(k: int = 4, *, first: bool, shape: Sequence[int] = (64, 64)) -> onnx.ModelProto:
    """``a = p + p; b = q + q; n = a * b`` and ``d_i = a ∘ h_j`` with ``h_j`` of ``b`` on the host, i = 1 ... k.

    Two regions are enough: ``{b}``, and ``{a, n, d_1, ...}`` once the host is done, if n waits for it. A partitioner
    that merges in program order makes k + 1 regions when n comes first, because a, b and n are one region then.

    Args:
        k: Number of ``d_i``; up to four of them read the same ``h_j``: ``a * h, a + h, a - h, h - a``.
        first: Whether n stands in front of the ``d_i`` or behind them.
        shape: Of every tensor.
    """
    operators = ("Mul", "Add", "Sub", "Sub")
    most = len(operators) * len(HOST_FUNCTIONS)
    if not 1 <= k <= most:
        raise ValueError(f"k must be from 1 to {most}, got {k}")
    graph = _Builder(shape)
    p, q = graph.input("p"), graph.input("q")
    a = graph.node("Add", p, p, name="a")
    b = graph.node("Add", q, q, name="b")
    used = HOST_FUNCTIONS[: -(-k // len(operators))]
    h = [graph.node(op, b, name=f"h{j}") for j, op in enumerate(used)]
    outputs = []
    if first:
        outputs.append(graph.node("Mul", a, b, name="n"))
    for i in range(k):
        kind, operands = i % len(operators), (a, h[i // len(operators)])
        outputs.append(graph.node(operators[kind], *(operands if kind < 3 else operands[::-1]), name=f"d{i + 1}"))
    if not first:
        outputs.append(graph.node("Mul", a, b, name="n"))
    return graph.model(outputs, "region_order")


def shared_sum(shape: Sequence[int] = (64, 64), *, readers: Sequence[str] = ("Relu", "Sigmoid")) -> onnx.ModelProto:
    """``y = x + b`` that several activations read, for composites add + activation.

    Computing the sum once for each reader gives as many composites and leaves nothing to the host. Relay drops a match
    whose inside is read outside: no composite. Relax gives y out as a second result: one composite, the other
    activation stays on the host.
    """
    graph = _Builder(shape)
    y = graph.node("Add", graph.input("x"), graph.input("b"), name="y")
    return graph.model([graph.node(op, y, name=op.lower()) for op in readers], "shared_sum")


def dense_spelling(spelling: str = "plain", *, rows: int = 32, inside: int = 64, columns: int = 48) -> onnx.ModelProto:
    """``relu(x @ w + b)`` in one of the :data:`SPELLINGS`; the optimum is one composite matmul + add + relu for each.

    ``max_right`` is ``max(s, 0)``, ``max_left`` ``max(0, s)``, ``clip`` ``clip(s, 0, inf)``, ``minus_negated``
    ``x @ w - (-b)``, ``residual_first`` ``relu((x @ w + r) + b)`` with a residual r, ``reshape_pair`` reshapes the sum
    and back.
    """
    graph = _Builder((rows, columns))
    x = graph.input("x", (rows, inside))
    w = graph.constant("w", graph.rng.standard_normal((inside, columns), np.float32) / np.float32(np.sqrt(inside)))
    bias = graph.rng.standard_normal(columns, np.float32) * np.float32(0.1)
    zero = np.zeros((), np.float32)
    product = graph.node("MatMul", x, w, name="product")
    if spelling == "minus_negated":
        s = graph.node("Sub", product, graph.constant("negated", -bias))
    elif spelling == "residual_first":
        s = graph.node("Add", graph.node("Add", product, graph.input("r")), graph.constant("b", bias))
    else:
        s = graph.node("Add", product, graph.constant("b", bias))
    match spelling:
        case "max_right":
            y = graph.node("Max", s, graph.constant("zero", zero))
        case "max_left":
            y = graph.node("Max", graph.constant("zero", zero), s)
        case "clip":
            y = graph.node("Clip", s, graph.constant("zero", zero), graph.constant("inf", np.array(np.inf, np.float32)))
        case "reshape_pair":
            flat = graph.node("Reshape", s, graph.constant("flat", np.array([-1], np.int64)))
            back = graph.node("Reshape", flat, graph.constant("back", np.array([rows, columns], np.int64)))
            y = graph.node("Relu", back)
        case "plain" | "minus_negated" | "residual_first":
            y = graph.node("Relu", s)
        case _:
            raise ValueError(f"spelling must be one of {', '.join(SPELLINGS)}, got {spelling!r}")
    return graph.model([y], f"dense_{spelling}")


def ccompiler_example(shape: Sequence[int] = (10, 10)) -> onnx.ModelProto:
    """``((x * w0) / ((x + w1) - w2) + w3) / w4`` for a code generator that knows + - * and leaves the quotients.

    Three regions with merging, four without.
    """
    graph = _Builder(shape)
    x, *w = (graph.input(name) for name in ("x", "w0", "w1", "w2", "w3", "w4"))
    total = graph.node("Add", x, w[1])
    product = graph.node("Mul", x, w[0])
    difference = graph.node("Sub", total, w[2])
    quotient = graph.node("Div", product, difference)
    return graph.model([graph.node("Div", graph.node("Add", quotient, w[3]), w[4])], "ccompiler_example")


def residual_chain(
    blocks: int, *, channels: int = 8, size: int = 8, affine: bool = True, seed: int = 0
) -> onnx.ModelProto:
    """A chain of residual blocks of three convolutions each, as exporters write them: 25 nodes a block and one more.

    Args:
        blocks: At least 1.
        channels: Of each tensor.
        size: Height and width.
        affine: Batch normalisation as ``BatchNormalization``, then ``Mul`` and ``Add`` of unsqueezed vectors (Caffe's
            Scale layers); else ``BatchNormalization`` alone, 10 nodes a block.
        seed: Of the weights.
    """
    graph = _Builder((1, channels, size, size), seed)
    x = graph.node("Relu", graph.input("x"))
    for block in range(blocks):
        y = x
        for step in range(3):
            kernel = 3 if step == 1 else 1
            name = f"block{block}.conv{step}"
            spread = np.float32(np.sqrt(0.5 / (channels * kernel * kernel)))
            weights = graph.rng.standard_normal((channels, channels, kernel, kernel), np.float32) * spread
            y = graph.node("Conv", y, graph.constant(f"{name}.w", weights), pads=[kernel // 2] * 4)
            y = graph.node("BatchNormalization", y, *graph.statistics(name, channels))
            if affine:
                axes = graph.node("Constant", value_ints=[1, 2])
                scale = graph.constant(f"{name}.scale", graph.rng.uniform(0.8, 1.2, channels).astype(np.float32))
                small = graph.rng.standard_normal(channels, np.float32) * np.float32(0.05)
                shift = graph.constant(f"{name}.shift", small)
                y = graph.node("Mul", y, graph.node("Unsqueeze", scale, axes))
                y = graph.node("Add", y, graph.node("Unsqueeze", shift, axes))
            if step < 2:
                y = graph.node("Relu", y)
        x = graph.node("Relu", graph.node("Sum", x, y))
    return graph.model([x], f"residual_chain_{blocks}")


def with_additions(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with each ``Sum`` of two tensors written as ``Add``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    return copy


def shuffled(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy whose nodes stand in another order, each still behind what it reads."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rng = np.random.default_rng(seed)
    made = {o for node in model.graph.node for o in node.output if o}
    waiting = list(model.graph.node)
    done: set[str] = set()
    order = []
    while waiting:
        ready = [n for n in waiting if all(i not in made or i in done for i in _reads(n))]
        node = ready[int(rng.integers(len(ready)))]
        waiting.remove(node)
        done.update(node.output)
        order.append(node)
    del copy.graph.node[:]
    copy.graph.node.extend(order)
    return copy


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)


class _Builder:
    """Collects nodes over float32 tensors of one shape."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.shape = list(shape)
        self.rng = np.random.default_rng(seed)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Sequence[int] | None = None) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape or self.shape)))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def statistics(self, name: str, channels: int) -> list[str]:
        """Operands of a batch normalisation."""
        values = {
            "gamma": self.rng.uniform(0.8, 1.2, channels),
            "beta": self.rng.standard_normal(channels) * 0.05,
            "mean": self.rng.standard_normal(channels) * 0.05,
            "var": self.rng.uniform(0.8, 1.2, channels),
        }
        return [self.constant(f"{name}.{key}", value.astype(np.float32)) for key, value in values.items()]

    def node(self, op: str, *operands: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(operands), [name], name=name, **attributes))
        return name

    def model(self, outputs: Sequence[str], name: str) -> onnx.ModelProto:
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, self.shape) for o in outputs]
        graph = helper.make_graph(self.nodes, name, self.inputs, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        return model
