"""Convolutions of every kind against ONNX Runtime on random geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.errors import ExecutionError
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, values


def geometry(rng: np.random.Generator, rank: int, *, dilate: bool = True) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "kernel_shape": rng.integers(1, 4, rank).tolist(),
        "strides": rng.integers(1, 4, rank).tolist(),
        "dilations": rng.integers(1, 3 if dilate else 2, rank).tolist(),
    }
    mode = rng.choice(["pads", "SAME_UPPER", "SAME_LOWER", "VALID", "none"], p=[0.5, 0.15, 0.15, 0.1, 0.1])
    if mode == "pads":
        attrs["pads"] = rng.integers(0, 3, 2 * rank).tolist()
    elif mode != "none":
        attrs["auto_pad"] = str(mode)
        # ONNX Runtime refuses dilations together with SAME padding.
        attrs["dilations"] = [1] * rank
    return attrs


def operands(rng: np.random.Generator, rank: int, attrs: dict[str, Any], dtype: Any) -> list[np.ndarray | None]:
    group = int(rng.choice([1, 1, 2, 3]))
    inner, outer = rng.integers(1, 4, 2) * group
    if rng.random() < 0.2:
        group = int(inner)
        outer = inner * int(rng.integers(1, 3))
    attrs["group"] = group
    size = [int(rng.integers(5, 12)) for _ in range(rank)]
    x = values(rng, (int(rng.integers(1, 3)), inner, *size), dtype, -1, 1)
    w = values(rng, (outer, inner // group, *attrs["kernel_shape"]), dtype, -1, 1)
    return [x, w, values(rng, (outer,), dtype, -1, 1) if rng.random() < 0.5 else None]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(25))
def test_conv(rank: int, seed: int):
    rng = np.random.default_rng([rank, seed])
    attrs = geometry(rng, rank)
    check("Conv", operands(rng, rank, attrs, np.float32), attrs, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("seed", range(5))
def test_conv_of_doubles_and_halves(seed: int):
    rng = np.random.default_rng(seed)
    attrs = geometry(rng, 2)
    inputs = operands(rng, 2, attrs, np.float64)
    wide = check("Conv", inputs, attrs, judge=run_reference, rtol=1e-12, atol=1e-13)[0]
    half = [None if x is None else x.astype(np.float16) for x in inputs]
    exact = run_ours(OpKey("", "Conv"), attrs, [None if x is None else x.astype(np.float64) for x in half])[0]
    narrow = run_ours(OpKey("", "Conv"), attrs, half)[0]
    assert narrow.dtype == np.float16
    # Rounded once: float32 accumulation cannot move more than one value in many across a rounding boundary.
    assert np.mean(narrow != exact.astype(np.float16)) < 0.01
    np.testing.assert_allclose(narrow.astype(np.float64), wide, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("channels", "size", "stride", "multiplier"),
    [(8, 40, 1, 1), (8, 41, 2, 1), (3, 70, 3, 2), (64, 9, 1, 1), (40, 10, 2, 2), (33, 12, 1, 1)],
)
def test_depthwise(channels: int, size: int, stride: int, multiplier: int):
    rng = np.random.default_rng(channels)
    for kernel, dilation in ((3, 1), (5, 1), (3, 2), (2, 3)):
        x = values(rng, (2, channels, size, size + 1), np.float32, -1, 1)
        w = values(rng, (channels * multiplier, 1, kernel, kernel), np.float32, -1, 1)
        attrs = {
            "group": channels,
            "strides": [stride, stride],
            "pads": [1, 0, 2, 1],
            "dilations": [dilation, dilation],
        }
        check("Conv", [x, w], attrs, rtol=1e-5, atol=2e-6)


def test_large_convolution_is_cut_into_blocks():
    rng = np.random.default_rng(0)
    x = values(rng, (2, 24, 65, 66), np.float32, -1, 1)
    w = values(rng, (16, 24, 3, 3), np.float32, -1, 1)
    check("Conv", [x, w], {"pads": [1, 1, 1, 1]}, rtol=1e-5, atol=1e-5)
    check("Conv", [x, w], {"pads": [1, 1, 1, 1], "strides": [2, 2]}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_conv_transpose(rank: int, seed: int):
    rng = np.random.default_rng([rank, seed, 7])
    attrs = geometry(rng, rank)
    mode = attrs.pop("auto_pad", None)
    group = int(rng.choice([1, 2, 3]))
    attrs["group"] = group
    x = values(rng, (2, 2 * group, *rng.integers(3, 7, rank)), np.float32, -1, 1)
    w = values(rng, (2 * group, int(rng.integers(1, 4)), *attrs["kernel_shape"]), np.float32, -1, 1)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        attrs["auto_pad"] = mode
    else:
        room = [d * (k - 1) for d, k in zip(attrs["dilations"], attrs["kernel_shape"], strict=True)]
        attrs["pads"] = [int(rng.integers(0, r // 2 + 1)) for r in room] * 2
        attrs["output_padding"] = [int(rng.integers(0, s)) for s in attrs["strides"]]
    bias = values(rng, (w.shape[1] * group,), np.float32)
    check("ConvTranspose", [x, w, bias], attrs, rtol=1e-5, atol=2e-6)


def test_conv_transpose_to_a_given_shape():
    rng = np.random.default_rng(3)
    x, w = values(rng, (1, 2, 4, 5), np.float32), values(rng, (2, 3, 3, 3), np.float32)
    for shape in ([8, 10], [9, 11], [10, 12]):
        attrs = {"strides": [2, 2], "output_shape": shape}
        y = check("ConvTranspose", [x, w], attrs, rtol=1e-5, atol=1e-5)[0]
        assert y.shape[2:] == tuple(shape)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "part"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "3 channels"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"group": 2}, "4 channels"),
        ((1, 2, 2, 2), (4, 2, 3, 3), {}, "does not fit"),
        ((1, 2, 5), (4, 2, 3, 3), {}, "rank"),
        ((1, 2, 5, 5), (4, 2, 3, 3), {"kernel_shape": [2, 2]}, "kernel_shape"),
        ((1, 2, 5, 5), (4, 2, 3, 3), {"strides": [1]}, "spatial axes"),
    ],
)
def test_misfits_are_named(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], part: str):
    with pytest.raises(ExecutionError, match=part):
        run_ours(OpKey("", "Conv"), attrs, [np.zeros(x, np.float32), np.zeros(w, np.float32)])
