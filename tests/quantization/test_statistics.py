"""Histograms against numpy, one pass against two, and what a calibration looks at."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.errors import QuantizationError
from eqsat.execute.executor import Executor
from eqsat.execute.trace import Trace
from eqsat.model.load import load
from eqsat.quantization.calibrate import CalibrationProgress, calibrate
from eqsat.quantization.histogram import SIDE, Histogram
from tests.quantization.networks import NETWORKS, convolution, samples

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def histogram(*parts: np.ndarray) -> Histogram:
    found = Histogram()
    for part in parts:
        found.add(part)
    return found


def same(a: Histogram, b: Histogram) -> bool:
    return (a.count, a.zeros, a.low, a.high, a.width) == (b.count, b.zeros, b.low, b.high, b.width) and np.array_equal(
        a.counts, b.counts
    )


@given(st.lists(st.lists(floats, max_size=6), min_size=1, max_size=6))
def test_against_numpy(parts: list[list[float]]):
    arrays = [np.array(p, np.float32) for p in parts]
    found, everything = histogram(*arrays), np.concatenate(arrays).astype(np.float64)
    assert found.count == everything.size and found.zeros == np.count_nonzero(everything == 0)
    assert found.counts.sum() == everything.size
    if everything.size:
        assert (found.low, found.high) == (everything.min(), everything.max())
        assert np.isclose(found.power, np.mean(everything**2), rtol=1e-12, atol=0)
    if found.width:
        expected = np.floor(everything / found.width).astype(int) + SIDE
        np.testing.assert_array_equal(found.counts, np.bincount(expected, minlength=2 * SIDE))
        assert SIDE / 2 <= np.abs(everything).max() / found.width <= SIDE


@given(st.lists(st.lists(floats, max_size=6), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_one_pass_is_as_good_as_two_in_any_order(parts: list[list[float]], random):
    arrays = [np.array(p, np.float32) for p in parts]
    shuffled = arrays.copy()
    random.shuffle(shuffled)
    assert same(histogram(*arrays), histogram(*shuffled))
    assert same(histogram(*arrays), histogram(np.concatenate(arrays)))


def test_large_arrays_are_taken_in_pieces():
    x = np.random.default_rng(0).standard_normal((1100, 1000)).astype(np.float32)
    found = histogram(x)
    assert found.count == x.size and (found.low, found.high) == (x.min(), x.max())
    assert np.isclose(found.mean, x.mean(dtype=np.float64)) and np.isclose(found.power, np.mean(x.astype(float) ** 2))


def test_what_is_not_finite_is_counted_apart():
    found = histogram(np.array([1, np.nan, -np.inf, 2], np.float32))
    assert (found.nonfinite, found.count, found.low, found.high) == (2, 2, 1, 2)


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-40, 3e38, -3e38])
def test_constant_tensors(value: float):
    found = histogram(np.full(7, value, np.float32))
    assert found.count == 7 and found.counts.max() == 7 and found.low == found.high == np.float32(value)
    assert found.zeros == (7 if value == 0 else 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_every_float_type(dtype):
    x = np.array([-1.5, 0, 0.25, 2], dtype)
    found = histogram(x)
    assert (found.low, found.high, found.count, found.power) == (-1.5, 2, 4, (2.25 + 0.0625 + 4) / 4)


# ---- traces and calibration ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_is_seen_once_with_the_executors_value(name: str):
    model = NETWORKS[name]()
    x = {k: v[0] for k, v in samples(model, 1).items()}
    seen: dict[str, np.ndarray] = {}

    def see(tensor: str, value: np.ndarray) -> None:
        assert tensor not in seen
        seen[tensor] = value.copy()

    trace = Trace(model)
    trace.observe(x, see)
    computed = [v.name or "" for node in model.graph for v in node.outputs if v.name not in trace.constants]
    assert list(seen) == [*x, *computed]
    expected = Executor(model).run(x, outputs=computed)
    state = trace.run(x)
    for tensor, value in expected.items():
        np.testing.assert_array_equal(seen[tensor], value)
        np.testing.assert_array_equal(trace.value(state, tensor), value)


def test_running_again_is_running_with_the_other_value():
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y, float[4] z) {
    a = Relu(x)  b = Neg(x)  c = Add(a, b)  y = Exp(c)  z = Sin(b) }"""
    trace = Trace(load(text))
    x = np.array([-1, 0.5, 2, 0], np.float32)
    state = trace.run({"x": x})
    before = {k: v.copy() for k, v in trace.outputs(state).items()}
    other = np.array([3, 1, 4, 1], np.float32)
    changed = trace.outputs(trace.run_again(state, "a", other))
    np.testing.assert_array_equal(changed["y"], np.exp(other - x))
    np.testing.assert_array_equal(changed["z"], np.sin(-x))
    for k, v in trace.outputs(state).items():
        np.testing.assert_array_equal(v, before[k])


def test_control_flow_and_constants():
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[2] x, bool c) => (float[2] y)
    <float[2] w = {1, 2}, int64[1] k = {0}> {
      v = Neg(w)  u = Mul(x, v)
      y = If(c) <then_branch = t () => (float[2] a) { a = Add(u, w) },
                 else_branch = e () => (float[2] b) { b = Sub(u, w) }> }"""
    model = load(text)
    found = calibrate(model, [{"x": np.ones(2, np.float32), "c": np.array(c)} for c in (True, False)])
    assert list(found.tensors) == ["x", "u", "y"] and found.samples == 2
    assert set(found.constants) == {"w", "v"}
    np.testing.assert_array_equal(found.constants["v"], [-1, -2])
    assert (found.tensors["y"].low, found.tensors["y"].high) == (-4, 0)


def test_calibration_is_that_of_all_samples():
    model = convolution()
    data = samples(model, 5)
    reports: list[CalibrationProgress] = []
    found = calibrate(model, data, progress=reports.append)
    assert reports == [CalibrationProgress("calibrate", i + 1, None) for i in range(5)]
    runs = [Executor(model).run({"x": x}, outputs=list(found.tensors)[1:]) for x in data["x"]]
    assert found.samples == 5 and next(iter(found.tensors)) == "x"
    for name, statistics in found.tensors.items():
        everything = data["x"] if name == "x" else np.stack([r[name] for r in runs])
        assert (statistics.low, statistics.high) == (everything.min(), everything.max())
        assert statistics.count == everything.size
    once = calibrate(model, ({"x": x} for x in data["x"]))
    assert all(same(once.tensors[n], found.tensors[n]) for n in found.tensors)


def test_limit():
    model = convolution()
    reports: list[CalibrationProgress] = []
    found = calibrate(model, samples(model, 5), limit=2, progress=reports.append)
    assert found.samples == 2 and reports[-1] == CalibrationProgress("calibrate", 2, 2)
    assert same(found.tensors["x"], histogram(samples(model, 5)["x"][:2]))
    with pytest.raises(QuantizationError, match="a limit of at least one sample is required; got 0"):
        calibrate(model, samples(model, 5), limit=0)


def test_memory_is_that_of_one_tensor_at_a_time():
    """A chain of large tensors: they do not pile up."""
    import tracemalloc

    count, size = 40, 250_000
    nodes = [onnx.helper.make_node("Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [value("t0", 1, [size])], [value(f"t{count}", 1, [size])])
    trace = Trace(ir.from_proto(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])))
    x = {"t0": np.ones(size, np.float32)}
    tracemalloc.start()
    trace.observe(x, lambda name, value: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 4 * size
