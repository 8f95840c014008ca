"""What is executed, on what, by whom; and that thresholds deep in a network are reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import eqsat
from eqsat import op
from eqsat.egraph.limits import LastGuard
from eqsat.errors import VerificationError
from eqsat.search import Search
from eqsat.verify import verify

LAYERS = 8


def deep(bounded: int):
    rng = np.random.default_rng(0)
    y = eqsat.input("x", (1, 8, 8, 8))
    for layer in range(LAYERS):
        weight = (rng.standard_normal((8, 8, 3, 3)) * np.sqrt(2 / 72)).astype(np.float32)
        y = op.Conv(y, weight, pads=[1, 1, 1, 1])
        y = op.Clip(y, np.float32(0), np.float32(60)) if layer == bounded else op.Relu(y)
    return eqsat.graph(y)


@pytest.mark.parametrize("layer", [0, LAYERS // 2, LAYERS - 1])
def test_thresholds_in_the_middle_of_a_network_are_reached(layer: int, tmp_path: Path) -> None:
    path = tmp_path / "wrong.rules"
    path.write_text("rule wrong : exact\n    Clip(x, 0, 60) => Relu(x)\n", "utf-8")
    with pytest.raises(VerificationError, match="`wrong`"):
        for objective in ("best", "worst"):
            eqsat.optimize(deep(layer), rules=[path], default_rules=False, objective=objective, trust=True)


def test_what_a_rule_knows_of_the_operator_before_is_no_difference(tmp_path: Path) -> None:
    # Cut between the two, the second Relu does something.
    path = tmp_path / "right.rules"
    path.write_text("rule right : exact\n    Relu(Relu(x)) => Relu(x)\n", "utf-8")
    x = eqsat.input("x", (2, 3))
    result = eqsat.optimize(eqsat.graph(op.Relu(op.Relu(x * x - x))), rules=[path], default_rules=False)
    assert [node.op.name for node in result.plan.nodes].count("Relu") == 1
    seen = result.summary.verification
    assert seen is not None and seen.agrees and seen.executed == seen.pieces == 1


def test_a_result_that_the_runtime_refuses_is_no_result(tmp_path: Path) -> None:
    # ONNX Runtime has a mean of nothing, but no average over nothing; eqsat's kernels give NaN for both.
    path = tmp_path / "wrong.rules"
    path.write_text("rule wrong : real\n    ReduceMean(x, a, keepdims=1) => GlobalAveragePool(x)\n", "utf-8")
    mean = eqsat.graph(op.ReduceMean(eqsat.input("x", (1, 3, 0, 4)), np.array([2, 3]), keepdims=1))
    with pytest.raises(VerificationError, match="onnxruntime executes the input but not the result"):
        eqsat.optimize(mean, rules=[path], default_rules=False, trust=True)
    assert [node.op.name for node in eqsat.optimize(mean).plan.nodes] == ["ReduceMean"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_half_of_the_lowest_number_of_a_mask_hides_as_much(dtype: str) -> None:
    """Rules put it in its place; only scores as large as the numbers of the type see a difference."""
    shape = (3, 1, 1, 5)
    mask = np.array([[[[-1.25, 2.0, -0.75]]], [[[1.5, 0.75, -np.inf]]], [[[1.25, 0.25, -np.inf]]]])
    mask = np.maximum(mask, float(np.finfo(dtype).min)).astype(dtype)
    q, k, v = (eqsat.input(n, s, dtype) for n, s in (("q", shape), ("k", (3, 1, 3, 5)), ("v", (3, 1, 3, 4))))
    search = Search.of(eqsat.graph(op.Attention(q, k, v, mask, scale=0.125)))
    for seed in (16, 46, 55, 114, 188):
        seen = search.extract("random", seed).summary.verification
        assert seen is not None and seen.agrees


def test_overflow_of_the_input_alone_is_no_difference() -> None:
    x = eqsat.input("x", (4,), "float16")
    big, small = np.float16(300), np.float16(1e-3)
    result = eqsat.optimize(eqsat.graph(x * big * big * small))
    assert result.summary.verification is not None and result.summary.verification.agrees


def test_what_was_done_is_said_and_the_same_each_time() -> None:
    x = eqsat.input("x", (3, 5))
    graph = eqsat.graph(op.Max(x * np.float32(2), np.float32(0)) + x)
    first, again = (eqsat.optimize(graph).summary.verification for _ in range(2))
    assert first == again
    assert first is not None
    assert first.done and first.agrees and first.outputs == 1 and first.input_by == ("onnxruntime",)
    assert any("thresholds" in name for name in first.samples)
    assert first.skipped == ()


def test_without_the_runtime_the_reference_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat.verify import oracle

    monkeypatch.setattr(oracle, "runtime", lambda: None)
    x = eqsat.input("x", (3, 5))
    seen = eqsat.optimize(eqsat.graph(op.Max(x, np.float32(0)))).summary.verification
    assert seen is not None and seen.agrees and seen.input_by == ("onnx.reference",)


def test_random_operators_are_not_executed_and_that_is_said() -> None:
    x = eqsat.input("x", (3, 5))
    seen = eqsat.optimize(eqsat.graph(op.RandomUniformLike(x) + x)).summary.verification
    assert seen is not None and not seen.done and seen.agrees is None
    assert seen.skipped == ("the network as a whole: RandomUniformLike is random",)


def test_switched_off() -> None:
    x = eqsat.input("x", (3, 5))
    seen = eqsat.optimize(eqsat.graph(op.Relu(x)), verify=False).summary.verification
    assert seen is not None and not seen.done and seen.agrees is None and seen.skipped == ("switched off",)


def test_where_the_runtime_and_the_specification_differ_the_specification_decides(tmp_path: Path) -> None:
    # A negative step that ends at INT_MAX: nothing, by the specification.
    path = tmp_path / "right.rules"
    path.write_text("rule right : exact\n    Neg(Slice(x, a, b, c, d)) => Slice(Neg(x), a, b, c, d)\n", "utf-8")
    x = eqsat.input("x", (1, 3))
    limits = [np.array(v, np.int64) for v in ([0], [2**31 - 1], [0], [-1])]
    graph = eqsat.graph(op.Neg(op.Slice(x, *limits)))
    for seed in range(6):
        result = eqsat.optimize(graph, rules=[path], default_rules=False, objective="random", seed=seed)
        assert result.summary.verification is not None and result.summary.verification.agrees


def test_a_loop_that_takes_too_long_is_not_verified() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        <int64 trips = {1000000000000}, bool go = {1}, float zero = {0}> {
        last = Loop (trips, go, zero) <body = b (int64 i, bool c, float v) => (bool d, float w) <float one = {1}> {
            d = Identity (c) w = Add (v, one) }>
        y = Add (x, last) }"""
    seen = eqsat.optimize(onnx.parser.parse_model(text)).summary.verification
    assert seen is not None and seen.agrees is None
    assert any("executed operators are allowed" in reason for reason in seen.skipped)


