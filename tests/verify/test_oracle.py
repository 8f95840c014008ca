"""Whom verification may ask: not where an implementation is wrong, or ends the process."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.ops.evaluate import evaluate
from eqsat.ops.reference import ReferenceNode
from eqsat.schema import opset
from eqsat.schema.attributes import make_attrs, to_protos
from eqsat.schema.types import Attrs, OpKey
from eqsat.search import Search
from eqsat.verify.oracle import Failed, FallbackOracle

ERF = OpKey("", "Erf")


def reference(op: OpKey, attrs: Attrs, *inputs: np.ndarray) -> np.ndarray:
    return ReferenceNode(op, opset.opset_version(""), to_protos(attrs, op), 1)(inputs)[0]


def refused(op: OpKey, attrs: Attrs, *inputs: np.ndarray) -> bool:
    with pytest.raises(Failed, match="the reference is wrong"):
        FallbackOracle(("onnx.reference",))(op, attrs, inputs, 1)
    return True


def test_the_reference_computes_erf_of_float64_in_float32() -> None:
    x = np.array([0.1, -0.28, 1.2])
    exact = np.array([math.erf(v) for v in x])
    assert refused(ERF, (), x) and abs(reference(ERF, (), x) - exact).max() > 1e-10
    np.testing.assert_allclose(evaluate(ERF, (), [x], 1)[0], exact, rtol=1e-15)
    np.testing.assert_array_equal(
        FallbackOracle(("onnx.reference",))(ERF, (), [x.astype(np.float32)], 1)[0].dtype, np.float32
    )


def test_a_gelu_of_float64_may_be_moved() -> None:
    """Others round its constants to float32, so that eqsat's own kernel differs from them beyond rounding."""
    op_, attrs = OpKey("", "Gelu"), make_attrs(OpKey("", "Gelu"), {"approximate": "tanh"})
    x = np.linspace(-3, 3, 12)
    exact = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(FallbackOracle()(op_, attrs, [x], 1)[0], exact, rtol=1e-14)
    moved = eqsat.graph(op.Gelu(op.Transpose(eqsat.input("x", (3, 4), dtype=np.float64)), approximate="tanh"))
    search = Search.of(moved)
    results = [search.extract("random", seed).plan.nodes for seed in range(12)]
    assert {nodes[0].op.name for nodes in results} == {"Gelu", "Transpose"}


def test_operators_without_operands_are_asked_for() -> None:
    oracle, op_ = FallbackOracle(), OpKey("", "Constant")
    (found,) = oracle(op_, make_attrs(op_, {"value_float": 2.5}), [], 1)
    assert found == np.float32(2.5) and oracle.said() != ("eqsat",)


def test_the_reference_spreads_scales_of_channels_over_the_wrong_axis() -> None:
    op, one = OpKey("", "QLinearConv"), np.float32(1)
    x, w = np.ones((1, 1, 3), np.uint8), np.arange(1, 11, dtype=np.uint8).reshape(5, 1, 2)
    scales, zeros, zero = np.arange(1, 6, dtype=np.float32), np.zeros(5, np.uint8), np.uint8(0)
    inputs = [np.asarray(v) for v in (x, one, zero, w, scales, zeros, one, zero)]
    attrs = make_attrs(op, {"kernel_shape": [2], "strides": [1], "pads": [0, 0], "dilations": [1]})
    wanted = (w.reshape(5, 2).sum(1) * scales)[None, :, None].repeat(2, axis=2)
    assert refused(op, attrs, *inputs) and reference(op, attrs, *inputs).shape != wanted.shape
    np.testing.assert_array_equal(evaluate(op, attrs, inputs, 1)[0], wanted)


def test_onnx_runtime_is_not_asked_for_normalizations_of_nothing() -> None:
    """It may end the process."""
    pytest.importorskip("onnxruntime")
    op = OpKey("", "InstanceNormalization")
    x, ones = np.zeros((1, 2, 0), np.float32), np.ones(2, np.float32)
    with pytest.raises(Failed, match="crash"):
        FallbackOracle(("onnxruntime",))(op, make_attrs(op, {"epsilon": 1e-5}), [x, ones, ones], 1)


