"""Constant arithmetic before an operator with weights moves into them, as it does after one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor

RANDOM = np.random.default_rng(5)
CHANNELS, WIDTH = 6, 10
IMAGE, ROWS, TOKENS = (2, CHANNELS, 7, 8), (4, WIDTH), (2, 3, WIDTH)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.5, 1.5, shape).astype(np.float32)


def normalized(x: Tensor, n: int) -> Tensor:
    return op.BatchNormalization(x, drawn(n), drawn(n), drawn(n), drawn(n), epsilon=1e-3)


FILTERS, DEPTHWISE, GROUPED = drawn(4, CHANNELS, 3, 2), drawn(12, 1, 3, 3), drawn(4, 3, 1, 1)
EACH = (CHANNELS, 1, 1)
WEIGHT = drawn(WIDTH, 4)

CASES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor], list[str]]] = {
    "normalized, convolution": (IMAGE, lambda x: op.Conv(normalized(x, CHANNELS), FILTERS), ["Conv"]),
    "normalized, depthwise": (
        IMAGE,
        lambda x: op.Conv(normalized(x, CHANNELS), DEPTHWISE, drawn(12), group=CHANNELS, strides=[2, 1]),
        ["Conv"],
    ),
    "scaled, grouped with padding": (
        IMAGE,
        lambda x: op.Conv(x * drawn(*EACH), GROUPED, group=2, pads=[1, 0, 0, 1]),
        ["Conv"],
    ),
    "mean and deviation, convolution": (
        IMAGE,
        lambda x: op.Conv((x - drawn(*EACH)) / drawn(*EACH), FILTERS, drawn(4), dilations=[2, 1]),
        ["Conv"],
    ),
    "one mean, convolution": (IMAGE, lambda x: op.Conv(x - np.float32(0.5), FILTERS), ["Conv"]),
    "shifted, with padding": (IMAGE, lambda x: op.Conv(x + drawn(*EACH), FILTERS, pads=[0, 1, 0, 0]), ["Add", "Conv"]),
    "normalized, Gemm": (ROWS, lambda x: op.Gemm(normalized(x, WIDTH), WEIGHT, drawn(4)), ["Gemm"]),
    "affine, transposed Gemm": (
        ROWS,
        lambda x: op.Gemm(x * drawn(WIDTH) + drawn(1, WIDTH), drawn(3, WIDTH), transB=1, alpha=0.5),
        ["Gemm"],
    ),
    "mean and deviation, product of rows": (
        ROWS,
        lambda x: op.MatMul((x - drawn(WIDTH)) / drawn(WIDTH), WEIGHT),
        ["Gemm"],
    ),
    "scaled, product": (TOKENS, lambda x: op.MatMul(x * drawn(WIDTH), WEIGHT), ["MatMul"]),
    "affine, product": (TOKENS, lambda x: op.MatMul(x * drawn(WIDTH) + drawn(WIDTH), WEIGHT), ["MatMul", "Add"]),
    "scaled, batch of products": (TOKENS, lambda x: op.MatMul(x * drawn(WIDTH), drawn(2, WIDTH, 4)), ["MatMul"]),
}


@pytest.mark.parametrize("name", CASES)
def test_constants_before_weights_are_folded(name: str, tmp_path: Path) -> None:
    shape, build, operators = CASES[name]
    model = eqsat.graph(build(eqsat.input("x", shape)))
    result = eqsat.optimize(model)
    assert [node.op_type for node in result.model.graph] == operators
    eqsat.save(model, tmp_path / "in.onnx")
    data = RANDOM.normal(size=shape).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(tmp_path / "in.onnx").run(None, {"x": data})
    (found,) = result.run({"x": data}).values()
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-5, atol=2e-5)


def test_a_target_without_normalisation_takes_it_as_product_and_sum(tmp_path: Path) -> None:
    target = tmp_path / "plain.target"
    target.write_text(
        "target plain\n    peak float32 = 1e12\n    bandwidth = 1e12, launch = 1e-9\n"
        "    link bandwidth = 1e12, latency = 1e-9\n    supports Mul, Add, Relu\n",
        "utf-8",
    )
    x = eqsat.input("x", (1, CHANNELS, 64, 64))
    result = eqsat.optimize(eqsat.graph(op.Relu(normalized(op.Relu(x), CHANNELS))), targets=[target])
    assert len(result.regions) == len(result.model.graph) == 1
