"""Reading and writing at indices."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.errors import ExecutionError
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, values


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather(dtype: type, kind: type):
    rng = np.random.default_rng(0)
    x = values(rng, (4, 5, 6), dtype)
    for axis in (-1, 0, 1):
        n = x.shape[axis]
        for shape in ((), (3,), (2, 2), (0,)):
            check("Gather", [x, values(rng, shape, kind, -n, n - 1)], {"axis": axis})


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_gather_and_scatter_elements(axis: int):
    rng = np.random.default_rng(1)
    x = values(rng, (4, 5, 6), np.float32)
    n = x.shape[axis]
    shape = [3, 4, 5]
    # Each line along the axis writes every place at most once.
    lines = rng.permuted(np.broadcast_to(np.arange(n), (*shape, n)), axis=-1)
    index = np.moveaxis(lines, -1, axis)[tuple(slice(0, s) for s in shape)]
    index = np.moveaxis(np.moveaxis(lines, -1, 0)[: shape[axis]], 0, axis)
    index = np.ascontiguousarray(np.take(index, 0, axis + 1 if axis >= 0 else axis))
    index = np.where(rng.random(index.shape) < 0.3, index - n, index)
    check("GatherElements", [x, index], {"axis": axis})
    updates = values(rng, index.shape, np.float32)
    check("ScatterElements", [x, index, updates], {"axis": axis})


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_scatter_with_reduction(reduction: str, dtype: type):
    rng = np.random.default_rng(2)
    x = values(rng, (4, 5), dtype)
    index = values(rng, (3, 5), np.int64, -4, 3)
    check("ScatterElements", [x, index, values(rng, (3, 5), dtype)], {"reduction": reduction}, rtol=1e-6)
    places = values(rng, (6, 1), np.int64, -4, 3)
    check("ScatterND", [x, places, values(rng, (6, 5), dtype)], {"reduction": reduction}, rtol=1e-6)


def test_scatter_nd():
    rng = np.random.default_rng(3)
    x = values(rng, (4, 5, 6), np.float32)
    check("ScatterND", [x, np.array([[0], [3]]), values(rng, (2, 5, 6), np.float32)])
    check("ScatterND", [x, np.array([[[0, 1], [3, -1]]]), values(rng, (1, 2, 6), np.float32)])
    check("ScatterND", [x, np.array([[0, 1, 2], [-1, -1, -1]]), values(rng, (2,), np.float32)])


def test_gather_nd():
    rng = np.random.default_rng(4)
    x = values(rng, (3, 4, 5), np.float32)
    for batch in (0, 1):
        for depth in range(1, 4 - batch):
            limits = np.array(x.shape[batch : batch + depth])
            lead = x.shape[:batch]
            index = (rng.random((*lead, 2, depth)) * limits).astype(np.int64)
            index = np.where(rng.random(index.shape) < 0.3, index - limits, index)
            check("GatherND", [x, index], {"batch_dims": batch})


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
def test_one_hot(axis: int):
    index = values(np.random.default_rng(5), (3, 4), np.int64, -7, 7)
    for kind in (np.float32, np.int64):
        for off, on in ((0, 1), (2, 5)):
            check("OneHot", [index, np.array(5), np.array([off, on], kind)], {"axis": axis})


def test_compress_and_non_zero():
    rng = np.random.default_rng(6)
    x = values(rng, (3, 4), np.int64, -1, 1)
    check("Compress", [x, np.array([True, False, True])], {"axis": 0})
    check("Compress", [x, np.array([False, True, True])], {"axis": 1})
    check("Compress", [x, np.array([False, True, True, False, True])])
    check("NonZero", [x])
    check("NonZero", [x > 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.uint8, np.int8])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(dtype: type, largest: int):
    rng = np.random.default_rng(7)
    x = values(rng, (4, 6, 5), dtype, -100, 100)
    for axis in (-1, 0, 1):
        for k in (0, 1, 3, x.shape[axis]):
            check("TopK", [x, np.array([k])], {"axis": axis, "largest": largest}, outputs=2)


def test_top_k_takes_the_first_of_equals():
    x = np.array([[3, 1, 3, 1, 3]], np.float32)
    for largest in (0, 1):
        check("TopK", [x, np.array([4])], {"largest": largest}, outputs=2)
    limits = np.array([np.iinfo(np.int32).min, 0, np.iinfo(np.int32).max], np.int32)
    check("TopK", [limits, np.array([3])], outputs=2)


@pytest.mark.parametrize("index", [-5, 4])
def test_indices_out_of_range_are_refused(index: int):
    x = np.zeros((4, 4), np.float32)
    for name, inputs in (
        ("Gather", [x, np.array([index])]),
        ("GatherElements", [x, np.array([[index]])]),
        ("GatherND", [x, np.array([[index]])]),
        ("ScatterElements", [x, np.array([[index]]), np.ones((1, 1), np.float32)]),
    ):
        with pytest.raises(ExecutionError, match="indices must be in"):
            run_ours(OpKey("", name), {}, inputs)
    with pytest.raises(ExecutionError, match="an axis without elements has no indices"):
        run_ours(OpKey("", "Gather"), {}, [x[:0], np.array([index])])
