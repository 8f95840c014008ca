"""Both files of ONNX Runtime's quantizer: integers wherever they are possible, one cost, its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from eqsat.result import Result
from eqsat.search import Search
from tests.fuzz.check import ort_outputs
from tests.quantized.networks import attention, gated, plain, quantized, samples

NETWORKS = {"plain": plain, "gated": gated, "attention": attention}
FLOAT_OPERATORS = {"Conv", "Gemm", "MatMul", "Add", "Mul", "Div", "Concat", "AveragePool", "GlobalAveragePool"}
FLOAT_OPERATORS |= {"ReduceMean", "Sigmoid", "LeakyRelu", "Relu"}
VIEWS = {"Flatten": "Reshape", "Squeeze": "Reshape", "Unsqueeze": "Reshape"}


def step_of(model: onnx.ModelProto) -> float:
    """The quantization step of the output."""
    scales = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    (last,) = [n for n in model.graph.node if "y" in n.output]
    assert last.op_type == "DequantizeLinear"
    return float(scales[last.input[1]])


def optimized_by_ort(model: onnx.ModelProto, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    """ONNX Runtime as users run it, with its own integer kernels."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feed))[0])


def kernels(result: Result) -> Counter[str]:
    """What the program consists of; one view is as good as another."""
    return Counter(VIEWS.get(name, name) for region in result.regions for name in region.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8], ids=["u8", "s8"])
@pytest.mark.parametrize("network", NETWORKS)
def test_both_layouts_become_one_program(
    tmp_path: Path, network: str, activations: QuantType, per_channel: bool
) -> None:
    results = {}
    for layout in (QuantFormat.QDQ, QuantFormat.QOperator):
        model = quantized(tmp_path, NETWORKS[network](), layout, activations, per_channel)
        search = Search.of(model, time_limit=60)
        result = results[layout] = search.extract()
        assert result.stop_reason == "optimal"
        assert not [s for s in search.saturation.statistics if s.mismatches and "quantize" in s.place]
        assert not FLOAT_OPERATORS & set(kernels(result)), kernels(result)
        content = ir.to_proto(result.model).SerializeToString()
        step = step_of(model)
        for feed in samples(model, 4):
            ours = result.run(feed)["y"]
            np.testing.assert_allclose(ours, ort_outputs(content, feed)["y"], rtol=0, atol=1.01 * step)
            theirs = optimized_by_ort(model, feed)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1.01 * step)
            # Its float kernels, which run QDQ files without optimization, are up to 3 steps away from its integer ones.
            unoptimized = ort_outputs(model.SerializeToString(), feed)["y"]
            own = float(np.abs(theirs - unoptimized).max())
            np.testing.assert_allclose(ours, unoptimized, rtol=0, atol=own + 1.01 * step)
    qdq, qoperator = results[QuantFormat.QDQ], results[QuantFormat.QOperator]
    assert qdq.cost == pytest.approx(qoperator.cost, rel=1e-9)
    assert kernels(qdq) == kernels(qoperator)
    assert qdq.cost < 0.6 * qdq.baseline_cost
