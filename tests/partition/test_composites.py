"""Functions of composites: what is shared, what is a parameter, and how they are called."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ops
from onnx.reference.op_run import OpRun

from eqsat.errors import OptimizationError
from eqsat.ops.operators import declared
from eqsat.ops.traits import Trait
from eqsat.partition.composites import Composites, operators_name
from eqsat.partition.function_bodies import body_function
from eqsat.schema import opset
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import GraphAttr, OpKey
from tests.partition.plans import body, constant

CONV = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1]}


def test_fixed_operators_are_those_that_the_reference_cannot_parametrise():
    """The list in the code is what onnx.reference says of itself; when it is repaired there, this says so."""

    def subclasses(cls: type) -> set[type]:
        return {cls}.union(*(subclasses(c) for c in cls.__subclasses__()))

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"onnx.reference.ops.{module.name}")
    found = set()
    for cls in subclasses(OpRun):
        name = cls.__name__.partition("_")[0]
        schema = opset.find_schema(OpKey("", name))
        accepts = inspect.signature(cls.run).parameters
        if schema is not None and schema.attributes and "linked_attributes" not in accepts:
            found.add(name)
    assert found == {o.op.name for o in declared() if Trait.OWN_ATTRIBUTES in o.traits}


def test_calls_carry_what_differs():
    strided = body(2, ("Conv", (0, 1), CONV | {"strides": [2, 2]}), ("Relu", (2,)))
    plain = body(2, ("Conv", (0, 1), CONV), ("Relu", (2,)))
    made = Composites([("t", "conv_relu", plain, (True, True)), ("t", "conv_relu", strided, (True, True))])
    (function,) = made.functions
    assert function.metadata_props == {
        "eqsat.target": "t",
        "eqsat.composite": "conv_relu",
        "eqsat.operands": "0,1",
    }
    assert [v.name for v in function.inputs] == ["x", "w"]
    calls = [made.call("t", "conv_relu", b, (True, True)) for b in (plain, strided)]
    assert calls[0].op == calls[1].op == OpKey("eqsat.t.composite", "conv_relu")
    values = [{a.name: a.value for a in c.attributes} for c in calls]
    assert (
        set(values[0])
        == set(function.attributes)
        == {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}
    )
    assert [n for n in values[0] if values[0][n] != values[1][n]] == ["strides"]


def test_absent_operands_are_part_of_the_definition():
    definition = body(4, ("Conv", (0, 1, 2), CONV), ("Add", (4, 3)))
    full, less = (True,) * 4, (True, True, False, True)
    made = Composites([("t", "c", definition, full), ("t", "c", definition, less)])
    assert [f.name for f in made.functions] == ["conv_add", "conv_bias_add"]
    call = made.call("t", "c", definition, less)
    assert call.operands == (0, 1, 3)
    function = made.functions[0]
    assert function.metadata_props["eqsat.operands"] == "0,1,3"
    assert len(function.inputs) == 3 and len(function[0].inputs) == 2


def test_order_of_uses_does_not_matter():
    bodies = [
        body(1, ("Constant", (), constant(v)), ("Mul", (0, 1)), ("LeakyRelu", (2,), {"alpha": a}))
        for v in (1.0, 2.0) for a in (0.1, 0.2)
    ]  # fmt: skip
    uses = [("t", "c", b, (True,)) for b in bodies]
    forward, backward = Composites(uses), Composites(reversed(uses))
    assert [f.name for f in forward.functions] == ["mul_leakyrelu", *(f"mul_leakyrelu_{k}" for k in (1, 2, 3))]
    for a, b in zip(forward.functions, backward.functions, strict=True):
        assert ir.to_proto(a).SerializeToString() == ir.to_proto(b).SerializeToString()
    assert all(forward.call(*u).op == backward.call(*u).op for u in uses)


def test_operators_name():
    assert operators_name(body(3, ("Conv", (0, 1, 2), CONV), ("Relu", (3,)))) == "conv_bias_relu"
    assert operators_name(body(3, ("Gemm", (0, 1, 2)), ("Add", (3, 0)))) == "gemm_bias_add"
    assert operators_name(body(1, results=(0,))) == "identity"


def test_body_function_runs_as_it_stands():
    function = body_function(
        OpKey("d", "f"),
        body(2, ("Split", (0,), {"num_outputs": 2}, 2), ("Mul", (2, 1)), results=(4, 3, 4, 0)),
        inputs=("p", "q"),
    )
    assert [v.name for v in function.inputs] == ["p", "q"]
    assert len({id(v) for v in function.outputs}) == 4
    proto = ir.to_proto(function)
    values = onnx.reference.ReferenceEvaluator(proto).run(
        None, {"p": np.arange(4, dtype=np.float32), "q": np.array([2, 3], np.float32)}, attributes={}
    )
    assert [v.tolist() for v in values] == [[0, 3], [2, 3], [0, 3], [0, 1, 2, 3]]


def test_bad_composites():
    with pytest.raises(OptimizationError, match="all the operands of its definition; got 1 instead of 2"):
        Composites([("t", "c", body(2, ("Add", (0, 1))), (True,))])
    graph = GraphAttr(ir.Graph([], [], nodes=[]), ())
    looped = Body(1, (BodyNode(OpKey("", "If"), (("then_branch", graph), ("else_branch", graph)), (0,)),), (1,))
    with pytest.raises(OptimizationError, match="control flow"):
        Composites([("t", "c", looped, (True,))])
