"""Diagonals and triangles in C, against numpy: within the matrix and beyond it, of fixed and free sizes."""

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


def triangle(x: np.ndarray, k: int, upper: int) -> np.ndarray:
    shift = min(max(k, -100), 100)
    return np.triu(x, shift) if upper else np.tril(x, shift)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_triangles(dtype: str, upper: int) -> None:
    drawn = (np.random.default_rng(3).standard_normal((2, 4, 37)) + 9).astype(dtype)
    x, k = eqsat.input("x", drawn.shape, dtype), eqsat.input("k", (), "int64")
    diagonals = (-5, -1, 0, 3, 40)
    fixed = [op.Trilu(x, np.int64(n), upper=upper) for n in diagonals]
    compiled = eqsat.compile(eqsat.graph([*fixed, op.Trilu(x, k, upper=upper)]))
    for wanted in (-(2**63), -2, 17, 2**63 - 1):
        *results, last = compiled(drawn, np.array(wanted, np.int64))
        for found, n in zip(results, diagonals, strict=True):
            np.testing.assert_array_equal(found, triangle(drawn, n, upper))
        np.testing.assert_array_equal(last, triangle(drawn, wanted, upper))


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_of_free_sizes(upper: int) -> None:
    x = eqsat.input("x", ("h", "w"))
    compiled = eqsat.compile(eqsat.graph(op.Trilu(x, np.int64(1), upper=upper) + 1.0), dims={"h": (1, 6), "w": (1, 6)})
    for h, w in np.ndindex(6, 6):
        drawn = np.arange(1, (h + 1) * (w + 1) + 1, dtype=np.float32).reshape(h + 1, w + 1)
        np.testing.assert_array_equal(compiled(drawn), triangle(drawn, 1, upper) + 1)
