"""Composites with several results: values, what is paid, which programs are possible, from Python and from files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.extract.solve import solve
from eqsat.model.load import load
from eqsat.partition.saved import inline
from eqsat.rules.reader import read_text
from eqsat.search import Search
from tests.extract import oracle

HEAD = """
target npu
    peak float32 = 1e12, int8 = 4e12
    bandwidth = 1e11, launch = 1e-7
    link bandwidth = 1e11, latency = 1e-7
"""
Graph = Callable[[], ir.Model]


def target(composites: str):
    return read_text(HEAD + composites).targets[0]


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) / 2).astype(np.float32)


def add_norm(*, sum_outside: bool, norm: bool = True) -> ir.Model:
    x, y = eqsat.input("x", (2, 4, 8)), eqsat.input("y", (2, 4, 8))
    total = x + y
    normed = op.Relu(op.LayerNormalization(total, weights(8), weights(8, seed=1)))
    outputs = ([normed] if norm else []) + ([op.Sigmoid(total)] if sum_outside else [])
    return eqsat.graph(outputs)


def conv(*, raw: bool) -> ir.Model:
    c = op.Conv(eqsat.input("x", (1, 3, 6, 6)), weights(4, 3, 3, 3), weights(4), pads=[1, 1, 1, 1])
    return eqsat.graph([op.Relu(c), op.Sigmoid(c)] if raw else op.Relu(c))


def qkv() -> ir.Model:
    joint = op.Add(op.MatMul(eqsat.input("x", (2, 5, 8)), weights(8, 24)), weights(24))
    q, k, v = op.Split(joint, axis=-1, num_outputs=3)
    return eqsat.graph(op.MatMul(op.Softmax(op.MatMul(q, op.Transpose(k, perm=[0, 2, 1]))), v))


def three_products() -> ir.Model:
    x = eqsat.input("x", (2, 5, 8))
    q, k, v = (op.MatMul(x, weights(8, 8, seed=i)) for i in range(3))
    return eqsat.graph([op.Relu(q), op.Sigmoid(k), op.Tanh(v)])


def pooled(*, values: bool = True) -> ir.Model:
    x = op.Relu(eqsat.input("x", (1, 2, 6, 6)))
    y, indices = op.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    return eqsat.graph([y, indices] if values else indices)


def largest() -> ir.Model:
    return eqsat.graph(list(op.TopK(op.Relu(eqsat.input("x", (3, 9))), np.array([4], np.int64))))


def step() -> ir.Model:
    x = eqsat.input("x", (3, 2, 4))
    _, h, c = op.LSTM(x, weights(1, 20, 4), weights(1, 20, 5), weights(1, 40), hidden_size=5)
    return eqsat.graph([h, c])


def quantized() -> ir.Model:
    x = op.QuantizeLinear(eqsat.input("x", (2, 8)), np.float32(0.02), np.int8(3))
    s = op.Relu(op.Add(op.DequantizeLinear(x, np.float32(0.02), np.int8(3)), np.float32(0.25)))
    a = op.QuantizeLinear(s, np.float32(0.03), np.int8(0))
    return eqsat.graph([a, op.QuantizeLinear(op.Sigmoid(s), np.float32(0.01), np.int8(-100))])


def in_a_region() -> ir.Model:
    x, y = eqsat.input("x", (2, 4, 8)), eqsat.input("y", (2, 4, 8))
    total = op.MatMul(x, weights(8, 8)) + y
    normed = op.LayerNormalization(total, weights(8), weights(8, seed=1))
    return eqsat.graph(op.MatMul(op.Relu(op.MatMul(normed, weights(8, 8, seed=2))), weights(8, 8, seed=3)) + total)


ADD_NORM = """
    composite add_norm : real
        s = x + y, d = LayerNormalization(s, scale, bias)
"""
CONV = """
    composite conv : exact
        let c = Conv(x, w, b?)
        (raw, y) = (c, Relu(c) | Clip(c, 0, 6))
"""
POOL = """
    composite pool : exact
        (m, i) = MaxPool(Relu(x))
"""


@dataclass(frozen=True)
class Case:
    graph: Graph
    composites: str
    kernel: str


CASES = {
    "sum and norm, both read": Case(lambda: add_norm(sum_outside=True), ADD_NORM, "add_norm"),
    "sum and norm, only the norm": Case(lambda: add_norm(sum_outside=False), ADD_NORM, "add_norm"),
    "convolution, raw and rectified": Case(lambda: conv(raw=True), CONV, "conv"),
    "convolution, rectified only": Case(lambda: conv(raw=False), CONV, "conv"),
    "split of a product": Case(
        qkv, "\n    composite qkv : exact\n        (q, k, v) = Split(x @ w + b, sizes?)\n", "qkv"
    ),
    "three products": Case(
        three_products,
        "\n    composite three : exact\n        a = x @ u, b = x @ v, c = x @ w\n        where const(u, v, w)\n",
        "three",
    ),
    "maxima and where they were": Case(pooled, POOL, "pool"),
    "only where they were": Case(lambda: pooled(values=False), POOL, "pool"),
    "largest elements": Case(largest, "\n    composite top : exact\n        (v, i) = TopK(Relu(x), k)\n", "top"),
    "a step of an LSTM": Case(step, "\n    composite step : exact\n        (_, h, c) = LSTM(x, w, r, b?)\n", "step"),
    "quantized": Case(
        quantized,
        """
    composite act : exact
        let s = Relu(DequantizeLinear(q, sx, zx) + t)
        a = QuantizeLinear(s, sa, za), b = QuantizeLinear(Sigmoid(s), sb, zb)
        where const(sx, zx, sa, za, sb, zb, t), q.dtype == int8
