"""Quantized networks load in ONNX Runtime however they are cut into functions, and compute there what they do here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from benchmarks.models import SHARED
from eqsat import op
from tests.fuzz.check import ort_outputs
from tests.quantization.runtime import needs_exact_products

MODES = ("disabled", "enabled", "fully_integral")
FLOATS = [path for path in sorted(SHARED.glob("*.onnx")) if ".q" not in path.name]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32) / 4


def concatenated(last: bool) -> onnx.ModelProto:
    """Branches of three scales in one Concat, which may be the output itself."""
    x = eqsat.input("x", (1, 4, 8, 8))
    one = op.Relu(op.Conv(x, weights(4, 4, 3, 3), pads=[1, 1, 1, 1]))
    two = op.Relu(op.Conv(x, weights(4, 4, 1, 1)))
    three = op.Conv(x, weights(4, 4, 1, 1) * 9)
    whole = op.Concat(one, two, three, axis=1)
    return onnx_of(eqsat.graph(whole if last else op.Conv(whole, weights(4, 12, 1, 1))))


def onnx_of(model: ir.Model) -> onnx.ModelProto:
    return ir.to_proto(model)


def samples(model: onnx.ModelProto, count: int = 2) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    inputs = {i.name: [d.dim_value or 1 for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return [{n: rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()} for _ in range(count)]


def loads_and_agrees(model: onnx.ModelProto, mode: str, targets: tuple[str, ...] = ()) -> None:
    data = samples(model)
    result = eqsat.quantize(model, data, targets=targets, conversions=mode)
    content = saved(result)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    for feed in data:
        here, there = result.run(feed), ort_outputs(content, feed)
        for name, value in here.items():
            step = max(float(np.abs(value).max()), 1e-6) / 100
            np.testing.assert_allclose(there[name], value, atol=2 * step, err_msg=name)


def saved(result: eqsat.QuantizationResult) -> bytes:
    return onnx_of(result.model).SerializeToString()


@needs_exact_products
@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True], ids=["inside", "output"])
@pytest.mark.parametrize("mode", MODES)
def test_concatenations_of_several_scales(mode: str, last: bool) -> None:
    loads_and_agrees(concatenated(last), mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", [p for p in FLOATS if p.stem in ("tiny_ae", "tiny_dscnn")], ids=lambda p: p.stem)
def test_shared_networks(path: Path, mode: str) -> None:
    try:
        loads_and_agrees(onnx.load(path), mode)
    except eqsat.errors.QuantizationError as error:
        assert mode == "fully_integral", error


@pytest.mark.heavy
@pytest.mark.parametrize("targets", [(), ("dnnl",), ("ethos_n",)], ids=lambda t: ",".join(t) or "host")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", FLOATS, ids=lambda p: p.stem)
def test_all_shared_networks(path: Path, mode: str, targets: tuple[str, ...]) -> None:
    try:
        loads_and_agrees(onnx.load(path), mode, targets)
    except eqsat.errors.QuantizationError as error:
        assert mode == "fully_integral", error


def test_a_region_with_a_concatenation_loads(tmp_path) -> None:
    """A target that takes QLinearConcat itself: its region is a function, too."""
    target = tmp_path / "npu.target"
    target.write_text(
        """
        target npu
            summary "test"
            peak uint8 = 1e15, float32 = 1e15
            bandwidth = 1e15, launch = 0
            link bandwidth = 1e15, latency = 0
            supports com.microsoft.QLinearConcat, QLinearConv
    """,
        "utf-8",
    )
    model = concatenated(last=False)
    data = samples(model)
    result = eqsat.quantize(model, data, targets=[target])
    assert "npu" in {region.target for region in result.regions}
    session = onnxruntime.InferenceSession(saved(result), providers=["CPUExecutionProvider"])
    assert session.get_outputs()
