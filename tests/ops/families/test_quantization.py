"""Quantization and the integer operators: to the bit what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat.errors import ExecutionError
from eqsat.schema.types import OpKey
from tests.ops.families.test_convolution import geometry
from tests.ops.oracle import check, expected, run_ours, run_reference, same, values
from tests.quantization.runtime import has_exact_products

EIGHT = [np.int8, np.uint8]


def scale(rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Half of the scales are powers of two, which meet the ties of rounding."""
    if rng.random() < 0.5:
        return np.asarray(2.0 ** rng.integers(-6, 0, shape), np.float32)
    return np.asarray(rng.uniform(0.01, 0.2, shape), np.float32)


def zero(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max, shape, endpoint=True)).astype(dtype)


def full(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return zero(rng, dtype, shape)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("seed", range(4))
def test_quantize_and_dequantize(dtype: type, seed: int):
    rng = np.random.default_rng(seed)
    x = np.concatenate([values(rng, (40,), np.float32, -20, 20), [1e9, -1e9, np.inf, -np.inf, 0]]).astype(np.float32)
    x = x.reshape(3, 15)
    for shape, axis in (((), 1), ((1,), 1), ((15,), 1), ((3,), 0), ((15,), -1)):
        s, z = scale(rng, shape), zero(rng, dtype, shape)
        q = check("QuantizeLinear", [x, s, z], {"axis": axis})[0]
        check("DequantizeLinear", [q, s, z], {"axis": axis})
        check("DequantizeLinear", [q, s], {"axis": axis})
    check("QuantizeLinear", [x, scale(rng)])
    code = {np.int8: 3, np.uint8: 2, np.int16: 5, np.uint16: 4}[dtype]
    check("QuantizeLinear", [x, scale(rng)], {"output_dtype": code})


def test_ties_go_to_even():
    x = (np.arange(-20, 21) / 2).astype(np.float32)
    for point in (0, 1, -3):
        q = check("QuantizeLinear", [x, np.array(1, np.float32), np.array(point, np.int8)])[0]
        assert q[21] == 0 + point and q[23] == 2 + point


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_blocks(axis: int):
    rng = np.random.default_rng(axis)
    shape = (4, 6, 5)
    for block in (2, 4):
        grid = list(shape)
        grid[axis] = -(-shape[axis] // block)
        s, z = scale(rng, tuple(grid)), zero(rng, np.uint8, tuple(grid))
        x = values(rng, shape, np.float32, -9, 9)
        attrs = {"axis": axis, "block_size": block}
        q = check("QuantizeLinear", [x, s, z], attrs)[0]
        check("DequantizeLinear", [q, s, z], attrs)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_four_bits(dtype: Any):
    rng = np.random.default_rng(2)
    x = values(rng, (5, 4), np.float32, -9, 9)
    s = scale(rng, (4,))
    z = np.array([1, 2, 0, 3]).astype(dtype)
    q = check("QuantizeLinear", [x, s, z], judge=run_reference)[0]
    check("DequantizeLinear", [q, s, z], judge=run_reference)


def test_dequantize_int32():
    rng = np.random.default_rng(3)
    x = rng.integers(-(2**31), 2**31 - 1, (3, 5)).astype(np.int32)
    check("DequantizeLinear", [x, scale(rng)])
    check("DequantizeLinear", [x, scale(rng, (5,))])


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_scales(kind: Any):
    rng = np.random.default_rng(4)
    x, s = values(rng, (6, 7), np.float32).astype(kind), np.array(0.0625, kind)
    q = check("QuantizeLinear", [x, s, np.array(3, np.int8)], judge=run_reference)[0]
    y = check("DequantizeLinear", [q, s, np.array(3, np.int8)], judge=run_reference)[0]
    assert y.dtype == kind


@pytest.mark.parametrize("wide", [np.float64, np.longdouble])
@pytest.mark.parametrize("large", [1.0, 3e37])
def test_over_the_reals(wide: type, large: float):
    """Scales of a wider type are never rounded to float32, nor what is computed with them, whatever attributes say."""
    rng = np.random.default_rng(7)
    x, w = full(rng, (4, 5), np.int8), full(rng, (5, 3), np.int8)
    s, t, z = np.array(0.1 * large, wide), np.array(0.3, wide), np.array(3, np.int8)
    real = (x.astype(wide) - 3) * s
    for attrs in ({}, {"output_dtype": 1}):
        y = run_ours(OpKey("", "DequantizeLinear"), attrs, [x, s, z])[0]
        assert y.dtype == wide
        np.testing.assert_array_equal(y, real)
    q = run_ours(OpKey("", "QuantizeLinear"), {"precision": 1}, [real, s, z])[0]
    np.testing.assert_array_equal(q, x)
    product = real @ ((w.astype(wide) - 3) * s)
    expected = np.clip(np.rint(product / (t * large**2)) + 3, -128, 127)
    got = run_ours(OpKey("", "QLinearMatMul"), {}, [x, s, z, w, s, z, t * wide(large) ** 2, z])[0]
    np.testing.assert_array_equal(got, expected)
    assert len(np.unique(got)) > 4


@pytest.mark.parametrize("saturate", [0, 1])
def test_float8(saturate: int):
    x = np.array([0.1, -3.3, 500, -1e6, np.inf, 0, 7], np.float32)
    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        inputs = [x, np.array(0.5, np.float32), np.array(0, kind)]
        q = check("QuantizeLinear", inputs, {"saturate": saturate}, judge=run_reference)[0]
        check("DequantizeLinear", [q, inputs[1]], judge=run_reference)


def test_dynamic_quantization():
    rng = np.random.default_rng(5)
    for low, high in ((-3, 5), (0, 4), (2, 9), (-7, -1), (0, 0), (-1e-3, 1e-3)):
        check("DynamicQuantizeLinear", [values(rng, (5, 7), np.float32, low, high)], outputs=3)


def test_misfits():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ExecutionError, match="do not fit axis 1"):
        run_ours(OpKey("", "QuantizeLinear"), {}, [x, np.ones(2, np.float32)])
    with pytest.raises(ExecutionError, match="outside"):
        run_ours(OpKey("", "QuantizeLinear"), {"axis": 2}, [x, np.ones(2, np.float32)])
    with pytest.raises(ExecutionError, match="differs"):
        run_ours(
            OpKey("", "DequantizeLinear"), {}, [x.astype(np.int8), np.ones((), np.float32), np.uint8(1).reshape(())]
        )


# ---- integer operators ---------------------------------------------------------------------------


@pytest.mark.parametrize("x_type", EIGHT)
@pytest.mark.parametrize("w_type", EIGHT)
@pytest.mark.parametrize("seed", range(8))
def test_qlinear_conv(x_type: type, w_type: type, seed: int):
    rng = np.random.default_rng([seed, 1])
    rank = 1 + seed % 3
    attrs = geometry(rng, rank)
    group = int(rng.choice([1, 2, 4]))
    inner, outer = group * int(rng.integers(1, 4)), group * int(rng.integers(1, 4))
    attrs["group"] = group
    x = full(rng, (2, inner, *rng.integers(6, 10, rank)), x_type)
    w = full(rng, (outer, inner // group, *attrs["kernel_shape"]), w_type)
    channels = (outer,) if rng.random() < 0.5 else ()
    w_zero = np.zeros(channels, w_type) if channels else zero(rng, w_type)
    bias = rng.integers(-5000, 5000, outer).astype(np.int32) if rng.random() < 0.5 else None
    y_scale = np.asarray(scale(rng) * 40, np.float32)
    inputs = [x, scale(rng), zero(rng, x_type), w, scale(rng, channels), w_zero]
    inputs += [y_scale, zero(rng, x_type), bias]
    if (x_type is np.int8 and w_type is np.uint8) or saturates(x_type, w_type):
        check("QLinearConv", inputs, attrs, judge=conv_by_definition)  # ONNX Runtime has no kernel, or not an exact one
    else:
        check("QLinearConv", inputs, attrs)


def saturates(a_type: type, b_type: type) -> bool:
    """Whether products in ONNX Runtime are not exact on this processor."""
    return a_type is np.uint8 and b_type is np.int8 and not has_exact_products()


def conv_by_definition(op: OpKey, attrs: dict[str, Any], inputs: list[np.ndarray], *rest: object) -> list[np.ndarray]:
    """The integer convolution in float64 by onnx.reference, requantized in float32."""
    x, xs, xz, w, ws, wz, ys, yz, *biases = inputs
    wide = w.astype(np.float64) - np.asarray(wz, np.float64).reshape(-1, *(1,) * (w.ndim - 1))
    acc = run_reference(OpKey("", "Conv"), attrs, [x.astype(np.float64) - float(xz), wide])[0]
    channels = (-1, *(1,) * (x.ndim - 2))
    for bias in biases:
        acc = acc if bias is None else acc + bias.reshape(channels)
    factor = (xs * ws / ys).astype(np.float32).reshape(channels if ws.size > 1 else ())
    limits = np.iinfo(yz.dtype)
    return [np.clip(np.rint(acc.astype(np.float32) * factor) + float(yz), limits.min, limits.max).astype(yz.dtype)]


def test_deep_convolutions_stay_exact():
    rng = np.random.default_rng(6)
    x, w = np.full((1, 700, 3, 3), 255, np.uint8), np.full((2, 700, 3, 3), 127, np.int8)
    w[1] = rng.integers(-128, 127, w[1].shape)
    check("ConvInteger", [x, w.view(np.uint8)], {}, judge=run_reference)
    one = np.array(1, np.float32)
    big = [
        x,
        one,
        np.array(0, np.uint8),
        w,
        one,
        np.array(0, np.int8),
        np.array(2.0**23, np.float32),
        np.array(0, np.uint8),
    ]
    judge = conv_by_definition if saturates(np.uint8, np.int8) else expected
    check("QLinearConv", big, judge=judge)
    depthwise = np.full((3, 1, 20, 20), 127, np.int8)
    deep = [np.full((1, 3, 20, 20), 255, np.uint8), *big[1:3], depthwise, *big[4:]]
    check("QLinearConv", deep, {"group": 3}, judge=judge)


@pytest.mark.parametrize("seed", range(6))
def test_conv_integer(seed: int):
    rng = np.random.default_rng([seed, 2])
    attrs = geometry(rng, 2)
    x, w = full(rng, (2, 3, 8, 9), np.uint8), full(rng, (4, 3, *attrs["kernel_shape"]), np.uint8)
    check("ConvInteger", [x, w, zero(rng, np.uint8), zero(rng, np.uint8)], attrs)
    check("ConvInteger", [x, w], attrs)


@pytest.mark.parametrize("a_type", EIGHT)
@pytest.mark.parametrize("b_type", EIGHT)
def test_matmul_integer(a_type: type, b_type: type):
    rng = np.random.default_rng(7)
    judge = run_reference if saturates(a_type, b_type) else expected
    for shapes in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 2000), (2000, 2))):
        a, b = full(rng, shapes[0], a_type), full(rng, shapes[1], b_type)
        check("MatMulInteger", [a, b], judge=judge)
        check("MatMulInteger", [a, b, zero(rng, a_type), zero(rng, b_type)], judge=judge)
        if len(shapes[1]) == 2:
            columns = zero(rng, b_type, (shapes[1][-1],))
            check("MatMulInteger", [a, b, zero(rng, a_type), columns], judge=judge)