def test_what_is_left_when_the_time_is_over_is_not_executed_and_that_is_said() -> None:
    x = eqsat.input("x", (3, 5))
    search = Search.of(eqsat.graph(op.Max(x * np.float32(2), np.float32(0)) + x))
    found = search.extract(verify=False)
    verifier = search.verifier(found.plan, found.model)
    verifier.guard = LastGuard(0)
    while not verifier.guard.is_over():
        pass
    seen = verifier.run()
    assert seen.agrees is None and not seen.done and not seen.executed and seen.pieces
    assert [reason.split(": ")[1].split(" (")[0] for reason in seen.skipped] == 2 * ["the time limit was reached"]


def test_a_result_that_does_not_fit_into_memory_is_not_verified() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <int64[1] size = {100000000}> {
        large = ConstantOfShape (size) sum = ReduceSum (large) y = Add (x, sum) }"""
    seen = eqsat.optimize(onnx.parser.parse_model(text), memory_limit="300MB").summary.verification
    assert seen is not None and seen.agrees is None
    assert any("memory limit" in reason for reason in seen.skipped)


def test_a_loop_without_a_condition_makes_all_its_rounds():
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) <int64 n = {3}> {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[2, 3] v) => (bool d, float[2, 3] w)
            { d = Identity(c) w = Neg(v) }> }"""
    verified = eqsat.optimize(text).summary.verification
    assert verified is not None
    assert verified.agrees


