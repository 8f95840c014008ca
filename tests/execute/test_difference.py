"""Differences are found whatever the element type, and only differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from eqsat.execute.difference import absolute_differences, compare_values, magnitude

NAN, INF = float("nan"), float("inf")


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_tolerance_by_element_type(dtype: str) -> None:
    a = np.array([1.0, -8.0, 0.0], dtype)
    assert compare_values("y", a, a.copy(), numerics="exact").agrees
    # One unit in the last place of the smallest element is rounding to "real" and a difference to "exact".
    near = a.copy()
    near.view(f"u{a.dtype.itemsize}")[0] += 1
    assert compare_values("y", a, near).agrees
    assert not compare_values("y", a, near, numerics="exact").agrees
    far = np.array([1.0, -4.0, 0.0], dtype)
    assert not compare_values("y", a, far).agrees


def test_relative_to_the_scale_of_the_tensor() -> None:
    difference = compare_values("y", floats(100, 1e-4), floats(100, 2e-4))
    assert difference.agrees
    assert difference.max_abs_error == pytest.approx(1e-4)
    assert difference.max_rel_error == pytest.approx(1e-6)
    assert not compare_values("y", floats(1e-4), floats(2e-4)).agrees


def test_explicit_tolerances_replace_the_default() -> None:
    a, b = floats(10, 1), floats(10, 1.5)
    assert not compare_values("y", a, b).agrees
    assert compare_values("y", a, b, rtol=0.1).agrees
    assert compare_values("y", a, b, atol=0.5).agrees
    assert not compare_values("y", a, b, atol=0.49).agrees
    assert not compare_values("y", a, np.nextafter(a, np.float32(99)), rtol=0.0).agrees


@pytest.mark.parametrize(
    ("a", "b", "agrees"),
    [
        (floats(NAN, 1), floats(NAN, 1), True),
        (floats(NAN, 1), floats(0, 1), False),
        (floats(0, 1), floats(NAN, 1), False),
        (floats(INF, 1), floats(INF, 1), True),
        (floats(INF, 1), floats(-INF, 1), False),
        (floats(INF, 1), floats(1e30, 1), False),
        (floats(1e30, 1), floats(INF, 1), False),
        (floats(), floats(), True),
    ],
)
def test_nan_and_infinity(a: np.ndarray, b: np.ndarray, agrees: bool) -> None:
    for numerics in ("exact", "real"):
        difference = compare_values("y", a, b, numerics=numerics)
        assert difference.agrees == agrees
        assert (difference.max_abs_error == INF) == (not agrees)


def test_sign_of_zero_counts_only_exactly() -> None:
    a, b = floats(0.0, 3.0), floats(-0.0, 3.0)
    assert compare_values("y", a, b).agrees
    exact = compare_values("y", a, b, numerics="exact")
    assert not exact.agrees
    assert exact.index == (0,)


@pytest.mark.parametrize(
    ("dtype", "off_by_one"),
    [("int8", True), ("uint16", True), (ml_dtypes.int4, True), ("int32", False), ("int64", False), ("uint64", False)],
)
def test_integers(dtype: str, off_by_one: bool) -> None:
    a, b, c = (np.array([v, 0], dtype) for v in (4, 5, 6))
    assert compare_values("y", a, a).agrees
    assert compare_values("y", a, b).agrees == off_by_one
    assert compare_values("y", b, a).agrees == off_by_one
    assert not compare_values("y", a, c).agrees
    assert not compare_values("y", a, b, numerics="exact").agrees


def test_wide_integers_lose_no_digit() -> None:
    big = np.iinfo(np.int64)
    assert not compare_values("y", np.array([big.max]), np.array([big.max - 1])).agrees
    assert compare_values("y", np.array([big.max]), np.array([big.min])).max_abs_error == 2.0**64
    top = np.array([2**64 - 1], np.uint64)
    assert compare_values("y", top, top - np.uint64(1)).max_abs_error == 1


def test_booleans_strings_complex_and_scalars() -> None:
    assert not compare_values("y", np.array([True]), np.array([False])).agrees
    assert compare_values("y", np.array(["a", "b"], object), np.array(["a", "b"], object)).agrees
    assert not compare_values("y", np.array(["a", "b"], object), np.array(["a", "c"], object)).agrees
    assert not compare_values("y", np.array([1 + 1j]), np.array([1 - 1j])).agrees
    assert compare_values("y", np.float32(2), np.float32(2)).agrees


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (floats(1), floats(1, 2), "float32[1] against float32[2]"),
        (floats(1), np.array([1.0]), "float32[1] against float64[1]"),
        (floats(1), None, "float32[1] against nothing"),
        (floats(1), [floats(1)], "float32[1] against a sequence of 1"),
        ([floats(1)], [], "a sequence of 1 against one of 0"),
    ],
)
def test_what_cannot_be_compared(a: object, b: object, reason: str) -> None:
    difference = compare_values("y", a, b)
    assert not difference.agrees
    assert str(difference) == reason


def test_sequences() -> None:
    assert compare_values("y", [floats(1), floats(2, 3)], [floats(1), floats(2, 3)]).agrees
    assert compare_values("y", None, None).agrees
    worst = compare_values("y", [floats(1), floats(2, 3)], [floats(1), floats(2, 4)])
    assert (worst.name, worst.index) == ("y[1]", (1,))


def test_names_the_first_element_that_differs() -> None:
    a = np.zeros((2, 3), np.float32)
    b = a.copy()
    b[0, 2], b[1, 1] = 1, 5
    difference = compare_values("y", a, b)
    assert (difference.differing, difference.elements, difference.index) == (2, 6, (0, 2))
    assert difference.values == ("0.0", "1.0")
    assert "2 of 6 elements differ, first [0, 2]: 0.0 against 1.0" in str(difference)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "float16", "float32", "complex64"])
def test_differences_and_magnitudes_of_large_tensors_are_those_of_their_elements(dtype: str) -> None:
    """Blocks, and views whose elements do not lie one after the other."""
    rng = np.random.default_rng(0)
    a, b = (np.asarray(rng.uniform(0, 100, (150, 170))).astype(dtype).T for _ in range(2))
    if a.dtype.kind == "f":
        a[3, :9], b[3, 3:12] = np.nan, np.nan
        a[5, :9], b[5, 3:12] = np.inf, np.inf
    found = absolute_differences(a, b)
    assert found.shape == a.shape
    for i in (*rng.integers(170, size=60), 3, 5):
        for j in range(12):
            x, y = complex(a[i, j]), complex(b[i, j])
            same = x == y or (x != x and y != y)
            assert found[i, j] == (0.0 if same else abs(x - y) if np.isfinite(x - y) else np.inf)
    sizes = [abs(complex(v)) for v in a.ravel() if np.isfinite(v)]
    assert magnitude(a) == max(sizes)