""",
        "act",
    ),
    "inside a region": Case(in_a_region, f"    supports MatMul, Relu, Add\n{ADD_NORM}", "add_norm"),
}


def feed(model: ir.Model) -> dict[str, np.ndarray]:
    shapes = ((v.name or "", v.shape) for v in model.graph.inputs)
    return {name: weights(*(int(n) for n in shape or ()), seed=7) for name, shape in shapes}


def by_onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, inputs)), strict=True))


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = case.graph()
    eqsat.save(model, tmp_path / "model.onnx")
    inputs = feed(model)
    expected = by_onnxruntime(tmp_path / "model.onnx", inputs)
    result = eqsat.optimize(model, targets=[target(case.composites)])
    kernels = [kernel for region in result.regions for kernel in region.nodes]
    assert kernels.count(f"npu.{case.kernel}") == 1
    assert result.stop_reason == "optimal"
    same(result.run(inputs), expected)
    same(result.run(inputs, backend="c"), expected)
    result.save(tmp_path / "placed.onnx")
    same(eqsat.run(tmp_path / "placed.onnx", inputs), expected)
    same(by_onnxruntime(tmp_path / "placed.onnx", inputs), expected)
    inlined = inline(load(tmp_path / "placed.onnx"))
    assert not inlined.functions
    same(eqsat.run(inlined, inputs), expected)


@pytest.mark.parametrize("name", CASES)
def test_the_audit_agrees(name: str) -> None:
    """Each e-node is computed from the classes that it reads, results of composites as well."""
    case = CASES[name]
    report = Search.of(case.graph(), targets=[target(case.composites)]).audit()
    assert report.ok, report


@pytest.mark.parametrize("name", ["sum and norm, both read", "three products", "inside a region"])
def test_the_same_file_each_time(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for path in ("a.onnx", "b.onnx"):
        eqsat.optimize(case.graph(), targets=[target(case.composites)]).save(tmp_path / path)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_results_are_paid_for_once() -> None:
    """By the time of one kernel, over the bytes of all operands and results."""
    both = eqsat.optimize(add_norm(sum_outside=True), targets=[target(ADD_NORM)])
    one = eqsat.optimize(add_norm(sum_outside=False), targets=[target(ADD_NORM)])
    (kernel,) = (node for node in both.plan.nodes if node.body is not None)
    (alone,) = (node for node in one.plan.nodes if node.body is not None)
    size = 2 * 4 * 8 * 4
    assert kernel.cost == alone.cost == pytest.approx(1e-7 + (4 * size + 2 * 8 * 4) / 1e11)
    assert len([v for v in kernel.outputs if v is not None]) == 2
    assert len([v for v in alone.outputs if v is not None]) == 1


def test_costs_may_ask_for_the_results() -> None:
    text = f"{ADD_NORM}        cost d.shape[0] * 1e-8 + s.size * 1e-12\n"
    result = eqsat.optimize(add_norm(sum_outside=True), targets=[target(text)])
    (kernel,) = (node for node in result.plan.nodes if node.body is not None)
    assert kernel.cost == pytest.approx(2e-8 + 64e-12)


def between() -> ir.Model:
    """One result is read by an operator that the other result needs."""
    x, y = eqsat.input("x", (2, 8)), eqsat.input("y", (2, 8))
    a = x * y
    return eqsat.graph([a, x + op.Exp(a)])


BOTH = "\n    composite both : exact\n        a = x * y, b = x + z\n        cost 1e-9\n"


def test_a_kernel_does_not_wait_for_itself() -> None:
    model = between()
    result = eqsat.optimize(model, targets=[target(BOTH)])
    kernels = [(node.op.name, node.outputs) for node in result.plan.nodes]
    # The kernel gives one of its results; the other one is computed before it, because the kernel waits for it.
    assert [name for name, _ in kernels] == ["Mul", "Exp", "both"]
    assert [v is None for v in kernels[-1][1]] == [True, False]
    inputs = feed(model)
    same(result.run(inputs), eqsat.run(model, inputs))
    same(result.run(inputs, backend="c"), eqsat.run(model, inputs))


@pytest.mark.parametrize(
    ("graph", "composites"),
    [
        (lambda: add_norm(sum_outside=True), f"    supports Relu, Sigmoid\n{ADD_NORM}"),
        (lambda: add_norm(sum_outside=True), f"    supports Add, Sigmoid\n{ADD_NORM}        cost 5e-7\n"),
        (lambda: conv(raw=True), CONV),
        (between, BOTH),
        (between, f"    supports Mul, Exp, Add\n{BOTH}"),
        (largest, "\n    composite top : exact\n        (v, i) = TopK(Relu(x), k)\n"),
    ],
)
@pytest.mark.parametrize("slow", [1, 40])
def test_the_best_program_is_found(graph: Graph, composites: str, slow: int) -> None:
    npu = read_text(HEAD.replace("latency = 1e-7", f"latency = {slow}e-7") + composites).targets[0]
    search = Search.of(graph(), targets=[npu], default_rules=False)
    problem = search.priced.formulation.problem
    assert solve(problem).cost == pytest.approx(oracle.optimum(problem))


def test_a_pattern_that_looks_the_same_from_each_result_is_one_kernel() -> None:
    """Three products of one matrix match in six orders, and with one product taken twice."""
    case = CASES["three products"]
    search = Search.of(case.graph(), targets=[target(case.composites)], default_rules=False)
    found = [node for node in search.snapshot.nodes if node.kind == "composite"]
    assert len(found) == 1 and found[0].outputs == 3


def test_what_does_not_occur_together_is_no_kernel() -> None:
    """The sum is there, and the normalisation of something else."""
    x, y = eqsat.input("x", (2, 4, 8)), eqsat.input("y", (2, 4, 8))
    model = eqsat.graph([x + y, op.LayerNormalization(x, weights(8), weights(8))])
    result = eqsat.optimize(model, targets=[target(ADD_NORM)])
    assert all(node.body is None for node in result.plan.nodes)
    reasons = {row.op: row.refusals[0].reason for row in result.summary.host_operators}
    assert reasons["Add"] == "npu runs Add only within add_norm"


def test_the_condition_that_fails_is_reported_for_each_operator() -> None:
    text = f'{ADD_NORM}        where s.rank == 3, d.shape[-1] == 16 because "it has 16 lanes"\n'
    result = eqsat.optimize(add_norm(sum_outside=True), targets=[target(text)])
    reasons = {row.op: row.refusals[0].reason for row in result.summary.host_operators}
    assert "only where d.shape[-1] == 16 (it has 16 lanes): d.shape is [2, 4, 8]" in reasons["Add"]
    assert "only where d.shape[-1] == 16 (it has 16 lanes)" in reasons["LayerNormalization"]
    assert "only within" not in reasons["Sigmoid"]


def test_names_of_composites_are_told_apart() -> None:
    """`pair_2` of two operands with one result, `pair` of two operands with two results."""
    text = """
    composite pair_2 : exact
        Exp(x + y)
        cost 1e-9
    composite pair : exact
        a = x * y, b = x - y
        cost 1e-9
