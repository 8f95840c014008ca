"""Distances of two results, in all types and shapes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from eqsat.verify.judge_values import SAFETY, distance, without_ill_conditioned


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.float32, np.bool_])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_distances_cause_no_warning(dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    low, high = np.full(shape, 0 if dtype in (np.uint64, np.bool_) else -5).astype(dtype), np.ones(shape, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = distance(low, high)
    assert found.shape == shape
    expected = np.inf if dtype is np.bool_ else abs(float(high.ravel()[0]) - float(low.ravel()[0]))
    assert np.all(found == expected)


@pytest.mark.parametrize("shape", [(), (3, 70)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_changes_are_drawn_until_they_explain_all_elements(dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, 200, shape).astype(dtype) for _ in range(2))
    mask = np.asarray(rng.random(shape) < 0.8) | (np.ndim(left) == 0)
    for reach in (0, 1, 10, 1000):
        drawn: list[np.ndarray] = []

        def changed(delta: float, seed: int, reach: int = reach, drawn: list[np.ndarray] = drawn) -> np.ndarray:
            change = np.random.default_rng(seed).integers(-reach, reach, shape, endpoint=True)
            drawn.append(np.asarray(np.clip(left.astype(np.int64) + change, 0, 200), dtype))
            return drawn[-1]

        found = without_ill_conditioned(mask, left, right, 0.0, changed)
        moved = [np.max([distance(left, x) for x in drawn[: k + 1]], axis=0) for k in range(len(drawn))]
        left_over = [mask & ~(distance(left, right) <= SAFETY * most) for most in moved]
        assert np.array_equal(found, left_over[-1])
        assert len(drawn) == 6 or not found.any()
        assert all(rest.any() for rest in left_over[:-1])


def test_a_change_that_cannot_be_executed_explains_nothing() -> None:
    mask, left, right = np.array([True, False]), np.zeros(2), np.ones(2)
    assert without_ill_conditioned(mask, left, right, 0.0, lambda delta, seed: None).tolist() == [True, False]
    assert not without_ill_conditioned(mask, left, right, 0.0, lambda delta, seed: right).any()
