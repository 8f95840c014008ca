"""Constants in a wider type: what they are, when their own cannot hold them, and bounds of those that are too large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat.ops.evaluate import evaluate
from eqsat.ops.interval_arithmetic import (
    UNKNOWN,
    ConstantBounds,
    bounds_of_array,
    bounds_of_wide,
    misfit_of_bounds,
    operator_bounds,
)
from eqsat.ops.wide import Wide, evaluate_wide, exactly, misfit, residue_of, smallest_normal, widen
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import OpKey, TensorType

FLOAT = ir.DataType.FLOAT
PADDING = (FLOAT, ir.DataType.INT64, FLOAT)  # The types of Pad's operands.
RNG = np.random.default_rng(0)


def random(dtype: ir.DataType, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers over the whole range of a type, zeros, subnormals and the largest among them."""
    info = ml_dtypes.finfo(dtype.numpy())
    exponents = RNG.integers(info.minexp - info.nmant, info.maxexp, shape)
    with np.errstate(all="ignore"):
        values = np.ldexp(RNG.uniform(1, 2, shape).astype(np.longdouble), exponents) * RNG.choice([-1, 1, 0], shape)
        return np.clip(values, -float(info.max), float(info.max)).astype(dtype.numpy())


def kind(dtype: ir.DataType, shape: tuple[int, ...]) -> TensorType:
    return TensorType(dtype, shape)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name.lower())
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div"])
def test_a_constant_fits_exactly_where_fractions_say_so(name: str, dtype: ir.DataType) -> None:
    info = ml_dtypes.finfo(dtype.numpy())
    tiny, most = Fraction(float(info.smallest_normal)), Fraction(float(info.max))
    for _ in range(200):
        a, b = random(dtype, ()), random(dtype, ())
        if name == "Div" and b == 0:
            continue
        (found,) = evaluate_wide(OpKey("", name), (), [widen(a, dtype), widen(b, dtype)], [kind(dtype, ())])
        assert found is not None
        p, q = Fraction(float(a)), Fraction(float(b))
        exact = {"Add": p + q, "Sub": p - q, "Mul": p * q}[name] if name != "Div" else p / q
        # The scale of a stored number is at least the smallest normal one.
        terms = max(abs(p), tiny if p else Fraction(0)), max(abs(q), tiny if q else Fraction(0))
        scale = sum(terms) if name in ("Add", "Sub") else terms[0] * terms[1] if name == "Mul" else abs(exact)
        half = most * (1 + Fraction(float(info.eps)) / 4)
        if name == "Div" and (abs(p) < tiny or abs(q) < tiny) and exact:
            continue  # The amplified scale of a subnormal has a test of its own.
        if abs(abs(exact) - most) <= half - most or (scale and abs(scale / tiny - 1) < Fraction(1, 10**6)):
            continue  # Too close to call in the wider type.
        fits = abs(exact) <= most and (exact == scale == 0 or scale >= tiny)
        if name in ("Add", "Sub") and p and q:
            ratio = Fraction(2) ** (44 if dtype == ir.DataType.DOUBLE else 30)
            fits &= max(abs(p), abs(q)) <= ratio * min(abs(p), abs(q))
        assert (misfit(found) == "") == fits, (name, a, b, misfit(found))
        if fits and dtype != ir.DataType.DOUBLE:
            assert found.rounded() == np.float64(float(exact)).astype(dtype.numpy())


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name.lower())
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (4, 3, 2), (300, 40, 3)])
def test_bounds_of_a_stored_constant(dtype: ir.DataType, shape: tuple[int, ...]) -> None:
    array = random(dtype, shape)
    found = bounds_of_array(array, dtype)
    size = np.abs(array.astype(np.float64))
    if not array.size:
        assert misfit_of_bounds(found, dtype) == ""
        return
    assert found.most == size.max()
    assert found.least == (size[size > 0].min() if size.any() else np.inf)
    assert found.zero == bool((size == 0).any())
    assert found.negative == bool(np.signbit(array.astype(np.float64)).any())
    slices = [np.take(size, k, axis).max() for axis in range(size.ndim) for k in range(size.shape[axis])] or [
        size.max()
    ]
    positive = [s for s in slices if s > 0]
    assert found.peak == max(min(positive, default=np.inf), smallest_normal(dtype))


