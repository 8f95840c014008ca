"""Poolings against ONNX Runtime on random geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.families.test_convolution import geometry
from tests.ops.oracle import check, run_reference, values


def pooling(rng: np.random.Generator, rank: int, *, ceil: bool) -> dict[str, Any]:
    attrs = geometry(rng, rank)
    extent = [(k - 1) * d + 1 for k, d in zip(attrs["kernel_shape"], attrs["dilations"], strict=True)]
    if "pads" in attrs:
        # A window may not lie in the padding alone.
        attrs["pads"] = [
            max(0, min(p, e - 1, k - 1))
            for p, e, k in zip(attrs["pads"], extent * 2, attrs["kernel_shape"] * 2, strict=True)
        ]
    if str(attrs.get("auto_pad")).startswith("SAME"):
        # ONNX Runtime computes negative padding where windows leave gaps.
        attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], attrs["kernel_shape"], strict=True)]
    if ceil and "auto_pad" not in attrs:
        attrs["ceil_mode"] = int(rng.integers(0, 2))
    return attrs


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(25))
def test_max_pool(rank: int, seed: int):
    rng = np.random.default_rng([rank, seed])
    attrs = pooling(rng, rank, ceil=True)
    x = values(rng, (2, 3, *rng.integers(7, 12, rank)), np.float32)
    check("MaxPool", [x], attrs)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_max_pool_with_indices(rank: int, seed: int):
    rng = np.random.default_rng([rank, seed, 1])
    attrs = pooling(rng, rank, ceil=True)
    # Few distinct values: the first of several maxima counts.
    x = values(rng, (2, 3, *rng.integers(7, 12, rank)), np.int8, -3, 3).astype(np.float32)
    check("MaxPool", [x], attrs, outputs=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float64])
def test_max_pool_of_other_types(dtype: type):
    x = values(np.random.default_rng(2), (1, 2, 9, 9), dtype, -100, 100)
    check("MaxPool", [x], {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "strides": [2, 1]})


def test_max_pool_counts_columns_first_on_request():
    x = values(np.random.default_rng(3), (2, 2, 6, 7), np.float32)
    check("MaxPool", [x], {"kernel_shape": [2, 3], "storage_order": 1}, outputs=2)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(25))
def test_average_pool(rank: int, seed: int):
    rng = np.random.default_rng([rank, seed, 2])
    attrs = pooling(rng, rank, ceil=True)
    attrs["count_include_pad"] = int(rng.integers(0, 2))
    x = values(rng, (2, 3, *rng.integers(7, 12, rank)), np.float32)
    check("AveragePool", [x], attrs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_lp_pool(p: int, seed: int):
    rng = np.random.default_rng([p, seed])
    attrs = pooling(rng, 2, ceil=False) | {"p": p}
    x = values(rng, (2, 3, *rng.integers(7, 12, 2)), np.float32)
    check("LpPool", [x], attrs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4, 6, 7), (2, 2, 3, 4, 5)])
def test_global_pools(shape: tuple[int, ...]):
    x = values(np.random.default_rng(4), shape, np.float32)
    check("GlobalAveragePool", [x], rtol=1e-6, atol=1e-7)
    check("GlobalMaxPool", [x])
    check("GlobalLpPool", [x], rtol=1e-6, version=21)
    check("GlobalLpPool", [x], {"p": 3}, rtol=1e-5, version=21)  # ONNX Runtime has no newer one


def test_max_unpool_restores_positions():
    rng = np.random.default_rng(5)
    x = values(rng, (2, 3, 8, 6), np.float32)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, where = check("MaxPool", [x], attrs, outputs=2)
    check("MaxUnpool", [y, where], attrs)
    # Indices count in the natural output, of which a given shape is the surrounding; ONNX Runtime sees this otherwise.
    small = values(rng, (1, 1, 4, 4), np.float32)
    y, where = check("MaxPool", [small], attrs, outputs=2)
    check("MaxUnpool", [y, where, np.array([1, 1, 5, 5])], attrs, judge=run_reference)
