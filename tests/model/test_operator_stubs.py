"""Editors know the operators as they are: the stubs are current, and agree with what calls accept."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.schema import opset
from tests.model.operator_stubs import PATH, stubs


def test_stubs_are_current() -> None:
    assert PATH.read_text(encoding="utf-8") == stubs(), "python -m tests.model.operator_stubs"


def test_stubs_have_each_operator_and_all_of_its_parameters() -> None:
    (found,) = (node for node in ast.parse(PATH.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef))
    methods = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
    assert set(methods) == set(opset.operator_names())
    for name, method in methods.items():
        written = [a.arg for a in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)]
        written += [method.args.vararg.arg] if method.args.vararg is not None else []
        schema = opset.schema(opset.OpKey("", name))
        assert sorted(written) == sorted(
            ["self", "outputs", "name", *(i.name for i in schema.inputs), *schema.attributes]
        ), name


def test_operators_tell_their_parameters_at_run_time() -> None:
    found = inspect.signature(op.Conv)
    assert list(found.parameters)[:4] == ["X", "W", "B", "auto_pad"]
    assert found.parameters["group"].default == 1
    assert "group: number of groups" in (inspect.getdoc(op.Conv) or "")
    assert inspect.signature(op("com.microsoft").FusedGemm).parameters["alpha"].default == 1.0
    assert "eqsat" in (inspect.getdoc(op.Requantize) or "")


def test_calls_are_as_the_stubs_say() -> None:
    x = eqsat.input("x", (1, 3, 8, 8))
    assert op.Cast(x, to=ir.DataType.INT8).dtype == np.int8
    assert op.Conv(X=x, W=np.zeros((4, 3, 3, 3), np.float32), B=None, group=1, pads=[1, 1, 1, 1]).shape == (1, 4, 8, 8)


def test_other_domains_have_their_own_operators() -> None:
    assert type(op("com.microsoft")) is not type(op)
    with pytest.raises(AttributeError):
        _ = op.NoSuchOperator
