"""Scales and zero points: against ONNX Runtime's operators, and the corners where scales degenerate."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat.quantization.quantizer import (
    BIAS_LIMIT,
    Quantizer,
    activation_quantizer,
    bias_quantizer,
    weight_quantizer,
    weight_quantizer_with_bias,
)
from eqsat.quantization.ranges import Range
from tests.quantization import runtime

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
lows, highs = finite.map(lambda x: -abs(x)), finite.map(abs)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@given(lows, highs)
def test_ends_of_a_range_are_represented(dtype: str, low: float, high: float):
    quantizer = activation_quantizer(Range(low, high), dtype, symmetric=False)
    step = float(quantizer.scale)
    largest = 0.99 * float(np.finfo(np.float32).max)
    low, high = max(low, -largest), min(high, largest)
    ends = np.array([low, high, 0], np.float32)
    rounded = quantizer.round_trip(ends).astype(float)
    assert rounded[2] == 0 and np.isfinite(rounded).all()
    # Half a step by rounding, half a step because zero is moved to an integer, and float32's own rounding.
    assert np.all(np.abs(rounded[:2] - ends[:2]) <= step * (1 + 1e-3))
    assert step <= max((high - low) / 255 * (1 + 1e-6), float(np.finfo(np.float32).tiny)) or low == high == 0


@pytest.mark.parametrize(("dtype", "zero", "top"), [("uint8", 128, 255), ("int8", 0, 127)])
def test_symmetric_range(dtype: str, zero: int, top: int):
    quantizer = activation_quantizer(Range(-1.0, 2.0), dtype, symmetric=True)
    assert quantizer.zero == zero and quantizer.dtype == dtype
    assert quantizer.scale == np.float32(2 / 127)
    np.testing.assert_array_equal(quantizer.quantize(np.array([2, 0, -2], np.float32)), [top, zero, zero - 127])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-30, -2e38, 1e-42])
def test_a_constant_tensor(value: float, dtype: str, symmetric: bool):
    x = np.full(3, value, np.float32)
    found = Range(min(0.0, float(x[0])), max(0.0, float(x[0])))
    quantizer = activation_quantizer(found, dtype, symmetric=symmetric)
    np.testing.assert_allclose(quantizer.round_trip(x), x, rtol=2e-7, atol=float(np.finfo(np.float32).tiny))


def test_a_range_contains_zero():
    for low, high in ((1.0, 2.0), (-2.0, -1.0), (0.0, np.inf), (np.nan, 0.0)):
        with pytest.raises(ValueError, match="contains zero"):
            Range(low, high)


@pytest.mark.parametrize("axis", [None, 0, 1, 3])
def test_against_onnx_runtime(axis: int | None):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((4, 5, 3, 2)) * rng.uniform(0.01, 9, (4, 5, 1, 2))).astype(np.float32)
    quantizer = weight_quantizer(x, axis)
    attribute = "" if axis is None else f"<axis={axis}>"
    size = "" if axis is None else f"[{x.shape[axis]}]"
    text = f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[4,5,3,2] x, float{size} s, int8{size} z) => (float[4,5,3,2] y) {{
      q = QuantizeLinear{attribute}(x, s, z)  y = DequantizeLinear{attribute}(q, s, z) }}"""
    session = runtime.session(onnx.parser.parse_model(text), optimized=False)
    (theirs,) = session.run(None, {"x": x, "s": quantizer.scale, "z": quantizer.zero})
    ours = quantizer.round_trip(x)
    np.testing.assert_array_equal(ours, theirs)
    assert np.all(np.abs(ours - x) <= quantizer.scale.max() * 0.5001)
    peaks = np.abs(quantizer.quantize(x)).max(axis=None if axis is None else tuple({0, 1, 2, 3} - {axis}))
    assert np.all(peaks == 127)


def test_zeros_among_the_weights():
    w = np.zeros((3, 2, 1, 1), np.float32)
    w[1] = 0.5
    quantizer = weight_quantizer(w, 0)
    np.testing.assert_array_equal(quantizer.scale, np.float32([1, 0.5 / 127, 1]))
    np.testing.assert_array_equal(quantizer.round_trip(w), np.float32(w))


@given(
    st.lists(finite, min_size=3, max_size=3),
    st.lists(finite, min_size=3, max_size=3),
    st.floats(min_value=2.0**-100, max_value=2.0**100, width=32),
)
def test_every_bias_fits(weights: list[float], bias: list[float], input_scale: float):
    w, b = np.array(weights, np.float32).reshape(3, 1), np.array(bias, np.float32)
    quantizer = weight_quantizer_with_bias(w, 0, b, input_scale)
    scale = bias_quantizer(np.float32(input_scale), quantizer.scale, 3)
    assert np.isfinite(quantizer.scale).all() and np.isfinite(scale.scale).all()
    integers = scale.quantize(b)
    assert integers.dtype == np.int32 and np.all(np.abs(integers) <= BIAS_LIMIT)
    error = np.abs(scale.dequantize(integers).astype(float) - b)
    # Rounded up, the largest numbers are infinite.
    fits = (np.abs(b).astype(float) / input_scale < 1e38) & (np.abs(b) < 3.4e38)
    assert np.all((error <= scale.scale * 0.5 + np.abs(b) * 1e-6 + 1e-37) | ~fits)


def test_a_bias_without_weights_is_kept():
    w, b = np.zeros((2, 4), np.float32), np.array([0.3, 0], np.float32)
    weight = weight_quantizer_with_bias(w, 0, b, 0.05)
    bias = bias_quantizer(np.float32(0.05), weight.scale, 2)
    np.testing.assert_allclose(bias.round_trip(b), b, rtol=1e-4)


def test_bias_scale_is_that_of_the_products():
    w = np.array([[1, -2], [0.5, 0.25]], np.float32)
    weight = weight_quantizer(w, 0)
    bias = bias_quantizer(np.float32(0.5), weight.scale, 2)
    np.testing.assert_array_equal(bias.scale, np.float32(0.5) * weight.scale)
    assert bias.dtype == np.int32 and not bias.zero.any()


def test_quantizers_are_told_apart():
    a = activation_quantizer(Range(-1, 1), "uint8", symmetric=False)
    b = activation_quantizer(Range(-1, 1), "uint8", symmetric=False)
    c = activation_quantizer(Range(-1, 1), "int8", symmetric=False)
    assert a.key == b.key != c.key
    assert a.key != Quantizer(a.scale.reshape(1), a.zero.reshape(1), 0).key
