"""Models whose sizes stay free are quantized like others; bodies of control flow stay in floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.errors import EqsatError, QuantizationError
from eqsat.quantization.noise import decibel
from eqsat.quantization.result import QuantizationResult

RNG = np.random.default_rng(0)
SIZES = ((1, 8), (2, 31), (3, 20), (2, 16))


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def rows(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> ir.Model:
    x = eqsat.input("x", ("N", "S", 256))
    h = op.Relu(op.MatMul(x, weights(256, 512)) + RNG.standard_normal(512).astype(np.float32))
    return eqsat.graph(op.MatMul(h, weights(512, 256)))


def image() -> ir.Model:
    x = eqsat.input("x", ("N", 3, "H", "W"))
    y = op.Relu(op.Conv(x, 0.3 * rows(32, 3, 3, 3), rows(32), pads=[1, 1, 1, 1]))
    y = op.GlobalAveragePool(op.Conv(y, 0.1 * rows(32, 32, 3, 3), rows(32)))
    return eqsat.graph(op.Gemm(op.Flatten(y), weights(32, 10), rows(10)))


def noise(model: ir.Model, result: QuantizationResult, folder: Path, x: np.ndarray) -> float:
    """The SQNR of the saved result in ONNX Runtime, on inputs of some size."""
    path = folder / "result.onnx"
    result.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = np.asarray(session.run(None, {"x": x})[0])
    (expected,) = eqsat.run(model, {"x": x}).values()
    assert found.shape == expected.shape
    return decibel(float(np.square(found - expected).sum() / np.square(expected).sum()))


def test_sizes_stay_free_and_the_result_holds_at_other_sizes(tmp_path: Path) -> None:
    model = network()
    result = eqsat.quantize(model, [{"x": rows(n, s, 256)} for n, s in SIZES], budget="30dB")
    assert "QLinearMatMul" in [n.op_type for n in result.model.graph] and result.cost < result.baseline_cost
    assert str(result.model.graph.inputs[0].shape) == "[N,S,256]"
    assert result.share.work == 1.0 and result.share.macs == 2 * 16 * (2 * 256 * 512 + 512)
    assert any("N = 2, S = 16" in note for note in result.summary.notes)
    for n, s in ((1, 1), (5, 3), (2, 200)):
        assert noise(model, result, tmp_path, rows(n, s, 256)) > 30


def test_images_of_any_size(tmp_path: Path) -> None:
    model = image()
    result = eqsat.quantize(model, [{"x": rows(1, 3, h, w)} for h, w in ((24, 24), (40, 32), (32, 48))])
    assert any(n.op_type == "QLinearConv" for n in result.model.graph)
    for n, h, w in ((1, 9, 11), (3, 64, 50)):
        assert noise(model, result, tmp_path, rows(n, 3, h, w)) > 25


def test_simulated_and_in_three_functions() -> None:
    model, data = network(), [{"x": rows(n, s, 256)} for n, s in SIZES]
    simulated = eqsat.quantize(model, data, simulate=True)
    assert [n.op_type for n in simulated.model.graph].count("QuantizeLinear") > 0
    parts = eqsat.quantize(model, data, conversions="fully_integral")
    assert [n.op_type for n in parts.model.graph] == ["prefix", "core", "suffix"]
    x = rows(2, 5, 256)
    for found in (simulated, parts):
        (y,) = found.run({"x": x}).values()
        (expected,) = eqsat.run(model, {"x": x}).values()
        assert np.abs(y - expected).max() < 0.1 * np.abs(expected).max()


def test_a_range_decides_where_costs_are_taken_and_bounds_the_samples() -> None:
    model, data = network(), [{"x": rows(n, s, 256)} for n, s in SIZES]
    result = eqsat.quantize(model, data, dims={"N": (1, 4, 3), "S": (1, 64, 32)})
    assert any("N = 3, S = 32" in note for note in result.summary.notes)
    with pytest.raises(QuantizationError, match=r"sizes within the range 1\.\.16 of `S`.*sample 1|sample 1.*got 31"):
        eqsat.quantize(model, data, dims={"S": (1, 16)})
    with pytest.raises(EqsatError, match="Q"):
        eqsat.quantize(model, data, dims={"Q": (1, 16)})


def test_on_the_command_line(tmp_path: Path) -> None:
    eqsat.save(network(), tmp_path / "model.onnx")
    folder = tmp_path / "samples"
    folder.mkdir()
    for k, (_, s) in enumerate(SIZES):
        np.savez(folder / f"{k}.npz", x=rows(1, s, 256))
    arguments = ["quantize", str(tmp_path / "model.onnx"), "-c", str(folder), "-o", str(tmp_path / "out.onnx")]
    for more in ([], ["--dim", "S=1..64@32", "--dim", "N=1"]):
        assert main([*arguments, *more]) == 0
        shape = eqsat.load(tmp_path / "out.onnx").graph.inputs[0].shape
        assert str(shape) == ("[1,S,256]" if more else "[N,S,256]")


def looped() -> ir.Model:
    x, n = eqsat.input("x", (4, 128)), eqsat.input("n", (), np.int64)
    h = op.Relu(op.MatMul(x, weights(128, 256)))
    inner = weights(256, 256)
    y = op.Loop(n, None, h, body=lambda i, go, s: (go, op.Relu(op.Relu(op.Tanh(op.MatMul(s, inner))))))
    return eqsat.graph(op.MatMul(y, weights(256, 64)))


def test_bodies_stay_in_floats_and_count() -> None:
    model = looped()
    data = [{"x": rows(4, 128), "n": np.array(k)} for k in (0, 1, 2, 3)]
    result = eqsat.quantize(model, data)
    floats = eqsat.optimize(model)
    assert [(f.op, f.reason) for f in result.floats] == [("Loop", "bodies of control flow stay in floats")]
    assert [n.op_type for n in result.model.graph].count("QLinearMatMul") == 2
    # The loop is most of the cost, before and after.
    assert 0.5 * floats.cost < result.cost < floats.cost
    for k in (0, 1, 5):
        feeds = {"x": rows(4, 128), "n": np.array(k)}
        (y,), (expected,) = result.run(feeds).values(), eqsat.run(model, feeds).values()
        assert np.square(y - expected).sum() < 1e-2 * np.square(expected).sum()
