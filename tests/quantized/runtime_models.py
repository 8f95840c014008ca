"""Small networks as ONNX Runtime's tools write them: quantized, with 4-bit weights, and optimized offline."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnxruntime import quantization as q
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer

import eqsat
from eqsat import op
from tests.quantization.runtime import has_exact_products

WIDTH, HEADS, STEPS = 16, 4, 6


def weights(*shape: int) -> np.ndarray:
    rng = np.random.default_rng([7, *shape])
    count = shape[0] if len(shape) == 2 else np.prod(shape[1:])
    return (rng.standard_normal(shape) / np.sqrt(count)).astype(np.float32)


def recurrent() -> ir.Model:
    """An LSTM in both directions, and a dense layer."""
    x = eqsat.input("x", (STEPS, 2, 8))
    r = [weights(2, 4 * WIDTH, n) for n in (8, WIDTH)]
    y, _, _ = op.LSTM(x, *r, weights(2, 8 * WIDTH), hidden_size=WIDTH, direction="bidirectional", outputs=3)
    flat = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), np.array([STEPS, 2, 2 * WIDTH]))
    return eqsat.graph({"y": op.Add(op.MatMul(op.Relu(flat), weights(2 * WIDTH, 8)), weights(1, 8)[0])})


def convolutional() -> ir.Model:
    """Convolutions with a residual, pools, a concatenation, and a classifier."""
    x = eqsat.input("x", (1, 3, 12, 12))
    a = op.Relu(op.Conv(x, weights(8, 3, 3, 3), weights(1, 8)[0], pads=[1, 1, 1, 1]))
    b = op.Conv(a, weights(8, 8, 3, 3), weights(1, 8)[0], pads=[1, 1, 1, 1])
    c = op.Relu(op.Add(b, a))
    d = op.MaxPool(c, kernel_shape=[2, 2], strides=[2, 2])
    e = op.AveragePool(c, kernel_shape=[2, 2], strides=[2, 2])
    f = op.Concat(d, e, axis=1)
    g = op.LeakyRelu(op.Conv(f, weights(8, 16, 1, 1), weights(1, 8)[0]), alpha=0.1)
    h = op.Mul(g, op.Sigmoid(g))
    pooled = op.Flatten(op.GlobalAveragePool(h))
    return eqsat.graph({"y": op.Softmax(op.Gemm(pooled, weights(4, 8), weights(1, 4)[0], transB=1), axis=-1)})


def _attended(x: eqsat.Expr, batch: int) -> eqsat.Expr:
    """Attention with a projection of its result."""

    def projected(name: int) -> eqsat.Expr:
        y = op.Add(op.MatMul(x, weights(WIDTH, WIDTH) * (1 + name / 8)), weights(1, WIDTH)[0])
        return op.Reshape(y, np.array([0, 0, HEADS, WIDTH // HEADS]))

    query, key, value = projected(0), projected(1), projected(2)
    scores = op.MatMul(op.Transpose(query, perm=[0, 2, 1, 3]), op.Transpose(key, perm=[0, 2, 3, 1]))
    shares = op.Softmax(op.Div(scores, np.float32(2)), axis=-1)
    mixed = op.MatMul(shares, op.Transpose(value, perm=[0, 2, 1, 3]))
    joined = op.Reshape(op.Transpose(mixed, perm=[0, 2, 1, 3]), np.array([0, 0, WIDTH]))
    return op.Add(op.MatMul(joined, weights(WIDTH, WIDTH)), weights(1, WIDTH)[0])


def _gelu(x: eqsat.Expr) -> eqsat.Expr:
    half = op.Erf(op.Div(x, np.float32(np.sqrt(2))))
    return op.Mul(op.Mul(x, op.Add(half, np.float32(1))), np.float32(0.5))


def _norm(x: eqsat.Expr) -> eqsat.Expr:
    return op.LayerNormalization(x, 1 + weights(1, WIDTH)[0] / 8, weights(1, WIDTH)[0], axis=-1, epsilon=1e-5)


def transformer() -> ir.Model:
    """Embeddings, two layers of a transformer, and a dense layer."""
    ids = eqsat.input("x", (2, STEPS), dtype="int64")
    embedded = op.Add(op.Gather(weights(20, WIDTH), ids), weights(STEPS, WIDTH)[None])
    x = _norm(embedded)
    for _ in range(2):
        x = _norm(op.Add(_attended(x, 2), x))
        inner = _gelu(op.Add(op.MatMul(x, weights(WIDTH, 32)), weights(1, 32)[0]))
        x = _norm(op.Add(op.Add(op.MatMul(inner, weights(32, WIDTH)), weights(1, WIDTH)[0]), x))
    return eqsat.graph({"y": op.MatMul(x, weights(WIDTH, 8))})


NETWORKS: dict[str, Callable[[], ir.Model]] = {
    "recurrent": recurrent,
    "convolutional": convolutional,
    "transformer": transformer,
}


def at_opset(model: ir.Model, version: int) -> onnx.ModelProto:
    """The model at an opset that the tools read."""
    proto = onnx.version_converter.convert_version(ir.to_proto(model), version)
    for node in proto.graph.node:
        # The quantizer copies attributes to operators that lack them.
        if node.op_type == "AveragePool":
            kept = [a for a in node.attribute if a.name != "dilations"]
            del node.attribute[:]
            node.attribute.extend(kept)
    return proto


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """The tools change what they are given."""
    return onnx.load_from_string(model.SerializeToString())


def feed(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        integers = value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT
        found[value.name] = rng.integers(0, 20, shape) if integers else rng.standard_normal(shape).astype(np.float32)
    return found


class _Reader(q.CalibrationDataReader):
    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds = iter([feed(model, seed) for seed in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def dynamic(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    path = folder / "dynamic.onnx"
    q.quantize_dynamic(copied(model), path, weight_type=q.QuantType.QInt8, reduce_range=not has_exact_products())
    return onnx.load(path)


def dynamic_fused(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Quantized, then optimized offline: products of integers become DynamicQuantizeMatMul."""
    return optimized(dynamic(model, folder), folder, "extended")


