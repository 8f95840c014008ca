"""Models that ONNX Runtime's tools wrote are optimized, verified as a whole, and give ONNX Runtime's result."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from tests.model.running import run_ort
from tests.quantized.runtime_models import NETWORKS, TOOLS, at_opset, feed

HARDWARE = "com.microsoft.nchwc"
"""Operators that ONNX Runtime writes at the level `all`, on weights in blocks as wide as the machine's registers."""


@cache
def network(name: str) -> onnx.ModelProto:
    return at_opset(NETWORKS[name](), 21)


@cache
def made_by(tool: str, name: str) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        return TOOLS[tool](network(name), Path(folder))


def checked(model: onnx.ModelProto, targets: tuple[str, ...], folder: Path, atol: float) -> eqsat.Result:
    """Optimizes a model; the saved file must give what ONNX Runtime computes of the model."""
    arrays = feed(model, 5)
    expected = run_ort(model, arrays)
    result = eqsat.optimize(model, targets=targets)
    path = folder / "result.onnx"
    result.save(path)
    for found, wanted in zip(run_ort(onnx.load(path), arrays), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=atol)
    domains = {node.domain for node in model.graph.node}
    if HARDWARE not in domains:
        assert result.summary.verification.agrees, result.summary.verification.skipped
        own = result.run(arrays)
        for value, wanted in zip(model.graph.output, expected, strict=True):
            np.testing.assert_allclose(own[value.name], wanted, rtol=1e-5, atol=atol)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("targets", [(), ("dnnl",)], ids=["host", "dnnl"])
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", NETWORKS)
def test_tools(name: str, tool: str, targets: tuple[str, ...], tmp_path: Path) -> None:
    made = made_by(tool, name)
    result = checked(made, targets, tmp_path, 0.05 if tool == "QDQ" else 2e-6)
    foreign = [n.op_type for n in made.graph.node if n.domain == HARDWARE]
    kept = [n.op_type for n in ir.to_proto(result.model).graph.node if n.domain == HARDWARE]
    assert sorted(kept) == sorted(foreign)


def test_the_tools_write_the_operators_that_are_meant() -> None:
    """The networks above contain each of them, so that the tests above are tests of them."""
    written = {n.op_type for name in NETWORKS for tool in TOOLS for n in made_by(tool, name).graph.node if n.domain}
    assert written >= {
        "Attention",
        "BiasGelu",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "FusedConv",
        "FusedMatMul",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearAdd",
        "QLinearAveragePool",
        "QLinearConcat",
        "QLinearGlobalAveragePool",
        "QLinearLeakyRelu",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearSoftmax",
        "QuickGelu",
        "SkipLayerNormalization",
    }
