"""Ones on a diagonal in C, against numpy: diagonals within the matrix and beyond it, of fixed and free sizes."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op


def test_every_diagonal() -> None:
    x = eqsat.input("x", (3, 5))
    diagonals = range(-6, 7)
    compiled = eqsat.compile(eqsat.graph([op.EyeLike(x, k=k) for k in diagonals]))
    for found, k in zip(compiled(np.zeros((3, 5), np.float32)), diagonals, strict=True):
        np.testing.assert_array_equal(found, np.eye(3, 5, k))


@pytest.mark.parametrize("k", [-2, 0, 2])
def test_free_sizes(k: int) -> None:
    x = eqsat.input("x", ("h", "w"))
    compiled = eqsat.compile(eqsat.graph(op.EyeLike(x, k=k) + 1.0), dims={"h": (1, 6), "w": (1, 6)})
    for shape in np.ndindex(6, 6):
        h, w = shape[0] + 1, shape[1] + 1
        np.testing.assert_array_equal(compiled(np.zeros((h, w), np.float32)), np.eye(h, w, k) + 1)
