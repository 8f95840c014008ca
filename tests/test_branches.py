"""Parallel linear branches: a network as trained, and as it is after its branches are merged, are one program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.builder import Tensor
from eqsat.model.load import load
from tests.model.running import random_inputs, run_ort


def _weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def _optimized(result: Tensor) -> Counter[str]:
    model = eqsat.graph([result])
    found = eqsat.optimize(model)
    loaded = load(model)
    feed = random_inputs(loaded, seed=1)
    for ours, wanted in zip(found.run(feed).values(), run_ort(loaded, feed), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)
    return Counter(node.op_type for node in found.model.graph)


def _normalized(rng: np.random.Generator, x: Tensor, channels: int) -> Tensor:
    gamma, variance = (rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in range(2))
    beta, mean = _weight(rng, channels, 1)[:, 0], _weight(rng, channels, 1)[:, 0]
    return op.BatchNormalization(x, gamma, beta, mean, variance, epsilon=1e-3)


@pytest.mark.parametrize("group", [1, 2, 8])
@pytest.mark.parametrize("channels", [8, 72])  # Weights below and above the size that is computed during saturation.
@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_as_it_was_trained_is_one_convolution(group: int, channels: int, stride: int) -> None:
    """RepVGG (Ding et al., 2021), MobileOne (Vasu et al., 2023): 3 x 3, 1 x 1 and, with stride 1, the input itself."""
    rng = np.random.default_rng(channels + group + stride)
    x = eqsat.input("x", [1, channels, 9, 7])

    def branch(size: int) -> Tensor:
        weight = _weight(rng, channels, channels // group, size, size)
        y = op.Conv(x, weight, group=group, strides=[stride] * 2, pads=[size // 2] * 4)
        return _normalized(rng, y, channels)

    total = branch(3) + branch(1) + branch(3)
    if stride == 1:
        total = _normalized(rng, x, channels) + total
    assert _optimized(op.Relu(total)) == {"Conv": 1, "Relu": 1}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("shape", [(2, 6, 10), (1, 6, 5, 8), (1, 6, 4, 5, 3)], ids=["1d", "2d", "3d"])
def test_an_input_added_to_its_convolution_is_a_tap_of_the_window(
    shape: tuple[int, ...], dilation: int, scaled: bool
) -> None:
    rng = np.random.default_rng(3)
    n = len(shape) - 2
    x = eqsat.input("x", list(shape))
    weight, bias = _weight(rng, 6, 3, *[3] * n), _weight(rng, 6, 1)[:, 0]
    y = op.Conv(x, weight, bias, group=2, pads=[dilation] * 2 * n, dilations=[dilation] * n)
    other = x * _weight(rng, 6, *[1] * n) if scaled else x
    assert _optimized(y + other) == {"Conv": 1}


def test_windows_that_cross_are_one_where_a_larger_one_covers_both() -> None:
    """ACNet (Ding et al., 2019): 3 x 3, 1 x 3 and 3 x 1."""
    rng = np.random.default_rng(4)
    x = eqsat.input("x", [1, 5, 8, 8])
    square = op.Conv(x, _weight(rng, 4, 5, 3, 3), pads=[1, 1, 1, 1])
    row = op.Conv(x, _weight(rng, 4, 5, 1, 3), pads=[0, 1, 0, 1])
    column = op.Conv(x, _weight(rng, 4, 5, 3, 1), pads=[1, 0, 1, 0])
    assert _optimized(square + row + column) == {"Conv": 1}
    assert _optimized(row + column + square) == {"Conv": 1}


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [0, 0, 2, 2]},  # The window lies elsewhere.
        {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"pads": [1, 1, 1, 1], "group": 4},
    ],
    ids=["shifted", "strided", "grouped"],
)
def test_convolutions_that_read_other_elements_stay_apart_or_get_a_window_for_both(attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    x = eqsat.input("x", [1, 4, 8, 8])
    group = attributes.get("group", 1)
    y = op.Conv(x, _weight(rng, 4, 4 // group, 3, 3), **attributes)
    z = op.Conv(x, _weight(rng, 4, 4, 3, 3), pads=[1, 1, 1, 1], strides=attributes.get("strides", [1, 1]))
    found = _optimized(y + z)
    assert found["Conv"] == (2 if group > 1 else 1)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_low_rank_product_goes_into_the_weight_that_it_adapts(rank: int, bias: bool, transposed: bool) -> None:
    """LoRA (Hu et al., 2021): ``x @ w + s * (x @ a) @ b``, as MatMul and as Gemm."""
    rng = np.random.default_rng(6)
    x = eqsat.input("x", [5, 96] if rank == 2 else [2, 5, 96])
    w, a, b = _weight(rng, 80, 96), _weight(rng, 4, 96), _weight(rng, 80, 4)
    shift = _weight(rng, 80, 1)[:, 0]

    def product(y: Tensor, weight: np.ndarray, c: np.ndarray | None = None) -> Tensor:
        if transposed and rank == 2:
            return op.Gemm(y, weight, c, transB=1)
        z = op.MatMul(y, np.ascontiguousarray(weight.T))
        return z if c is None else z + c

    total = product(x, w, shift if bias else None) + product(product(x, a), b) * np.float32(0.5)
    found = _optimized(total)
    assert found["MatMul"] + found["Gemm"] == 1
    assert set(found) <= {"MatMul", "Gemm", "Add"}
    assert found["Add"] <= bias
