"""Operators of ours are functions, and the files that call them define them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat.model.load import load
from eqsat.model.save import save
from eqsat.model.write.written_definitions import with_definitions
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import Function, declare_function, find_function, functions
from eqsat.schema.opset import EQSAT
from eqsat.schema.types import AttrValue, OpKey, TensorAttr
from tests.model.running import random_inputs, run_ort, run_reference

SCALED = OpKey("eqsat.test", "Scaled")
OUTER = OpKey("eqsat.test", "Outer")


def _scaled(attrs: Mapping[str, AttrValue]) -> Body:
    factor = TensorAttr(np.array(attrs["factor"], np.float32), ir.DataType.FLOAT)
    constant = BodyNode(OpKey("", "Constant"), (("value", factor),), ())
    return Body(1, (constant, BodyNode(OpKey("", "Mul"), (), (0, 1))), (2,))


@pytest.fixture(autouse=True)
def registered() -> None:
    declare_function(Function(SCALED, ("x",), (("factor", 2.0),), _scaled))
    twice = (BodyNode(SCALED, (("factor", 5.0),), (0,)), BodyNode(OpKey("", "Neg"), (), (1,)))
    declare_function(Function(OUTER, ("x",), (), lambda _: Body(1, twice, (2,))))


def _check(model: ir.Model, path: Path, expected: np.ndarray, x: np.ndarray) -> onnx.ModelProto:
    save(model, path)
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    np.testing.assert_allclose(run_ort(proto, {"x": x})[0], expected, rtol=1e-6)
    np.testing.assert_allclose(run_reference(proto, {"x": x})[0], expected, rtol=1e-6)
    np.testing.assert_allclose(run_ort(load(path), {"x": x})[0], expected, rtol=1e-6)
    return proto


def test_each_combination_of_attributes_is_defined(tmp_path: Path) -> None:
    x = eqsat.input("x", (3,))
    own = eqsat.op("eqsat.test")
    y = own.Scaled(x) + own.Scaled(x, factor=3.0) + own.Scaled(x, factor=2.0)
    assert y.shape == (3,)
    model = eqsat.graph(y)
    a = np.array([1, -2, 3], np.float32)
    proto = _check(model, tmp_path / "m.onnx", 7 * a, a)
    assert sorted(f.name for f in proto.functions) == ["Scaled", "Scaled_1"]
    assert not model.functions and [n.op_type for n in model.graph if n.domain] == ["Scaled"] * 3


def test_functions_that_call_functions(tmp_path: Path) -> None:
    model = eqsat.graph(eqsat.op("eqsat.test").Outer(eqsat.input("x", (3,))))
    a = np.array([1, -2, 3], np.float32)
    proto = _check(model, tmp_path / "m.onnx", -5 * a, a)
    assert sorted(f.name for f in proto.functions) == ["Outer", "Scaled"]


def test_nothing_to_define_is_no_copy() -> None:
    model = eqsat.graph(eqsat.input("x", (3,)) + 1)
    assert with_definitions(model) is model


@pytest.mark.parametrize("op", [f.name for f in functions() if f.domain == EQSAT])
def test_our_own_are_known_without_importing_them(op: str, tmp_path: Path) -> None:
    function = find_function(OpKey(EQSAT, op))
    assert function is not None
    body = function.body(dict(function.attributes))
    assert body.inputs == len(function.inputs)
    if len(function.inputs) > 1:
        return
    model = eqsat.graph(getattr(eqsat.op(EQSAT), op)(eqsat.input("x", (2, 3))))
    feed = random_inputs(model)
    save(model, tmp_path / "m.onnx")
    (y,) = run_ort(onnx.load(tmp_path / "m.onnx"), feed)
    shape = model.graph.outputs[0].shape
    assert shape is not None and shape.numpy() == y.shape
