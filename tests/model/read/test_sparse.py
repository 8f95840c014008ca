"""Sparse constants are dense ones for eqsat, and refused where they are not what they say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import eqsat
from eqsat.errors import EqsatError, ModelError
from tests.control.flows import run

RNG = np.random.default_rng(3)
W = np.where(RNG.random((6, 5)) < 0.7, 0, RNG.standard_normal((6, 5))).astype(np.float32)


def sparse(array: np.ndarray, coordinates: bool = False) -> onnx.SparseTensorProto:
    at = np.argwhere(array) if coordinates else np.flatnonzero(array)
    values = numpy_helper.from_array(array[array != 0], "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(at.astype(np.int64), "i"), array.shape)


def model(tensor: onnx.SparseTensorProto, form: str, dtype: int = 1) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", dtype, ["N", 6])
    y = helper.make_tensor_value_info("y", dtype, None)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if form != "initializer":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=tensor))
    if form == "in a body":
        bodies = [helper.make_graph(nodes, name, [], [y]) for name in "te"]
        condition = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
        nodes = [condition, helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])]
    graph = helper.make_graph(nodes, "g", [x], [y])
    if form == "initializer":
        graph.sparse_initializer.append(tensor)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("form", ["initializer", "constant", "in a body"])
def test_a_sparse_constant_is_a_dense_one(form: str, coordinates: bool) -> None:
    source = model(sparse(W, coordinates), form)
    x = RNG.standard_normal((3, 6)).astype(np.float32)
    np.testing.assert_allclose(eqsat.run(source, {"x": x})["y"], x @ W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(source, {"x": x})[0], x @ W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(eqsat.optimize(source).run({"x": x})["y"], x @ W, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_other_element_types(dtype: type) -> None:
    weights = np.array([[0, 2, 0]] * 6, dtype)
    source = model(sparse(weights), "initializer", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    x = np.arange(12).reshape(2, 6).astype(dtype)
    found = eqsat.run(source, {"x": x})["y"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, x @ weights)


def test_nothing_but_zeros() -> None:
    source = model(sparse(np.zeros((6, 5), np.float32)), "initializer")
    assert not eqsat.run(source, {"x": np.ones((1, 6), np.float32)})["y"].any()


@pytest.mark.parametrize(
    ("at", "dims"), [([1, 0], [6, 5]), ([0, 0], [6, 5]), ([0, 30], [6, 5]), ([-1, 0], [6, 5]), ([0], [6, 5])]
)
def test_positions_that_do_not_fit(at: Sequence[int], dims: Sequence[int]) -> None:
    values = numpy_helper.from_array(np.ones(2, np.float32), "w")
    tensor = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(at, np.int64), "i"), dims)
    with pytest.raises(ModelError, match="tensor 'w'"):
        eqsat.run(model(tensor, "initializer"), {"x": np.ones((1, 6), np.float32)})


def test_a_dense_form_that_fits_nowhere() -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    tensor = helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "i"), [1 << 40])
    with pytest.raises(EqsatError, match="tensor 'w'"):
        eqsat.run(model(tensor, "constant"), {"x": np.ones((1, 6), np.float32)})
