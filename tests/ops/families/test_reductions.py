"""Reductions, arg-reductions and cumulative operators."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import check, run_reference, values

NAMES = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_reduction(name: str, dtype: type):
    if np.dtype(dtype).kind == "i" and name in ("LogSum", "LogSumExp", "L2", "Mean"):
        pytest.skip("rounding of logarithms, roots and means of integers is not specified")
    rng = np.random.default_rng(0)
    low = 1 if name == "LogSum" else -3
    for shape in ((4,), (3, 4), (2, 3, 4)):
        x = values(rng, shape, dtype, low, 3)
        for axes in (None, [0], [-1], list(range(len(shape))), [0, -1] if len(shape) > 2 else [0]):
            for keep in (0, 1):
                inputs = [x, None if axes is None else np.array(axes, np.int64)]
                check(f"Reduce{name}", inputs, {"keepdims": keep}, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_without_axes(name: str):
    x = values(np.random.default_rng(1), (2, 3), np.float32, 1, 3)
    empty = np.array([], np.int64)
    for keep in (0, 1):
        check(f"Reduce{name}", [x, empty], {"keepdims": keep}, rtol=1e-6)
        check(
            f"Reduce{name}", [x, empty], {"keepdims": keep, "noop_with_empty_axes": 1}, rtol=1e-6, judge=run_reference
        )
        check(f"Reduce{name}", [x], {"keepdims": keep, "noop_with_empty_axes": 1}, rtol=1e-6, judge=run_reference)


@pytest.mark.parametrize("name", ["Max", "Min"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_])
def test_extrema_of_small_types(name: str, dtype: type):
    x = values(np.random.default_rng(2), (3, 4, 5), dtype, -100, 100)
    check(f"Reduce{name}", [x, np.array([1])])


@pytest.mark.parametrize("name", ["Sum", "Max", "Min", "Prod", "L1", "SumSquare"])
def test_reduction_of_nothing(name: str):
    x = np.zeros((2, 0, 3), np.float32)
    check(f"Reduce{name}", [x, np.array([1])], judge=run_reference)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64])
def test_the_mean_of_nothing_is_that_of_onnx_runtime(dtype: type):
    x = np.zeros((2, 0, 3), dtype)
    for axes in ([1], [0, 1], [0], None):
        check("ReduceMean", [x, None if axes is None else np.array(axes)])


def test_halves_are_summed_in_single_precision():
    x = np.full((1, 5000), 1.0, np.float16)
    assert check("ReduceSum", [x], judge=lambda *_: [np.array([[5000]], np.float16)])[0] == 5000


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8, np.uint8])
def test_arg_reduction(name: str, dtype: type):
    x = values(np.random.default_rng(3), (3, 4, 5), dtype, 0, 3).round()
    for axis in (-1, 0, 1):
        for keep in (0, 1):
            for last in (0, 1):
                check(name, [x], {"axis": axis, "keepdims": keep, "select_last_index": last})


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_cumulative(name: str, dtype: type):
    x = values(np.random.default_rng(4), (3, 4, 5), dtype, -3, 3)
    for axis in (-1, 0, 1):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                attrs = {"exclusive": exclusive, "reverse": reverse}
                check(name, [x, np.array(axis, np.int64)], attrs, rtol=1e-5, atol=1e-5)
    assert x.flags.owndata