def static(model: onnx.ModelProto, folder: Path, form: str = "QOperator") -> onnx.ModelProto:
    path = folder / f"{form}.onnx"
    q.quantize_static(copied(model), path, _Reader(model), quant_format=q.QuantFormat[form])
    return onnx.load(path)


def four_bits(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    made = MatMulNBitsQuantizer(copied(model), block_size=16, is_symmetric=False)
    made.process()
    found = made.model.model
    assert found is not None
    return found


def optimized(model: onnx.ModelProto, folder: Path, level: str) -> onnx.ModelProto:
    """ONNX Runtime's offline optimization, saved."""
    path = folder / f"{level}.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = {
        "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    }[level]
    options.optimized_model_filepath = os.fspath(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


def fused(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """The optimizer of transformers, which finds whole attentions."""
    path = folder / "float.onnx"
    onnx.save(onnx.version_converter.convert_version(model, 17), path)
    made = optimizer.optimize_model(os.fspath(path), model_type="bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0)
    made.save_model_to_file(os.fspath(path))
    return onnx.load(path)


TOOLS: dict[str, Callable[[onnx.ModelProto, Path], onnx.ModelProto]] = {
    "dynamic": dynamic,
    "dynamic extended": dynamic_fused,
    "QOperator": static,
    "QDQ": lambda m, f: static(m, f, "QDQ"),
    "QDQ extended": lambda m, f: optimized(static(m, f, "QDQ"), f, "extended"),
    "four bits": four_bits,
    "basic": lambda m, f: optimized(m, f, "basic"),
    "extended": lambda m, f: optimized(m, f, "extended"),
    "all": lambda m, f: optimized(m, f, "all"),
    "fused": fused,
    "fused dynamic": lambda m, f: dynamic(fused(m, f), f),
}
