"""Fourier transforms against ``onnx.reference`` and ONNX Runtime, of lengths with and without small factors."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ort, run_ours, values

CLOSE = {"rtol": 1e-4, "atol": 1e-3}
"""ONNX Runtime transforms float32 in single precision."""


def scalar(n: int) -> np.ndarray:
    return np.array(n, np.int64)


def signal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return values(np.random.default_rng(shape), shape, dtype)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 7, 16, 30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dft(dtype: type, size: int, parts: int) -> None:
    x = signal(2, size, 3, parts, dtype=dtype)
    for axis in (0, 1, -2):
        for attrs in ({}, {"inverse": 1}, {"onesided": 1}):
            if not (parts == 2 and attrs == {"onesided": 1}):
                check("DFT", [x, None, scalar(axis)], attrs, **CLOSE)
    check("DFT", [x, scalar(size + 3), scalar(1)], **CLOSE)
    if size > 2:
        check("DFT", [x, scalar(size - 2), scalar(1)], **CLOSE)
    check("DFT", [x, None], {"axis": 1}, version=17, **CLOSE)


def test_half_of_the_frequencies_give_real_values() -> None:
    x = signal(2, 10)
    half = run_ours(OpKey("", "DFT"), {"onesided": 1, "inverse": 0}, [x[..., None], None, scalar(1)])[0]
    assert half.shape == (2, 6, 2)
    back = run_ours(OpKey("", "DFT"), {"onesided": 1, "inverse": 1}, [half, None, scalar(1)])[0]
    np.testing.assert_allclose(back[..., 0], x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("samples", "size", "step"), [(64, 16, 8), (100, 25, 7), (33, 33, 1), (400, 400, 160), (50, 12, 60)]
)
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(samples: int, size: int, step: int, onesided: int) -> None:
    x, window = signal(2, samples, 1, dtype=np.float64), np.hanning(size)
    for inputs in (
        [x, scalar(step), window, scalar(size)],
        [x, scalar(step), window],
        [x, scalar(step), None, scalar(size)],
    ):
        check("STFT", inputs, {"onesided": onesided}, **CLOSE)


def test_stft_of_signals_without_an_axis_of_parts() -> None:
    x, window, op = signal(2, 90), np.hanning(20).astype(np.float32), OpKey("", "STFT")
    inputs = [x, scalar(9), window, scalar(20)]
    found = run_ours(op, {"onesided": 1}, inputs)[0]
    np.testing.assert_allclose(found, run_ort(op, {"onesided": 1}, inputs)[0], **CLOSE)


def test_stft_of_complex_signals() -> None:
    x = signal(2, 40, 2)
    check("STFT", [x, scalar(6), np.hanning(10).astype(np.float32), scalar(10)], {"onesided": 0}, **CLOSE)