NOTHING = {
    "Attention": ({}, [(2, 0, 4, 8), (2, 0, 6, 8), (2, 0, 6, 8)]),
    "Conv": ({"pads": [0] * 4}, [(1, 0, 5, 5), (1, 0, 3, 3)]),
    "ConvTranspose": ({}, [(1, 1, 3, 0, 5), (1, 2, 3, 3, 3)]),
    "GRU": ({"hidden_size": 5}, [(0, 3, 2), (1, 15, 2), (1, 15, 5)]),
    "LSTM": ({"hidden_size": 3}, [(1, 0, 2), (1, 12, 2), (1, 12, 3)]),
}


@pytest.mark.parametrize("name", NOTHING)
def test_onnx_runtime_is_not_asked_for_kernels_of_nothing(name: str) -> None:
    """Some end the process, and Conv does not end if there are no channels."""
    pytest.importorskip("onnxruntime")
    op = OpKey("", name)
    given, shapes = NOTHING[name]
    attrs, inputs = make_attrs(op, given), [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(Failed, match="crash"):
        FallbackOracle(("onnxruntime",))(op, attrs, inputs, 1)


@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_layers_of_no_steps_are_verified(cell: str) -> None:
    rng, gates = np.random.default_rng(0), {"GRU": 3, "LSTM": 4}[cell]
    w, r = (rng.normal(size=(1, gates * 4, n)).astype(np.float32) for n in (3, 4))
    x = eqsat.input("x", (0, 1, 3))
    layer = getattr(eqsat.op, cell)(x, w, r, hidden_size=4)
    result = eqsat.optimize(eqsat.graph(layer[1]))
    assert result.summary.verification is not None and result.summary.verification.agrees
    (state,) = result.run({"x": np.zeros((0, 1, 3), np.float32)}).values()
    np.testing.assert_array_equal(state, np.zeros((1, 1, 4), np.float32))


def test_onnx_runtime_is_not_asked_for_scans_of_nothing() -> None:
    """It divides by the number of rounds."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        g (float[3] s, float[3,n] x) => (float[3] e, float[3,m] y) <int64[1] last = {9}, int64[1] one = {1}> {
            rows = Slice(x, one, last, one)
            e, y = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
                body = b (float[3] a, float[3] b) => (float[3] c, float[3] d) { c = Add(a, b) d = Relu(c) }>(s, rows)
        }""")
    result = eqsat.optimize(model, dims={"n": (1, 8, 2)})
    start = np.array([1, -2, 3], np.float32)
    found = result.run({"s": start, "x": np.ones((3, 1), np.float32)})
    np.testing.assert_array_equal(found["e"], start)
    assert found["y"].shape == (3, 0)


@pytest.mark.parametrize("outputs", ["float[3] a, float[3] b", "float[3] a, float[3] a", "float[3] c, float[3] a"])
def test_onnx_runtime_is_not_asked_for_scans_that_hand_on_inputs(outputs: str) -> None:
    """It leaves their results as it finds them in memory."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20]>
        g (float[3] s, float[n,3] x) => (float[3] e, float[n,3] y) {{
            e, y = Scan<num_scan_inputs=1, body = b (float[3] a, float[3] b) => ({outputs}) {{ c = Add(a, b) }}>(s, x)
        }}""")
    result = eqsat.optimize(model, dims={"n": (1, 8, 2)})
    start, rows = np.array([1, -2, 3], np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    found = result.run({"s": start, "x": rows})
    sums = "c" in outputs
    np.testing.assert_array_equal(found["e"], start + rows.sum(axis=0) if sums else start)
    np.testing.assert_array_equal(found["y"], rows if outputs.endswith("b") else [start, start + rows[0] * sums])


def test_a_refusal_says_what_was_found_and_no_codes() -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(Failed) as caught:
        FallbackOracle()(OpKey("", "Gather"), (("axis", 0),), [np.ones(3, np.float32), np.array([7])], 1)
    assert str(caught.value).startswith("onnxruntime: indices element out of data bounds, idx=7")
    assert "Status Message" not in str(caught.value)
