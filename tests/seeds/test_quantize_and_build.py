"""A post on ``relay.quantize``: TVM's own test of a product whose right operand is not a constant, in every mode.

``quantize_and_build(act * sigmoid(data2))`` and ``quantize_and_build(act * global_avg_pool2d(act))`` with act =
relu(conv2d(data)); the post goes on to ``do_simulation``, to ``partition_conversions`` and its three values, and to the
integers that ``realize`` leaves. TVM fails on some of these graphs with ``enabled`` and ``fully_integral``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.partition.saved import inline
from tests.fuzz.check import ort_outputs
from tests.quantization.runtime import needs_exact_products

Samples = dict[str, np.ndarray]
GRAPHS = ("sigmoid", "pool", "bias and relu", "residual")
MODES = ("disabled", "enabled", "fully_integral")


def build(graph: str) -> ir.Model:
    """The two graphs of the post, and the two others on which TVM fails."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 12).astype(np.float32)

    data = eqsat.input("data", (1, 16, 64, 64))
    if graph == "residual":
        conv = op.Conv(data, weights(16, 16, 3, 3), weights(16), pads=[1, 1, 1, 1])
        return eqsat.graph(op.Relu(conv + data))
    if graph == "bias and relu":
        return eqsat.graph(op.Relu(op.Conv(data, weights(16, 16, 3, 3), weights(16), pads=[1, 1, 1, 1])))
    act = op.Relu(op.Conv(data, weights(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    multiplier = op.Sigmoid(eqsat.input("data2", (1, 16, 1, 1))) if graph == "sigmoid" else op.GlobalAveragePool(act)
    return eqsat.graph(act * multiplier)


def samples(model: ir.Model, number: int = 6, deviation: float = 1.0, seed: int = 1) -> Samples:
    rng = np.random.default_rng(seed)
    shapes = {str(v.name): tuple(v.shape.numpy()) for v in model.graph.inputs if v.shape is not None}
    return {n: (deviation * rng.standard_normal((number, *s))).astype(np.float32) for n, s in shapes.items()}


def first(data: Samples) -> Samples:
    return {name: array[0] for name, array in data.items()}


def relative_rms(model: ir.Model, result: eqsat.Result, data: Samples) -> float:
    """Of the result, by ONNX Runtime, on a sample that calibration has seen, to the float model's output."""
    arrays = first(data)
    (exact,) = ort_outputs(ir.to_proto(model).SerializeToString(), arrays).values()
    content = ir.to_proto(result.model).SerializeToString()
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    (found,) = ort_outputs(content, arrays).values()
    (own,) = Executor(load(content)).run(arrays).values()
    # One step of the output's integers, where a sum falls to the other side.
    assert np.abs(own - found).max() <= np.abs(exact).max() / 100
    assert np.mean(own != found) < 0.01
    return float(np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)))


def float_operators(nodes: object) -> list[str]:
    """Operators that compute with floats; pairs at the border do not."""
    found = []
    for node in nodes:
        kinds = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype is not None}
        data = [v for v in (node.inputs[0], node.outputs[0]) if v is not None]
        if any(v.dtype == ir.DataType.FLOAT for v in data) and node.op_type not in (
            "QuantizeLinear",
            "DequantizeLinear",
        ):
            found.append(node.op_type)
        assert kinds
    return found


@needs_exact_products
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_graph_in_every_mode(graph: str, mode: str) -> None:
    model = build(graph)
    data = samples(model)
    result = eqsat.quantize(model, data, conversions=mode)
    assert relative_rms(model, result, data) < 0.02
    plain = load(inline(result.model))
    if mode != "disabled":
        names = [f.name for f in result.model.functions.values()]
        assert names.count("core") == 1 and set(names) >= {"prefix", "core", "suffix"}
        core = next(f for f in result.model.functions.values() if f.name == "core")
        assert not {n.op_type for n in core} & {"QuantizeLinear", "DequantizeLinear"}
    if mode == "fully_integral":
        assert float_operators(plain.graph) == []
    # Everything that can be an integer is one: products, sums and pools.
    assert not set(float_operators(plain.graph)) & {"Conv", "Mul", "Add", "GlobalAveragePool", "Relu"}


@pytest.mark.parametrize("graph", GRAPHS)
def test_simulation(graph: str) -> None:
    """``do_simulation``: floats that are what the integers stand for."""
    model = build(graph)
    data = samples(model)
    result = eqsat.quantize(model, data, simulate=True)
    operators = [n.op_type for n in inline(result.model).graph]
    assert "Conv" in operators and "QuantizeLinear" in operators and "QLinearConv" not in operators
    assert relative_rms(model, result, data) < 0.02


@needs_exact_products
@pytest.mark.parametrize("graph", ["sigmoid", "pool"])
@pytest.mark.parametrize("deviation", [0.1, 1.0, 3.0, 10.0])
def test_the_data_decide_the_scales(graph: str, deviation: float) -> None:
    # TVM's default, `global_scale=8`, ignores them: .35, .036, .050 and .58 on a convolution.
    model = build(graph)
    data = samples(model, deviation=deviation)
    assert relative_rms(model, eqsat.quantize(model, data), data) < 0.02


def test_a_skipped_layer_stays_a_float() -> None:
    """``skip_conv_layers``; the post's example sets it to none."""
    model = build("pool")
    (conv,) = (n for n in model.graph if n.op_type == "Conv")
    data = samples(model)
    share = eqsat.quantize(model, data).share
    assert (share.floating, share.work) == (0, 1.0)
    result = eqsat.quantize(model, data, skip=[str(conv.outputs[0].name)])
    assert "Conv" in [n.op_type for n in inline(result.model).graph]
    with pytest.raises(eqsat.errors.QuantizationError, match="name of a node"):
        eqsat.quantize(model, data, skip=["conv_7"])


def test_what_cannot_be_an_integer_is_named() -> None:
    """``fully_integral`` on what has no integer form: TVM ends with a bare AssertionError."""
    x = eqsat.input("data", (1, 4, 16))
    model = eqsat.graph(op.Relu(op.LpNormalization(op.Relu(x), axis=2)))
    with pytest.raises(eqsat.errors.QuantizationError, match=r"Lp.* LpNormalization has no integer form"):
        eqsat.quantize(model, samples(model), conversions="fully_integral")


def test_a_saved_result_is_the_result(tmp_path: Path) -> None:
    model = build("sigmoid")
    data = samples(model)
    result = eqsat.quantize(model, data, conversions="enabled")
    result.save(tmp_path / "q.onnx")
    arrays = first(data)
    for name, array in Executor(load(tmp_path / "q.onnx")).run(arrays).items():
        np.testing.assert_array_equal(array, result.run(arrays)[name])