def test_infinities_and_nan_are_out_of_bounds() -> None:
    for value in (np.inf, -np.inf, np.nan):
        found = bounds_of_array(np.array([1, 0, value, -2], np.float32), ir.DataType.FLOAT)
        assert found == replace(bounds_of_array(np.array([1, 0, -2], np.float32), ir.DataType.FLOAT), endless=True)
        assert misfit(exactly(np.float64(value), ir.DataType.FLOAT))


ENDLESS = {
    "Add": ((), 2),
    "Sub": ((), 2),
    "Where": ((), 3),
    "Concat": ((("axis", 0),), 2),
    "Transpose": ((("perm", (1, 0)),), 1),
    "ReduceMax": ((("keepdims", 1),), 1),
    "LogSoftmax": ((("axis", 1),), 1),
    "Mul": ((), 2),
    "Div": ((), 2),
    "MatMul": ((), 2),
}
"""Attributes, and the number of operands."""


@pytest.mark.parametrize("shape", [(4, 4), (4, 1)])
@pytest.mark.parametrize("name", ENDLESS)
def test_what_is_endless_is_said_to_be_and_finite_elements_are_bounded(name: str, shape: tuple[int, int]) -> None:
    attrs, count = ENDLESS[name]
    for _ in range(50):
        arrays = [RNG.choice([0, 1, -3e4, np.inf, -np.inf, np.nan], shape).astype(np.float32) for _ in range(count)]
        if name == "Where":
            arrays[0] = RNG.choice([True, False], shape)
        if name == "MatMul":
            arrays[1] = arrays[1].T
        with np.errstate(all="ignore"):
            (result,) = evaluate(OpKey("", name), attrs, arrays, 1)
        assert result is not None
        dtypes = [ir.DataType.from_numpy(a.dtype) for a in arrays]
        types = [kind(dtype, a.shape) for dtype, a in zip(dtypes, arrays, strict=True)]
        operands = [bounds_of_array(a, dtype) for dtype, a in zip(dtypes, arrays, strict=True)]
        found = operator_bounds(OpKey("", name), attrs, operands, types)
        finite = np.isfinite(result)
        assert found.endless or finite.all()
        assert (np.abs(result[finite]) <= found.most).all()
        if any(b.endless for b in operands) and name in ("Mul", "Div", "MatMul"):
            assert found == UNKNOWN


def test_the_share_of_a_single_element_is_known_along_its_axis_only() -> None:
    (known,) = (bounds_of_array(np.array([[1], [-np.inf]], np.float32), FLOAT),)
    for axis, is_known in ((1, True), (0, False)):
        found = operator_bounds(OpKey("", "LogSoftmax"), (("axis", axis),), [known], [kind(FLOAT, (2, 1))])
        assert (found != UNKNOWN) == is_known


def hold(found: ConstantBounds, exact: ConstantBounds) -> None:
    slack = 1 + 1e-9
    assert found.most * slack >= exact.most and found.least <= exact.least * slack
    assert found.floor <= exact.floor * slack and found.peak <= exact.peak * slack
    assert found.zero >= exact.zero and found.negative >= exact.negative


