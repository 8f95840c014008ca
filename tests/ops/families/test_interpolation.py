"""Grids against ONNX Runtime and ``onnx.reference``, convolutions with offsets against both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, values

CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 2e-5}


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grids(mode: str, padding: str, corners: int) -> None:
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    rng = np.random.default_rng(3)
    for size, places, dtype in (
        ((2, 3, 5, 4), (2, 6, 7), np.float32),
        ((1, 1, 1, 3), (1, 4, 4), np.float32),
        ((2, 2, 7, 6), (2, 3, 5), np.float64),
    ):
        x, grid = values(rng, size, dtype), values(rng, (*places, 2), dtype, -1.8, 1.8)
        # Halves are rounded to even by one judge and up by the other.
        grid += 0.013 if mode == "nearest" else 0
        check("GridSample", [x, grid], attrs, **CLOSE)
    if mode != "cubic":
        volume, grid = values(rng, (1, 2, 4, 3, 5), np.float32), values(rng, (1, 3, 4, 2, 3), np.float32, -1.4, 1.4)
        check("GridSample", [volume, grid + (0.013 if mode == "nearest" else 0)], attrs, **CLOSE)


def test_grids_by_the_first_names_of_modes() -> None:
    rng = np.random.default_rng(4)
    x, grid = values(rng, (1, 2, 5, 4), np.float32), values(rng, (1, 3, 3, 2), np.float32, -1, 1)
    for mode in ("bilinear", "bicubic"):
        check("GridSample", [x, grid], {"mode": mode}, version=16, **CLOSE)


def test_grids_far_outside_and_without_images() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
    grid = np.array([[[[1e6, -1e6], [-1e6, 0.25]]]], np.float32)
    for padding in ("zeros", "border"):
        check("GridSample", [x, grid], {"padding_mode": padding})
    for images, places in ((0, 2), (1, 0)):
        check("GridSample", [x[:images], np.zeros((images, places, 3, 2), np.float32)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("channels", "filters", "group", "parts", "attrs"),
    [
        (2, 3, 1, 1, {}),
        (4, 4, 2, 2, {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
        (4, 2, 1, 2, {"dilations": [2, 1], "pads": [2, 1, 2, 1]}),
        (6, 6, 6, 1, {"pads": [1, 1, 1, 1]}),
    ],
)
def test_convolutions_with_offsets(
    channels: int, filters: int, group: int, parts: int, attrs: dict, dtype: type
) -> None:
    rng = np.random.default_rng(channels)
    x, w = values(rng, (2, channels, 6, 5), dtype), values(rng, (filters, channels // group, 3, 2), dtype)
    pads, strides, dilations = (
        attrs.get(n, d) for n, d in (("pads", [0] * 4), ("strides", [1, 1]), ("dilations", [1, 1]))
    )
    places = [
        (n + pads[a] + pads[2 + a] - dilations[a] * (k - 1) - 1) // strides[a] + 1
        for a, (n, k) in enumerate(((6, 3), (5, 2)))
    ]
    offset = values(rng, (2, parts * 12, *places), dtype, -2.5, 2.5)
    mask = values(rng, (2, parts * 6, *places), dtype, 0, 1)
    attrs = {**attrs, "group": group, "offset_group": parts}
    for operands in ([x, w, offset], [x, w, offset, values(rng, (filters,), dtype), mask]):
        check("DeformConv", operands, attrs, **CLOSE)
        check("DeformConv", operands, attrs, judge=run_reference, **CLOSE)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 1, 1, 7), (3, 2, 6, 1), (2, 1, 3, 4, 5), (1, 2, 1, 2, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_affine_grids(dtype: type, size: tuple[int, ...], corners: int) -> None:
    axes = len(size) - 2
    theta = values(np.random.default_rng(axes), (size[0], axes, axes + 1), dtype)
    if not (corners and 1 in size[2:]):  # There a single place is at either end, or in the middle.
        check("AffineGrid", [theta, np.array(size)], {"align_corners": corners}, rtol=1e-5, atol=2e-6)
    else:
        found = run_ours(OpKey("", "AffineGrid"), {"align_corners": corners}, [theta, np.array(size)])[0]
        assert found.shape == (size[0], *size[2:], axes) and np.isfinite(found).all()
