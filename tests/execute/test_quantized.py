"""Networks quantized by ONNX Runtime's own tool: the executor computes the same integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from eqsat.execute.executor import Executor
from tests.quantization.runtime import INEXACT, has_exact_products

SHAPE = (1, 3, 14, 14)


def network(rng: np.random.Generator) -> onnx.ModelProto:
    """Convolutions of all kinds, a residual, a concatenation, pooling and a classifier."""
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        spread = 1 / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(rng.normal(0, spread, shape).astype(np.float32), name))
        return name

    nodes = [
        helper.make_node("Conv", ["x", weight("w1", 8, 3, 3, 3), weight("b1", 8)], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", weight("w2", 8, 1, 3, 3)], ["c"], group=8, pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", "low", "high"], ["d"]),
        helper.make_node("Conv", ["d", weight("w3", 8, 8, 1, 1), weight("b3", 8)], ["e"]),
        helper.make_node("Add", ["b", "e"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["g"], ["h"]),
        helper.make_node("Mul", ["g", "h"], ["i"]),
        helper.make_node("Concat", ["g", "i"], ["j"], axis=1),
        helper.make_node("AveragePool", ["j"], ["k"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
        helper.make_node("GlobalAveragePool", ["k"], ["l"]),
        helper.make_node("Flatten", ["l"], ["m"]),
        helper.make_node("Gemm", ["m", weight("w4", 10, 16), weight("b4", 10)], ["n"], transB=1),
        helper.make_node("Softmax", ["n"], ["y"]),
    ]
    weights += [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("low", 0), ("high", 6))]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, SHAPE)],
        [helper.make_tensor_value_info("y", 1, [1, 10])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Images(CalibrationDataReader):
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.images = iter([{"x": rng.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.images, None)


@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("layout", [QuantFormat.QOperator, QuantFormat.QDQ])
def test_quantized_network(tmp_path: Path, layout: QuantFormat, per_channel: bool, activations: QuantType):
    if layout is QuantFormat.QOperator and activations is QuantType.QUInt8 and not has_exact_products():
        pytest.skip(INEXACT)
    plain, quantized = tmp_path / "plain.onnx", tmp_path / "quantized.onnx"
    onnx.save(network(np.random.default_rng(0)), plain)
    quantize_static(
        plain,
        quantized,
        Images(),
        quant_format=layout,
        per_channel=per_channel,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        extra_options={"WeightSymmetric": True},
    )
    model = onnx.load(quantized)
    operators = {node.op_type for node in model.graph.node}
    assert operators & {"QLinearConv", "DequantizeLinear"}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    executor = Executor(ir.from_proto(model))
    rng = np.random.default_rng(2)
    for _ in range(4):
        x = rng.normal(0, 1, SHAPE).astype(np.float32)
        (theirs,) = session.run(None, {"x": x})
        ours = executor.run({"x": x})["y"]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