@pytest.mark.parametrize(
    "name", ["Add", "Sub", "Mul", "Div", "Sqrt", "Neg", "Abs", "Reciprocal", "Transpose", "Concat"]
)
def test_bounds_of_an_operator_hold_for_its_result(name: str) -> None:
    dtype = ir.DataType.FLOAT
    for _ in range(100):
        count = 1 if name in ("Sqrt", "Neg", "Abs", "Reciprocal", "Transpose") else 2
        arrays = [
            (RNG.standard_normal((4, 5)) * 10.0 ** RNG.integers(-12, 12)).astype(np.float32) for _ in range(count)
        ]
        if name == "Sqrt":
            arrays = [np.abs(a) for a in arrays]
        attrs = {"Transpose": (("perm", (1, 0)),), "Concat": (("axis", 0),)}.get(name, ())
        shape = {"Transpose": (5, 4), "Concat": (8, 5)}.get(name, (4, 5))
        types = [kind(dtype, a.shape) for a in arrays]
        (wide,) = evaluate_wide(OpKey("", name), attrs, [widen(a, dtype) for a in arrays], [kind(dtype, shape)])
        assert wide is not None
        found = operator_bounds(OpKey("", name), attrs, [bounds_of_array(a, dtype) for a in arrays], types)
        exact = bounds_of_wide(wide)
        hold(found, exact)
        assert found.negative >= bool((wide.values < 0).any())


@pytest.mark.parametrize("widths", [(0, 0, 0, 0), (1, 0, 2, 3), (0, -1, 2, 0), (-1, -2, -1, -1)])
@pytest.mark.parametrize(
    ("mode", "value"), [("constant", None), ("constant", 3e-9), ("constant", -7e8), ("edge", None)]
)
def test_bounds_of_padding_hold_for_its_result(mode: str, value: float | None, widths: tuple[int, ...]) -> None:
    for _ in range(20):
        array = (RNG.standard_normal((4, 5)) * 10.0 ** RNG.integers(-6, 6)).astype(np.float32)
        operands = [array, np.array(widths)] + ([] if value is None else [np.array(value, np.float32)])
        added = np.maximum(widths, 0).reshape(2, 2).T
        enlarged = np.pad(array, added, "edge") if mode == "edge" else np.pad(array, added, constant_values=value or 0)
        top, left, bottom, right = -np.minimum(widths, 0)
        wanted = enlarged[top : enlarged.shape[0] - bottom, left : enlarged.shape[1] - right]
        types = [kind(dtype, a.shape) for dtype, a in zip(PADDING, operands, strict=False)]
        bounds = [bounds_of_array(a, dtype) for dtype, a in zip(PADDING, operands, strict=False)]
        hold(operator_bounds(OpKey("", "Pad"), (("mode", mode),), bounds, types), bounds_of_array(wanted, FLOAT))


@pytest.mark.parametrize("diagonal", [-9, -2, 0, 1, 9])
def test_bounds_of_an_identity_hold_for_its_result(diagonal: int) -> None:
    found = operator_bounds(OpKey("", "EyeLike"), (("k", diagonal),), [UNKNOWN], [kind(FLOAT, (4, 5))])
    hold(found, bounds_of_array(np.eye(4, 5, diagonal, np.float32), FLOAT))


def test_what_is_not_known_does_not_fit() -> None:
    assert (
        operator_bounds(OpKey("", "Erf"), (), [bounds_of_array(np.ones(3, np.float32), ir.DataType.FLOAT)], [])
        == UNKNOWN
    )
    assert misfit_of_bounds(UNKNOWN, ir.DataType.FLOAT)
    assert misfit_of_bounds(UNKNOWN, ir.DataType.INT8) == ""


def stored(values: Sequence[float], dtype: ir.DataType) -> Wide:
    return widen(np.array(values).astype(dtype.numpy()), dtype)


