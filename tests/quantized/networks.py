"""Small quantized networks, as ONNX Runtime's own quantizer writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from tests.quantization.runtime import has_exact_products

Array = np.ndarray


class Network:
    """A float graph in the making; weights are seeded."""

    def __init__(self, *shape: int, seed: int = 0) -> None:
        self.shape = shape
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def constant(self, array: Array | float) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array, None if isinstance(array, np.ndarray) else np.float32)
        return name

    def weight(self, *shape: int) -> str:
        spread = 1 / np.sqrt(np.prod(shape[1:]))
        return self.constant(self.rng.normal(0, spread, shape).astype(np.float32))

    def bias(self, size: int) -> str:
        return self.constant(self.rng.normal(0, 0.1, size).astype(np.float32))

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}_{i}" if i else f"v{len(self.nodes)}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        return names[0]

    def conv(self, x: str, outputs: int, inputs: int, size: int = 3, **attributes: Any) -> str:
        same = {"pads": [size // 2] * 4} | attributes
        return self("Conv", x, self.weight(outputs, inputs, size, size), self.bias(outputs), **same)

    def model(self, y: str) -> onnx.ModelProto:
        """The float model with input x and output y."""
        for node in self.nodes:
            for i, name in enumerate(node.output):
                if name == y:
                    node.output[i] = "y"
            for i, name in enumerate(node.input):
                if name == y:
                    node.input[i] = "y"
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", 1, self.shape)],
            [helper.make_tensor_value_info("y", 1, None)],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain() -> onnx.ModelProto:
    """Convolutions of all kinds, ReLU6, a residual, pools, a classifier."""
    n = Network(1, 3, 14, 14)
    a = n("Relu", n.conv("x", 8, 3))
    b = n("Clip", n.conv(a, 8, 1, group=8, strides=[2, 2]), n.constant(0.0), n.constant(6.0))
    c = n.conv(b, 8, 8, 1)
    d = n("Relu", n("Add", b, c))
    e = n("MaxPool", d, kernel_shape=[2, 2], strides=[2, 2])
    f = n("GlobalAveragePool", e)
    return n.model(n("Softmax", n("Gemm", n("Flatten", f), n.weight(10, 8), n.bias(10), transB=1)))


def gated() -> onnx.ModelProto:
    """Grouped convolution, sigmoid gate, leaky ReLU, concatenation, average pool, global mean by reduction."""
    n = Network(1, 4, 12, 12, seed=1)
    a = n.conv("x", 8, 2, group=2)
    b = n("Mul", a, n("Sigmoid", a))
    c = n("LeakyRelu", n.conv(b, 8, 8), alpha=0.1)
    d = n("Concat", b, c, axis=1)
    e = n("AveragePool", d, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    f = n("ReduceMean", e, axes=[2, 3], keepdims=0)
    return n.model(n("Gemm", f, n.weight(16, 5), n.bias(5)))


def attention() -> onnx.ModelProto:
    """Products of activations, transposed and reshaped, with a scale and a softmax between."""
    n = Network(1, 6, 16, seed=2)
    heads = n.constant(np.array([1, 6, 2, 8]))
    q, k, v = (
        n("Transpose", n("Reshape", n("MatMul", "x", n.weight(16, 16)), heads), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    scores = n("Div", n("MatMul", q, n("Transpose", k, perm=[0, 1, 3, 2])), n.constant(2.8284271))
    mixed = n("Transpose", n("MatMul", n("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return n.model(n("MatMul", n("Reshape", mixed, n.constant(np.array([1, 6, 16]))), n.weight(16, 16)))


class _Samples(CalibrationDataReader):
    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(5)
        self.samples = iter([{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(6)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.samples, None)


def quantized(
    folder: Path, model: onnx.ModelProto, layout: QuantFormat, activations: QuantType, per_channel: bool
) -> onnx.ModelProto:
    """The model as ONNX Runtime's quantizer writes it, with weights of 7 bits where its products are not exact."""
    onnx.save(model, folder / "plain.onnx")
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    quantize_static(
        folder / "plain.onnx",
        folder / "quantized.onnx",
        _Samples(shape),
        quant_format=layout,
        per_channel=per_channel,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        reduce_range=not has_exact_products(),
    )
    return onnx.load(folder / "quantized.onnx")


def samples(model: onnx.ModelProto, count: int, seed: int = 9) -> list[dict[str, Array]]:
    """Inputs for a model."""
    rng = np.random.default_rng(seed)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return [{"x": rng.normal(0, 1, shape).astype(np.float32)} for _ in range(count)]
