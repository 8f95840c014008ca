"""The largest and smallest elements in C beside a stable sort: ties, NaN, infinities, any axis and type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqsat.codegen.runtime import CModel
from eqsat.model.load import load


def _order(x: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    """Places from the best on; of equal ones the first, and NaN last."""
    key = x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)
    key = -key if largest else key
    return np.argsort(key, axis, kind="stable")


def _check(x: np.ndarray, k: int, axis: int, largest: bool) -> None:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    shape = [k if a == axis % x.ndim else n for a, n in enumerate(x.shape)]
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=axis, largest=int(largest))
    outputs = [helper.make_tensor_value_info("y", kind, shape), helper.make_tensor_value_info("i", 7, shape)]
    inputs = [helper.make_tensor_value_info("x", kind, x.shape)]
    graph = helper.make_graph([node], "best", inputs, outputs, [numpy_helper.from_array(np.array([k]), "k")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert isinstance(model, onnx.ModelProto)
    found = CModel(load(model)).run({"x": x})
    expected = np.take(_order(x, axis, largest), range(k), axis)
    np.testing.assert_array_equal(found["i"], expected)
    np.testing.assert_array_equal(found["y"], np.take_along_axis(x, expected, axis))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(
    ("shape", "k", "axis"),
    [((1, 500), 70, 1), ((4, 33), 33, -1), ((9, 5, 4), 2, 0), ((3, 7), 1, 1), ((3, 1003), 1, 1), ((2, 3, 64), 48, 2)],
)
def test_floats(shape: tuple[int, ...], k: int, axis: int, largest: bool):
    rng = np.random.default_rng(1)
    _check(rng.standard_normal(shape).astype(np.float32), k, axis, largest)
    _check(rng.integers(-3, 4, shape).astype(np.float32), k, axis, largest)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.float64])
def test_types(dtype: type, largest: bool):
    rng = np.random.default_rng(2)
    _check(rng.integers(0, 20, (5, 60)).astype(dtype), 13, 1, largest)


@pytest.mark.parametrize("largest", [False, True])
def test_what_is_not_a_number(largest: bool):
    rng = np.random.default_rng(3)
    x = rng.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32), (6, 40))
    x[5] = np.nan
    for k in (1, 8, 40):
        _check(x, k, 1, largest)
    lines = np.repeat(x, 5, axis=1)
    lines[:, 60:180] = np.sort(lines[:, 60:180])
    for k in (1, 17, 150):
        _check(lines, k, 1, largest)