@pytest.mark.parametrize("seed", range(3))
def test_constants_that_the_input_computes_may_be_rounded(seed: int) -> None:
    # In float64 the weights are not rounded, and the sum of a convolution may cancel until only their rounding is left.
    rng = np.random.default_rng(seed)
    weights = op.DequantizeLinear(rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8), np.float32(0.0123))
    y = op.Conv(eqsat.input("x", (1, 16, 16, 16)), weights, np.ones(16, np.float32), pads=[1, 1, 1, 1])
    seen = eqsat.optimize(eqsat.graph(op.Relu(y)), host="ort").summary.verification
    assert seen is not None and seen.agrees


def test_large_sizes_are_left_out_for_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    x = eqsat.input("x", ("n", 4096))
    model = eqsat.graph(
        op.Relu(op.MatMul(x, np.ones((4096, 64), np.float32)))
    )  # its work: 0.3 million an n, 40,000 a node

    def seen() -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = eqsat.optimize(model).summary.verification
        assert found is not None
        return tuple(text.rpartition(" at ")[2] for text in found.samples if " at " in text), found.skipped

    at, skipped = seen()
    assert at == ("n = 1", "n = 7", "n = 32") and not skipped
    monkeypatch.setattr(verify, "WORK_OF_ALL_SIZES", 5_000_000)
    at, skipped = seen()
    assert at == ("n = 1", "n = 7")
    assert [text.partition(":")[0] for text in skipped] == ["the network as a whole at n = 32"]
    monkeypatch.setattr(verify, "WORK_OF_ALL_SIZES", 3_000_000)
    at, skipped = seen()
    assert at == ("n = 1", "n = 2") and len(skipped) == 2 and "left of the budget" in skipped[0]
    monkeypatch.setattr(verify, "MOST_WORK", 100_000)
    at, skipped = seen()
    assert at == () and len(skipped) == 4 and "the budget of 1e+05" in skipped[0]


TRANSPOSING = """\
target npu
    peak float32 = 1e12
    bandwidth = 1e12, launch = 1e-9, dispatch = 1e-9
    link bandwidth = 1e12, latency = 1e-9
    composite product : exact
        Relu(MatMul(x, Transpose(w, perm=[1, 0])))
        cost 1e-9
"""


def test_kernels_read_a_constant_that_a_later_composite_computes_as_well(tmp_path: Path) -> None:
    path = tmp_path / "npu.target"
    path.write_text(TRANSPOSING, "utf-8")
    turned = op.Transpose(np.arange(64, dtype=np.float32).reshape(8, 8) / 64, perm=[1, 0])
    first = op.Tanh(op.MatMul(eqsat.input("x", (4, 8)), turned))
    search = Search.of(eqsat.graph(op.Relu(op.MatMul(first, turned))), targets=[path])
    result = search.extract("best")
    assert [node.op.name for node in result.plan.nodes] == ["MatMul", "Tanh", "product"]
    verifier = search.verifier(result.plan, result.model)
    verifier.run()
    programs = verifier.programs
    ready = set(programs.given)
    for kernel in programs.kernels:
        assert all(c is None or c in ready or programs.is_constant(c) for c in kernel.inputs)
        ready |= {c for c in kernel.outputs if c is not None}