"""
    x, y = eqsat.input("x", (4,)), eqsat.input("y", (4,))
    model = eqsat.graph([op.Exp(x + y), x * y, x - y])
    result = eqsat.optimize(model, targets=[target(text)], default_rules=False)
    assert sorted(node.op.name for node in result.plan.nodes) == ["pair", "pair_2"]
    same(result.run(feed(model)), eqsat.run(model, feed(model)))


def test_optimizing_a_result_again_changes_nothing(tmp_path: Path) -> None:
    case = CASES["sum and norm, both read"]
    first = eqsat.optimize(case.graph(), targets=[target(case.composites)])
    second = eqsat.optimize(inline(first.model), targets=[target(case.composites)])
    assert second.cost == pytest.approx(first.cost)
    assert [r.nodes for r in second.regions] == [r.nodes for r in first.regions]


SMALL = """
    supports Mul, Exp
    composite sum_relu : exact
        s = x + y, d = Relu(s)
        cost {0}e-7
    composite sum_product : exact
        a = x + y, b = x * z
        cost {1}e-7
    composite chain : exact
        (a, c) = (Exp(x), Relu(Exp(x)) + y)
        cost {2}e-7
"""


def random_graph(seed: int) -> ir.Model:
    rng = np.random.default_rng(seed)
    tensors = [eqsat.input(name, (2, 3)) for name in "xy"]
    for _ in range(rng.integers(4, 7)):
        a, b = (tensors[int(i)] for i in rng.integers(max(0, len(tensors) - 3), len(tensors), 2))
        operators = [lambda a=a, b=b: a + b, lambda a=a, b=b: a * b, lambda a=a: op.Relu(a), lambda a=a: op.Exp(a)]
        tensors.append(operators[rng.choice(4, p=(0.4, 0.2, 0.3, 0.1))]())
    return eqsat.graph(tensors[-2:])


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(seed: int) -> None:
    """The best program by enumeration, and its values."""
    costs = np.random.default_rng(seed).integers(1, 9, 3)
    npu, model = target(SMALL.format(*costs)), random_graph(seed)
    search = Search.of(model, targets=[npu], default_rules=False)
    problem = search.priced.formulation.problem
    assert solve(problem).cost == pytest.approx(oracle.optimum(problem)), seed
    result = search.extract()
    same(result.run(feed(model)), eqsat.run(model, feed(model)))
    assert search.audit().ok
