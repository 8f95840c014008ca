"""Distances of two results, in all types and shapes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from eqsat.verify.judge_values import distance


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
