"""Products as Gemm, MatMul, and convolutions of one pixel and of one row; matrices as heads of an attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.model.load import load
from tests.model.running import random_inputs, run_ort


class Weights:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def matmul(x: Tensor, w: np.ndarray, b: np.ndarray) -> Tensor:
    return op.MatMul(x, np.ascontiguousarray(w.T)) + b


def gemm(x: Tensor, w: np.ndarray, b: np.ndarray) -> Tensor:
    return op.Gemm(x, w, b, transB=1)


def pixel(x: Tensor, w: np.ndarray, b: np.ndarray) -> Tensor:
    return op.Conv(x, w[:, :, None, None], b)


# ---- squeeze and excitation: the mean, the two products, and the gate as an image ----------------------------------

Step = Callable[[Tensor], Tensor]
Product = Callable[[Tensor, np.ndarray, np.ndarray], Tensor]
SQUEEZES: dict[str, tuple[Step, Product, Step]] = {
    "convolutions": (op.GlobalAveragePool, pixel, lambda s: s),
    "convolutions of a mean": (lambda x: op.ReduceMean(x, ints(-1, -2), keepdims=1), pixel, lambda s: s),
    "convolutions of a pool": (lambda x: op.AveragePool(x, kernel_shape=[6, 6]), pixel, lambda s: s),
    "flattened": (lambda x: op.Flatten(op.GlobalAveragePool(x)), gemm, lambda s: op.Reshape(s, ints(2, 8, 1, 1))),
    "squeezed": (
        lambda x: op.Squeeze(op.GlobalAveragePool(x), ints(2, 3)),
        gemm,
        lambda s: op.Unsqueeze(s, ints(2, 3)),
    ),
    "a mean without dims": (
        lambda x: op.ReduceMean(x, ints(2, 3), keepdims=0),
        matmul,
        lambda s: op.Unsqueeze(op.Unsqueeze(s, ints(2)), ints(3)),
    ),
    "a mean of rows": (
        lambda x: op.ReduceMean(op.Reshape(x, ints(2, 8, -1)), ints(2), keepdims=0),
        matmul,
        lambda s: op.Reshape(s, ints(0, 0, 1, 1)),
    ),
}


def squeeze_and_excitation(name: str) -> Tensor:
    weights = Weights()
    squeeze, product, excite = SQUEEZES[name]
    x = op.Relu(op.Conv(eqsat.input("x", (2, 8, 6, 6)), weights(8, 8, 3, 3), pads=[1] * 4))
    s = product(squeeze(x), weights(4, 8), weights(4))
    return x * excite(op.Sigmoid(product(op.Relu(s), weights(8, 4), weights(8))))


# ---- a perceptron: matrices, images of one pixel, and views around them --------------------------------------------

LAYERS: dict[str, Product] = {
    "MatMul": matmul,
    "Gemm": gemm,
    "a batch of one": lambda x, w, b: op.Squeeze(matmul(op.Unsqueeze(x, ints(0)), w, b), ints(0)),
    "pixels": lambda x, w, b: op.Flatten(pixel(op.Unsqueeze(x, ints(2, 3)), w, b)),
    "rows of one": lambda x, w, b: op.Squeeze(op.Conv(op.Unsqueeze(x, ints(2)), w[:, :, None], b), ints(2)),
}


def perceptron(name: str) -> Tensor:
    weights = Weights()
    y = op.Relu(LAYERS[name](eqsat.input("x", (4, 16)), weights(24, 16), weights(24)))
    return LAYERS[name](y, weights(8, 24), weights(8))


# ---- convolutions of sequences -------------------------------------------------------------------------------------


def strip(x: Tensor, w: np.ndarray, b: np.ndarray) -> Tensor:
    image = op.Conv(op.Unsqueeze(x, ints(-1)), w[..., None], b, pads=[2, 0, 2, 0], dilations=[2, 1])
    return op.Squeeze(image, ints(3))


SEQUENCES: dict[str, Product] = {
    "one dimension": lambda x, w, b: op.Conv(x, w, b, pads=[2, 2], dilations=[2]),
    "a row": lambda x, w, b: op.Squeeze(
        op.Conv(op.Unsqueeze(x, ints(2)), w[:, :, None], b, pads=[0, 2, 0, 2], dilations=[1, 2]), ints(2)
    ),
    "a column": strip,
    "a padded row": lambda x, w, b: op.Reshape(
        op.Conv(
            op.Pad(op.Reshape(x, ints(2, 8, 1, 16)), ints(0, 0, 0, 2, 0, 0, 0, 2)), w[:, :, None], b, dilations=[1, 2]
        ),
        ints(2, 8, -1),
    ),
}


def sequence(name: str) -> Tensor:
    weights = Weights()
    x = eqsat.input("x", (2, 8, 16))
    return op.Relu(
        SEQUENCES[name](op.Relu(SEQUENCES[name](x, weights(8, 8, 3), weights(8))), weights(8, 8, 3), weights(8)) + x
    )


# ---- attention of heads, of matrices, and of PyTorch's layer ------------------------------------------------------

ROWS, WIDTH, HEADS = 6, 16, 4


def of_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (op.Transpose(op.Reshape(x, ints(1, ROWS, HEADS, -1)), perm=[0, 2, 1, 3]) for x in (q, k, v))
    scores = op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])) * np.float32(0.5)
    rows = op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    return op.Reshape(rows, ints(1, ROWS, WIDTH))


def of_matrices(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    split = (op.Transpose(op.Reshape(x, ints(1, ROWS, HEADS, -1)), perm=[0, 2, 1, 3]) for x in (q, k, v))
    q, k, v = (op.Reshape(x, ints(HEADS, ROWS, -1)) for x in split)
    p = op.Softmax(op.MatMul(q, op.Transpose(k, perm=[0, 2, 1])) * np.float32(0.5), axis=2)
    heads = op.Reshape(op.MatMul(p, v), ints(1, HEADS, ROWS, -1))
    return op.Reshape(op.Transpose(heads, perm=[0, 2, 1, 3]), ints(1, ROWS, WIDTH))


def of_layer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (op.Transpose(op.Reshape(x, ints(ROWS, HEADS, -1)), perm=[1, 0, 2]) for x in (q, k, v))
    p = op.Softmax(op.MatMul(q * np.float32(0.5), op.Transpose(k, perm=[0, 2, 1])), axis=-1)
    return op.Reshape(op.Transpose(op.MatMul(p, v), perm=[1, 0, 2]), ints(1, ROWS, WIDTH))


def of_operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (op.Transpose(op.Reshape(x, ints(1, ROWS, HEADS, -1)), perm=[0, 2, 1, 3]) for x in (q, k, v))
    return op.Reshape(op.Transpose(op.Attention(q, k, v), perm=[0, 2, 1, 3]), ints(1, ROWS, WIDTH))


ATTENTIONS = {"heads": of_heads, "matrices": of_matrices, "layer": of_layer, "operator": of_operator}


def attention(name: str) -> Tensor:
    weights = Weights()
    x = eqsat.input("x", (1, ROWS, WIDTH))
    q, k, v = (matmul(x, weights(WIDTH, WIDTH), weights(WIDTH)) for _ in range(3))
    return matmul(ATTENTIONS[name](q, k, v), weights(WIDTH, WIDTH), weights(WIDTH))


FAMILIES: dict[str, tuple[Callable[[str], Tensor], dict[str, object], set[str]]] = {
    "squeeze and excitation": (squeeze_and_excitation, dict(SQUEEZES), {"cpu", "c", "ort"}),
    "perceptron": (perceptron, dict(LAYERS), set()),
    "sequence": (sequence, dict(SEQUENCES), {"cpu", "c", "ort"}),
    "attention": (attention, dict(ATTENTIONS), {"c"}),
}
"""By name the network, its spellings, and the hosts for which all cost the same; values are compared for each host."""


@pytest.mark.slow
@pytest.mark.parametrize("host", ["cpu", "c", "ort"])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_spellings_have_one_cost(family: str, host: str) -> None:
    make, names, hosts = FAMILIES[family]
    costs: dict[str, float] = {}
    for name in names:
        model = load(eqsat.graph(make(name)))
        result = eqsat.optimize(model, host=host)
        feed = random_inputs(model, seed=1)
        for found, wanted in zip(result.run(feed).values(), run_ort(model, feed), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        costs[name] = result.cost
    if host in hosts:
        assert costs == pytest.approx(dict.fromkeys(costs, min(costs.values())), rel=1e-6)


def test_squares_as_products_and_as_powers_have_one_cost() -> None:
    weights = Weights()
    first, second = weights(64, 64), weights(64, 64)

    def network(square: Step) -> Tensor:
        return op.MatMul(square(op.MatMul(eqsat.input("x", (8, 64)), first)), second)

    costs: list[float] = []
    for square in (lambda x: x * x, lambda x: op.Pow(x, np.float32(2.0))):
        model = load(eqsat.graph(network(square)))
        result = eqsat.optimize(model, targets=["dnnl"])
        feed = random_inputs(model, seed=1)
        for found, wanted in zip(result.run(feed).values(), run_ort(model, feed), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        costs.append(result.cost)
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)
