"""Small networks with seeded weights, one for each thing that quantization treats in its own way."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import eqsat
from eqsat import op
from eqsat.model.load import load


def normal(*shape: int, seed: int, std: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * std).astype(np.float32)


def he(*shape: int, seed: int) -> np.ndarray:
    """Weights that keep the power of what goes through a Relu."""
    return normal(*shape, seed=seed, std=float(np.sqrt(2 / np.prod(shape[1:]))))


def built(y, *more) -> ir.Model:
    return load(eqsat.graph(y, *more))


def convolution() -> ir.Model:
    """One layer: convolution, bias, Relu."""
    x = eqsat.input("x", (1, 8, 12, 12))
    return built(op.Relu(op.Conv(x, he(16, 8, 3, 3, seed=1), normal(16, seed=2, std=0.1), pads=[1, 1, 1, 1])))


def residual() -> ir.Model:
    """A residual block with depthwise convolution, pools, and a classifier.

    The mean is over 16 x 16 pixels. For a few pixels, the cheapest program takes the mean and the classifier in floats:
    `ReduceMean` without dimensions needs no `Flatten`, and the classifier's result no `DequantizeLinear`. ONNX Runtime
    is faster with floats there as well. Here, integers save more bytes than the additional kernels cost.
    """
    x = eqsat.input("x", (1, 3, 16, 16))
    a = op.Relu(op.Conv(x, he(8, 3, 3, 3, seed=1), normal(8, seed=2, std=0.1), pads=[1, 1, 1, 1]))
    b = op.Clip(op.Conv(a, he(8, 1, 3, 3, seed=3), group=8, pads=[1, 1, 1, 1]), np.float32(0), np.float32(6))
    c = op.Conv(b, he(8, 8, 1, 1, seed=4), normal(8, seed=5, std=0.1))
    d = op.MaxPool(op.Relu(a + c), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    e = op.Flatten(op.AveragePool(d, kernel_shape=[16, 16]))
    return built(op.Gemm(e, normal(5, 8, seed=6), normal(5, seed=7), transB=1))


def perceptron() -> ir.Model:
    """Products with weights on the right, unary functions, a product of two activations."""
    x = eqsat.input("x", (4, 32))
    a = op.Tanh(op.Gemm(x, normal(32, 24, seed=1, std=0.2), normal(24, seed=2)))
    b = op.Sigmoid(op.MatMul(x, normal(32, 24, seed=3, std=0.2)))
    return built(op.MatMul(a * b, normal(24, 6, seed=4)))


def attention() -> ir.Model:
    """Products of activations, data movement between them, an operator without an integer form."""
    x = eqsat.input("x", (8, 16))

    def heads(seed: int):
        return op.Transpose(
            op.Reshape(op.MatMul(x, normal(16, 16, seed=seed, std=0.25)), np.array([8, 2, 8])), perm=[1, 0, 2]
        )

    scores = op.MatMul(heads(1), op.Transpose(heads(2), perm=[0, 2, 1])) * np.float32(8**-0.5)
    mixed = op.MatMul(op.Softmax(scores, axis=-1), heads(3))
    y = op.Reshape(op.Transpose(mixed, perm=[1, 0, 2]), np.array([8, 16]))
    return built(op.MatMul(y, normal(16, 16, seed=4, std=0.25)))


NETWORKS = {f.__name__: f for f in (convolution, residual, perceptron, attention)}


def samples(model: ir.Model, count: int, *, seed: int = 0, std: float = 1.0) -> dict[str, np.ndarray]:
    """Normal data for every input, samples along the first axis."""
    return {
        v.name or "": normal(count, *(int(d) for d in v.shape or ()), seed=seed + i, std=std)
        for i, v in enumerate(model.graph.inputs)
    }
