"""Ranges by every method, against what they promise, on distributions with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.errors import QuantizationError
from eqsat.quantization.calibrate import Calibration
from eqsat.quantization.histogram import Histogram
from eqsat.quantization.methods import ANY_METHOD, METHODS
from eqsat.quantization.options import Options
from eqsat.quantization.quantizer import activation_quantizer
from eqsat.quantization.ranges import Range, ranges, tensor_range

RNG = np.random.default_rng(0)
DATA = {
    "normal": RNG.standard_normal(40_000),
    "relu": np.maximum(RNG.standard_normal(40_000), 0),
    "shifted": RNG.standard_normal(40_000) + 2,
    "negative": -np.abs(RNG.standard_normal(40_000)),
    "heavy": RNG.standard_t(3, 40_000),
    "outlier": np.append(RNG.standard_normal(40_000), [60.0]),
    "uniform": RNG.uniform(-1, 3, 40_000),
    "binary": RNG.integers(0, 2, 1_000).astype(float),
    "constant": np.full(100, 5.0),
    "few": np.array([-3.0, 0.5]),
}


def histogram(x: np.ndarray) -> Histogram:
    found = Histogram()
    found.add(x.astype(np.float32))
    return found


def error(x: np.ndarray, found: Range, *, symmetric: bool = False) -> float:
    """Mean squared error of really quantizing."""
    x = x.astype(np.float32)
    rounded = activation_quantizer(found, "int8", symmetric=symmetric).round_trip(x)
    return float(np.mean((rounded.astype(float) - x) ** 2))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DATA)
def test_ranges_are_within_what_was_seen_and_contain_zero(name: str, method, symmetric: bool):
    x = DATA[name].astype(np.float32)
    found = tensor_range(histogram(x), Options(method=method, symmetric=symmetric))
    assert min(0, x.min()) <= found.low <= 0 <= found.high <= max(0, x.max())
    assert found.high - found.low > 0


@pytest.mark.parametrize("name", DATA)
def test_minmax(name: str):
    x = DATA[name].astype(np.float32)
    assert tensor_range(histogram(x), Options()) == Range(min(0.0, float(x.min())), max(0.0, float(x.max())))


@pytest.mark.parametrize("percentile", [90, 99, 99.9, 99.99, 100])
@pytest.mark.parametrize("name", DATA)
def test_percentile(name: str, percentile: float):
    x = DATA[name].astype(np.float32).astype(float)
    statistics = histogram(x)
    found = tensor_range(statistics, Options(method="percentile", percentile=percentile))
    cut = x.size * (100 - percentile) / 200
    assert np.count_nonzero(x < found.low) <= cut and np.count_nonzero(x > found.high) <= cut
    # It is the narrowest one, but for the width of a bin.
    width = statistics.width
    assert found.low == 0 or np.count_nonzero(x < found.low + width * 1.001) > cut
    assert found.high == 0 or np.count_nonzero(x > found.high - width * 1.001) > cut


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", DATA)
def test_squared_error_is_least_among_all_ranges(name: str, symmetric: bool):
    x = DATA[name]
    found = error(x, tensor_range(histogram(x), Options(method="mse", symmetric=symmetric)), symmetric=symmetric)
    low, high = min(0.0, x.min()), max(0.0, x.max())
    steps = np.linspace(0.05, 1, 20)
    others = [error(x, Range(low * a, high * b), symmetric=symmetric) for a in steps for b in steps]
    # Rounding errors are taken for uniform, which few values are not.
    slack = 1.02 if x.size > 10_000 else 1.5
    assert found <= min(others) * slack + 1e-7 * np.mean(x**2)


def test_clipping_pays_with_an_outlier():
    x = DATA["outlier"]
    by_method = {m: error(x[:-1], tensor_range(histogram(x), Options(method=m))) for m in METHODS}
    assert all(by_method[m] < by_method["minmax"] / 20 for m in ("percentile", "entropy"))
    assert by_method["mse"] < by_method["minmax"]


@pytest.mark.parametrize("count", [10, 1000, 30_000])
def test_entropy_clips_nothing_of_a_small_tensor(count: int):
    """The counts of its bins differ by chance, and what wide levels lose of that is not information."""
    x = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    found = tensor_range(histogram(x), Options(method="entropy"))
    assert (found.low, found.high) == (x.min(), x.max())


def test_entropy_keeps_uniform_data_whole_and_clips_heavy_tails():
    x = DATA["uniform"]
    found = tensor_range(histogram(x), Options(method="entropy"))
    assert found.low < -0.97 and found.high > 2.9
    x = DATA["heavy"]
    found = tensor_range(histogram(x), Options(method="entropy"))
    # It is the bulk that gains.
    bulk = x[np.abs(x) < 10]
    assert error(bulk, found) < error(bulk, Range(float(x.min()), float(x.max()))) / 4


@pytest.mark.parametrize("method", METHODS)
def test_scale_does_not_matter(method):
    options = Options(method=method)
    for name in ("normal", "heavy", "relu"):
        a, b = (tensor_range(histogram(DATA[name] * s), options) for s in (1.0, 2.0**60))
        assert b.low == a.low * 2.0**60 and b.high == a.high * 2.0**60


@settings(max_examples=60)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    st.sampled_from(tuple(METHODS)),
    st.booleans(),
)
def test_any_values_give_a_range_and_a_scale(values: list[float], method, symmetric: bool):
    x = np.array(values, np.float32)
    found = tensor_range(histogram(x), Options(method=method, symmetric=symmetric))
    quantizer = activation_quantizer(found, "uint8", symmetric=symmetric)
    assert np.isfinite(quantizer.scale) and quantizer.scale > 0
    assert quantizer.round_trip(np.zeros(1, np.float32))[0] == 0


def test_tensors_without_a_range():
    seen = Calibration({"a": histogram(np.array([np.inf, 1.0])), "b": Histogram(), "c": histogram(np.zeros(3))})
    seen.tensors["mask"] = histogram(np.array([0, np.finfo(np.float32).min]))
    assert ranges(seen) == {"c": Range(0.0, 0.0)}


def test_constants_have_the_range_of_their_values():
    constants = {"w": np.array([-1, 4], np.float32), "bad": np.array([np.nan], np.float32), "k": np.float32(3)}
    assert ranges(Calibration({}, constants), Options(method="mse")) == {"w": Range(-1.0, 4.0), "k": Range(0.0, 3.0)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "kl"}, f"option method: one of {', '.join(ANY_METHOD)} is required; got 'kl'"),
        ({"method": "minmx"}, "did you mean `minmax`"),
        ({"activation": "int16"}, "one of uint8, int8 is required; got 'int16'"),
        ({"percentile": 0.1}, "a percentile above 50, at most 100, is required; got 0.1"),
    ],
)
def test_wrong_options(options, message: str):
    with pytest.raises(QuantizationError, match=message):
        Options(**options)
