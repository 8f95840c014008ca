"""What a model brings along: its functions, its documentation, its opset."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from eqsat.errors import OptimizationError
from eqsat.partition.plan import PlanNode
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline
from eqsat.partition.write_plan import to_model
from eqsat.schema import declared_operators, opset
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey
from eqsat.version import __version__
from tests.partition.checks import accelerate, parsed, same
from tests.partition.plans import body, constant, plan_of, random_feeds, run_ort

WITH_FUNCTIONS = """<ir_version: 13, opset_import: ["" : 26, "mine" : 1]>
g (float[2, 4] x) => (float[2, 4] y) { a = mine.outer <k = 2> (x) y = Relu (a) }
<domain: "mine", opset_import: ["" : 26]>
unused (a) => (b) { b = Neg (a) }
<domain: "mine", opset_import: ["" : 26, "mine" : 1]>
outer <k> (a) => (b) { c = mine.inner <axis : int = @k> (a) b = Exp (c) }
<domain: "mine", opset_import: ["" : 26]>
inner <axis> (a) => (b) { b = Neg (a) }
"""


@pytest.mark.parametrize("where", [(), ("outer",), ("outer", "Relu")])
def test_functions_of_the_input_model_are_kept_where_called(where):
    flat = onnx.parser.parse_model(WITH_FUNCTIONS)
    plan = plan_of(ir.from_proto(flat), accelerate(*where))
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    names = [f.name for f in model.functions.values()]
    assert "unused" not in names
    assert names.index("inner") < names.index("outer")
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    feeds = random_feeds(flat, 0)
    same(run_ort(proto, feeds), run_ort(flat, feeds))
    assert {f.name for f in inline(model).functions.values()} == {"inner", "outer"}


@pytest.fixture
def registry(monkeypatch):
    """Functions that a test registers are gone after it."""
    monkeypatch.setattr(declared_operators, "_FUNCTIONS", dict(declared_operators._FUNCTIONS))


@pytest.mark.usefixtures("registry")
def test_functions_of_eqsat_are_added():
    op = OpKey(f"{opset.EQSAT}.test", "HalfRelu")
    half = body(1, ("Constant", (), constant(0.5)), ("Mul", (0, 1)), ("Relu", (2,)))
    declared_operators.declare_function(declared_operators.Function(op, ("x",), (), lambda attrs: half))
    original = parsed("g (float[2, 3] x) => (float[2, 3] y) { y = Identity (x) }")
    plan = plan_of(ir.from_proto(original))
    twice = Body(1, (BodyNode(op, (), (0,)), BodyNode(OpKey("", "Neg"), (), (1,))), (2,))
    nodes = (
        PlanNode(op, (), (0,), (2,), 0),
        PlanNode(op, (), (2,), (3,), 1),
        PlanNode(OpKey("dnnl", "half"), (), (3,), (1,), 1, twice),
    )
    plan = dataclasses.replace(plan, nodes=nodes)
    model = to_model(plan, regions(plan), ir.from_proto(original))
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    feeds = random_feeds(original, 0)
    expected = -np.maximum(feeds["x"], 0) / 8
    for got in (run_ort(proto, feeds), ReferenceEvaluator(proto).run(None, feeds)):
        np.testing.assert_array_equal(got[0], expected)
    plain = inline(model)
    assert not plain.functions and list(plain.opset_imports) == [""]
    same(run_ort(ir.to_proto(plain), feeds), [expected])


@pytest.mark.usefixtures("registry")
def test_functions_of_eqsat_with_attributes():
    """What a function computes may depend on its attributes in any way: each combination is a definition."""
    op = OpKey(f"{opset.EQSAT}.test", "Power")

    def definition(attrs):
        times = [("Mul", (0, 0))] + [("Mul", (0, 1 + k)) for k in range(dict(attrs)["exponent"] - 2)]
        return body(1, *times)

    declared_operators.declare_function(declared_operators.Function(op, ("x",), (("exponent", 2),), definition))
    original = parsed("g (float[3] x) => (float[3] y) { y = Identity (x) }")
    plan = plan_of(ir.from_proto(original))

    def power(exponent, *values, target):
        return PlanNode(op, (("exponent", exponent),), (values[0],), (values[1],), target)

    inside = Body(1, (BodyNode(op, (("exponent", 4),), (0,)), BodyNode(op, (), (1,))), (2,))
    nodes = (
        power(3, 0, 2, target=0),
        power(2, 2, 3, target=1),
        PlanNode(OpKey("dnnl", "p8"), (), (3,), (1,), 1, inside),
    )
    plan = dataclasses.replace(plan, nodes=nodes)
    model = to_model(plan, regions(plan), ir.from_proto(original))
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert sorted(f.name for f in proto.functions if f.domain == op.domain) == ["Power", "Power_1", "Power_2"]
    feeds = {"x": np.array([1, -1.0625, 0.9375], np.float32)}
    expected = feeds["x"].astype(np.float64) ** (3 * 2 * 8)
    for got in (
        run_ort(proto, feeds),
        ReferenceEvaluator(proto).run(None, feeds),
        run_ort(ir.to_proto(inline(model)), feeds),
    ):
        np.testing.assert_allclose(got[0], expected, rtol=1e-5)


def test_function_names_of_the_input_model_that_are_ours():
    text = """<ir_version: 13, opset_import: ["" : 26, "eqsat.dnnl" : 1]>
        g (float[2] x) => (float[2] y) { h = eqsat.dnnl.dnnl_0 (x) y = Exp (h) }
        <domain: "eqsat.dnnl", opset_import: ["" : 26]>
        dnnl_0 (a) => (b) { b = Neg (a) }"""
    original = ir.from_proto(onnx.parser.parse_model(text))
    plan = plan_of(original, accelerate("Exp"))
    with pytest.raises(OptimizationError, match=r"eqsat\.dnnl\.dnnl_0\n.*inline"):
        to_model(plan, regions(plan), original)


def test_another_opset_is_refused():
    flat = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Exp (x) }'
    )
    plan = plan_of(ir.from_proto(flat))
    with pytest.raises(OptimizationError, match="opset 26 is required; got 17"):
        to_model(plan, regions(plan), ir.from_proto(flat))


def test_model_documentation_is_kept():
    flat = parsed("g (float[2] x) => (float[2] y) { y = Exp (x) }")
    flat.doc_string = "doc"
    flat.model_version = 7
    flat.graph.doc_string = "graph doc"
    flat.graph.input[0].doc_string = "an input"
    onnx.helper.set_model_props(flat, {"author": "me"})
    original = ir.from_proto(flat)
    plan = plan_of(original)
    proto = ir.to_proto(to_model(plan, regions(plan), original))
    assert (proto.doc_string, proto.model_version, proto.graph.name) == ("doc", 7, "g")
    assert (proto.graph.doc_string, proto.graph.input[0].doc_string) == ("graph doc", "an input")
    said = {p.key: p.value for p in proto.metadata_props}
    assert said == {"author": "me", "eqsat.targets": "cpu,dnnl,npu", "eqsat.version": __version__}
