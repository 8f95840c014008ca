"""Conversions of element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, run_reference, values

PLAIN = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
SMALL = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4]


def code(dtype: type) -> int:
    return int(ir.DataType.from_numpy(np.dtype(dtype)))


@pytest.mark.parametrize("source", [*PLAIN, *FLOATS])
@pytest.mark.parametrize("target", [*PLAIN, *FLOATS])
def test_plain_types(source: type, target: type):
    x = values(np.random.default_rng(0), (30,), source, 0 if np.dtype(target).kind == "u" else -100, 100)
    check("Cast", [x], {"to": code(target)})
    check("CastLike", [x, np.zeros(1, target)])


@pytest.mark.parametrize("source", [np.int16, np.int32, np.int64])
def test_integers_lose_their_high_bits(source: type):
    x = np.array([200, -200, 300, 32767, -32768], source)
    for target in (np.int8, np.uint8):
        check("Cast", [x], {"to": code(target)})


@pytest.mark.parametrize("target", SMALL)
def test_small_types(target: type):
    rng = np.random.default_rng(1)
    for x in (values(rng, (50,), np.float32, 0, 7), values(rng, (50,), np.float16, 0, 7)):
        y = check("Cast", [x], {"to": code(target)}, judge=run_reference)[0]
        check("Cast", [y], {"to": 1}, judge=run_reference)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("target", SMALL[1:3])
def test_saturation(target: type, saturate: int):
    x = np.array([1e6, -1e6, np.inf, -np.inf, np.nan, 0, -0.0, 449, 1e-9], np.float32)
    check("Cast", [x], {"to": code(target), "saturate": saturate}, judge=run_reference)


def test_float_to_bool():
    x = np.array([0.0, -0.0, 0.1, np.nan, -3], np.float32)
    check("Cast", [x], {"to": code(np.bool_)})


def test_overflow_to_infinity():
    x = np.array([1e300, -1e300, 7e4], np.float64)
    for target in (np.float32, np.float16):
        check("Cast", [x], {"to": code(target)})


def test_strings():
    words = np.array(["3", "-1.5", "1e3"], object)
    check("Cast", [words], {"to": 1}, judge=lambda *_: [np.array([3, -1.5, 1000], np.float32)])
    (numbers,) = run_ours(OpKey("", "Cast"), {"to": 8}, [np.array([1, 20], np.int64)])
    assert numbers.dtype == object
    assert numbers.tolist() == ["1", "20"]


@pytest.mark.parametrize("name", ["FLOAT", "INT64", "BOOL"])
def test_types_by_name(name: str):
    x = np.array([0, 1, 2], np.int32)
    check("Cast", [x], {"to": name}, version=1, judge=lambda *_: [x.astype(ir.DataType[name].numpy())])


@pytest.mark.parametrize(("source", "target"), [(np.float32, np.int32), (np.int64, np.float64), (np.uint8, np.int8)])
def test_bit_cast(source: type, target: type):
    x = values(np.random.default_rng(2), (2, 3), source)
    check("BitCast", [x], {"to": code(target)}, judge=lambda *_: [x.view(target)])
    scalar = np.array(3, source)
    check("BitCast", [scalar], {"to": code(target)}, judge=lambda *_: [scalar.view(target)])