@pytest.mark.parametrize("a_type", EIGHT)
@pytest.mark.parametrize("b_type", EIGHT)
@pytest.mark.parametrize("seed", range(5))
def test_qlinear_matmul(a_type: type, b_type: type, seed: int):
    rng = np.random.default_rng([seed, 3])
    for shapes in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))):
        a, b = full(rng, shapes[0], a_type), full(rng, shapes[1], b_type)
        columns = (5,) if len(shapes[1]) == 2 and rng.random() < 0.5 else ()
        tail = [np.asarray(scale(rng) * 30, np.float32), zero(rng, a_type)]
        inputs = [a, scale(rng), zero(rng, a_type), b, scale(rng, columns), zero(rng, b_type, columns), *tail]
        if (a_type is np.int8 and b_type is np.uint8) or saturates(a_type, b_type):
            continue  # ONNX Runtime has no such kernel, or not an exact one, and the reference rounds in float64
        check("QLinearMatMul", inputs)


def test_qlinear_matmul_by_rows():
    rng = np.random.default_rng(8)
    a, b = full(rng, (3, 4), np.int8), full(rng, (4, 2), np.int8)
    scales, zeros = scale(rng, (3,)), zero(rng, np.int8, (3,))
    tail = [b, scale(rng), zero(rng, np.int8), np.array(1.5, np.float32), zero(rng, np.int8)]
    whole = run_ours(OpKey("", "QLinearMatMul"), {}, [a, scales, zeros, *tail])[0]
    for i in range(3):
        row = [a[i : i + 1], np.asarray(scales[i]), np.asarray(zeros[i]), *tail]
        same(whole[i : i + 1], check("QLinearMatMul", row)[0])
