"""Queries, keys and values from one product or from three, in every order in which exporters cut them: one program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor

TOKENS, HEADS, SIZE = 6, 4, 8
WIDTH = HEADS * SIZE

Parts = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]

RANDOM = np.random.default_rng(3)
WEIGHTS = [RANDOM.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32) for _ in range(3)]
BIASES = [RANDOM.normal(0, 0.3, WIDTH).astype(np.float32) for _ in range(3)]
OUTPUT = RANDOM.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32)


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of heads [1, HEADS, TOKENS, SIZE], as scores, softmax and products."""
    scores = op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])) * np.float32(SIZE**-0.5)
    mixed = op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    return op.MatMul(op.Reshape(mixed, [0, -1, WIDTH]), OUTPUT)


def heads(y: Tensor) -> Tensor:
    return op.Transpose(op.Reshape(y, [0, -1, HEADS, SIZE]), perm=[0, 2, 1, 3])


def three_products(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (heads(op.MatMul(x, w) + b) for w, b in zip(WEIGHTS, BIASES, strict=True))
    return q, k, v


def one_product(x: Tensor, *, by_head: bool = False) -> Tensor:
    """Columns: query, key, value of each head, or all queries, all keys, all values."""
    at = 1 if by_head else 0
    weight = np.stack([w.reshape(WIDTH, HEADS, SIZE) for w in WEIGHTS], 1 + at).reshape(WIDTH, -1)
    bias = np.stack([b.reshape(HEADS, SIZE) for b in BIASES], at).reshape(-1)
    return op.MatMul(x, weight) + bias


def split_columns(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = op.Split(one_product(x), axis=-1, num_outputs=3)
    return heads(q), heads(k), heads(v)


def sliced_columns(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = one_product(x)
    q, k, v = (heads(op.Slice(y, [n * WIDTH], [n * WIDTH + WIDTH], [2])) for n in range(3))
    return q, k, v


def gathered_first(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = op.Transpose(op.Reshape(one_product(x), [0, -1, 3, HEADS, SIZE]), perm=[2, 0, 3, 1, 4])
    q, k, v = (op.Gather(y, np.array(n), axis=0) for n in range(3))
    return q, k, v


def split_first(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = op.Transpose(op.Reshape(one_product(x), [0, -1, 3, HEADS, SIZE]), perm=[2, 0, 3, 1, 4])
    q, k, v = (op.Squeeze(part, [0]) for part in op.Split(y, axis=0, num_outputs=3))
    return q, k, v


def split_heads(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = op.Transpose(op.Reshape(one_product(x, by_head=True), [0, -1, HEADS, 3 * SIZE]), perm=[0, 2, 1, 3])
    q, k, v = op.Split(y, axis=-1, num_outputs=3)
    return q, k, v


def gathered_heads(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = op.Reshape(one_product(x, by_head=True), [0, -1, HEADS, 3, SIZE])
    q, k, v = (op.Transpose(op.Gather(y, np.array(n), axis=3), perm=[0, 2, 1, 3]) for n in range(3))
    return q, k, v


MERGED = [split_columns, sliced_columns, gathered_first, split_first, split_heads, gathered_heads]


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [TOKENS, "T"])
@pytest.mark.parametrize("parts", MERGED, ids=lambda f: f.__name__)
def test_parts_of_one_product_cost_no_more_than_three_products(parts: Parts, tokens: int | str, tmp_path: Path) -> None:
    x = eqsat.input("x", (1, tokens, WIDTH))
    separate, merged = eqsat.graph(attended(*three_products(x))), eqsat.graph(attended(*parts(x)))
    for host, targets in (("cpu", []), ("ort", []), ("cpu", ["dnnl"])):
        expected, result = (eqsat.optimize(model, targets, host=host) for model in (separate, merged))
        assert result.gap < 1e-4
        assert result.cost <= expected.cost * (1 + 1e-9), (host, targets)
    result.save(tmp_path / "out.onnx")
    data = RANDOM.normal(size=(1, TOKENS, WIDTH)).astype(np.float32)
    eqsat.save(merged, tmp_path / "in.onnx")
    found = [
        *result.run({"x": data}).values(),
        onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": data})[0],
    ]
    wanted = onnxruntime.InferenceSession(tmp_path / "in.onnx").run(None, {"x": data})[0]
    for y in found:
        np.testing.assert_allclose(np.asarray(y), np.asarray(wanted), rtol=1e-4, atol=1e-5)


def test_parts_of_unequal_width_and_pairs() -> None:
    """Grouped queries (fewer columns of keys and values), and keys and values of one product."""
    data = RANDOM.normal(size=(2, 50, 256)).astype(np.float32)
    weight = RANDOM.normal(0, 0.1, (256, 448)).astype(np.float32)
    x = eqsat.input("x", data.shape)
    for sizes in ([256, 96, 96], [320, 128]):
        # oneDNN computes the Relu in the kernel of the product.
        model = eqsat.graph([op.Relu(part) for part in op.Split(op.MatMul(x, weight), sizes, axis=-1)])
        result = eqsat.optimize(model, targets=["dnnl"])
        expected = np.split(np.maximum(data @ weight, 0), np.cumsum(sizes)[:-1], axis=-1)
        for found, wanted in zip(result.run({"x": data}).values(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert len(result.regions) == len(result.model.graph) == len(sizes)


def test_split_of_a_concatenation_is_its_parts() -> None:
    for sizes in ([1, 4], [1, 4, 2]):
        parts = [eqsat.input(f"x{n}", (2, n, 3)) for n in sizes]
        split = op.Split(op.Concat(*parts, axis=1), sizes, axis=1)
        result = eqsat.optimize(eqsat.graph([op.Relu(part) for part in split]))
        assert {n.op_type for n in result.model.graph} == {"Relu"}
