"""The function Requantize: its definition in float32 operations, by our kernels and by ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.check.oracle import Oracle, own_kernels
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import OpKey
from tests.check.oracle import onnx_runtime

REQUANTIZE = OpKey("eqsat", "Requantize")
NARROW = {np.int8: 3, np.uint8: 2, np.int16: 5, np.int32: 6}


def expected(x: np.ndarray, s: np.ndarray, z: int, t: np.float32, v: int, dtype: type) -> np.ndarray:
    real = (x.astype(np.int32) - np.int32(z)).astype(np.float32) * s.astype(np.float32)
    rounded = np.rint((real / t).astype(np.float32)).astype(np.float64) + v
    info = np.iinfo(dtype)
    return np.clip(rounded, info.min, info.max).astype(dtype)


@pytest.mark.parametrize("oracle", [own_kernels, onnx_runtime], ids=["own", "onnxruntime"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("to", NARROW, ids=lambda t: t.__name__)
@pytest.mark.parametrize("of", [np.int8, np.uint8, np.int32])
def test_definition(oracle: Oracle, per_channel: bool, to: type, of: type) -> None:
    rng = np.random.default_rng(3)
    info = np.iinfo(of)
    for spread in (1e-6, 1e-3, 0.1, 1.0, 30.0):
        x = rng.integers(max(info.min, -(2**30)), min(info.max, 2**30), (2, 5, 3, 4), dtype=np.int64).astype(of)
        s = (rng.uniform(0.5, 1.5, 5 if per_channel else ()) * spread).astype(np.float32)
        t = np.float32(rng.uniform(0.2, 3.0))
        z, v = int(rng.integers(0, 9)), int(rng.integers(-3, 100)) if to is not np.uint8 else int(rng.integers(0, 256))
        attrs = make_attrs(REQUANTIZE, {"axis": 1, "dtype": NARROW[to]})
        inputs = [x, np.asarray(s), np.array(z, of), np.asarray(t), np.array(v, np.int32)]
        (y,) = oracle(REQUANTIZE, attrs, inputs, 1)
        assert y is not None and y.dtype == to
        scale = s.reshape(-1, 1, 1) if per_channel else s
        np.testing.assert_array_equal(y, expected(x, scale, z, t, v, to))


def test_int32_saturates() -> None:
    attrs = make_attrs(REQUANTIZE, {"axis": 1, "dtype": 6})
    one = np.array(1, np.float32)
    x = np.array([-(2**31), -(2**31) + 128, 0, 2**31 - 1], np.int32)
    inputs = [x, one, np.array(0, np.int32), np.array(0.5, np.float32), np.array(7, np.int32)]
    for oracle in (own_kernels, onnx_runtime):
        (y,) = oracle(REQUANTIZE, attrs, inputs, 1)
        assert y is not None
        np.testing.assert_array_equal(y, [-(2**31), -(2**31), 7, 2**31 - 1])