def made(name: str, *operands: Wide) -> Wide:
    """What a rule makes of them, rounded and read again."""
    dtype = operands[0].dtype
    (found,) = evaluate_wide(OpKey("", name), (), operands, [kind(dtype, operands[0].values.shape)])
    assert found is not None
    return found if misfit(found) else widen(found.rounded(), dtype, residue_of(found))


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_rounding_took_away_is_there_when_the_rest_cancels(dtype: ir.DataType) -> None:
    """If ``1 + c`` is 1, then ``(1 + c) - 1`` is c and not 0, and ``(x + c + 1) - 1`` not x."""
    # The widest type has few more digits than float64.
    unit = 2.0**-40 if dtype == ir.DataType.DOUBLE else float(ml_dtypes.finfo(dtype.numpy()).eps)
    for small in (unit / 7, unit / 3, unit * 1.3, -unit / 5):
        total = made("Add", stored([1.0, 8.0], dtype), stored([small, 8.0], dtype))
        assert misfit(total) == ""
        left = made("Sub", total, stored([1.0, 8.0], dtype))
        np.testing.assert_allclose(left.values[0], stored([small], dtype).values[0], rtol=2.0**-16)
        assert left.values[1] == 8 and residue_of(total) is not None
    if dtype != ir.DataType.FLOAT16:
        tiny = 2.0**-50
        for name in ("Add", "Sub"):
            assert "is lost beside" in misfit(made(name, stored([1.0], dtype), stored([tiny], dtype)))
            assert misfit(made(name, stored([1.0, 1.0], dtype), stored([tiny, 0.5], dtype))) == ""
            assert misfit(made(name, stored([1.0, 0.0], dtype), stored([tiny, tiny], dtype))) == ""
            assert "is lost beside" in misfit(made(name, stored([1.0, 1.0], dtype), stored([tiny, 0.0], dtype)))
    for first, second in (([1.0, 2.0], [1.0, 2.0]), ([0.5, 4.0], [0.25, 1.0]), ([3.0, 1.0], [0.0, 0.0])):
        assert residue_of(made("Add", stored(first, dtype), stored(second, dtype))) is None, "nothing was rounded"


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_chains_of_constants_are_exact(name: str, dtype: ir.DataType) -> None:
    """Each chain is computed by fractions, too, which round nothing; rounding is left to the end."""
    compute = {"Add": "__add__", "Sub": "__sub__", "Mul": "__mul__", "Div": "__truediv__"}[name]
    rng, looked = np.random.default_rng(7), 0
    for _ in range(300):
        numbers = [stored([v], dtype) for v in rng.normal(size=4) * 2.0 ** rng.integers(-4, 5, 4)]
        wide, exact, size = numbers[0], as_fraction(numbers[0]), abs(as_fraction(numbers[0]))
        for number in numbers[1:]:
            wide = made(name, wide, number)
            if misfit(wide):
                break
            exact = getattr(exact, compute)(as_fraction(number))
            size = max(size, abs(as_fraction(number)), abs(exact))
            assert abs(as_fraction(wide) - exact) <= size * 8 / 2 ** (58 if dtype == ir.DataType.DOUBLE else 45)
            looked += 1
    assert looked > 400


def as_fraction(wide: Wide) -> Fraction:
    """The one element of a constant; a longdouble is the sum of two doubles."""
    value = wide.values[0]
    high = float(value)
    return Fraction(high) + Fraction(float(value - high))


def test_constants_made_in_another_order_are_the_same() -> None:
    rng = np.random.default_rng(5)
    for dtype in FLOATS:
        for _ in range(100):
            a, b, c = (stored([v], dtype) for v in rng.normal(size=3))
            first, second = made("Add", made("Add", a, b), c), made("Add", a, made("Add", c, b))
            np.testing.assert_array_equal(first.rounded(), second.rounded())
            if abs(first.values[0]) > 0.01:
                assert (residue_of(first) is None) == (residue_of(second) is None)


def test_what_was_added_first_is_there_when_the_rest_cancels() -> None:
    x = eqsat.input("x", (4,))
    y = x + np.float32(1e-5)
    result = eqsat.optimize(eqsat.graph({"y": y, "z": (y + np.float32(1000)) - np.float32(1000)}))
    found = result.run({"x": np.array([0, 1e-5, -1e-5, 1], np.float32)})
    np.testing.assert_allclose(found["y"], np.array([1e-5, 2e-5, 0, 1 + 1e-5], np.float32), rtol=1e-6)
