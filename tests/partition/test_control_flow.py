"""Bodies of If and Loop read what they capture, whatever it is called now and wherever it is computed."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest

from eqsat.errors import OptimizationError
from eqsat.partition.regions import regions
from tests.partition.checks import accelerate, check, parsed
from tests.partition.plans import Builder, plan_of

CONTROL_FLOW = """
g (bool cond, float[4] x, int64 n) => (float[4] y, float[4] z)
<float[4] big = {1, 2, 3, 4}>
{
   early = Exp (x)
   taken = Neg (early)
   y = If (cond) <
      then_branch = then_body () => (float[4] t) { inner = Add (early, big) t = Mul (inner, x) },
      else_branch = else_body () => (float[4] e) {
         nested = If (cond) <
            then_branch = deep () => (float[4] d) { inner = Sub (taken, big) d = Abs (inner) },
            else_branch = deeper () => (float[4] d) { inner = Sub (big, taken) d = Identity (inner) }
         >
         e = Add (nested, early)
      }
   >
   z = Loop (n, cond, x) <
      body = loop_body (int64 i, bool go, float[4] state) => (bool go_on, float[4] next) {
         go_on = Identity (go)
         step = Add (state, early)
         next = Mul (step, big)
      }
   >
}
"""


@pytest.mark.parametrize(
    "where", [(), ("Exp",), ("Exp", "Neg"), ("If",), ("If", "Exp"), ("Loop", "Neg"), ("If", "Loop", "Exp", "Neg")]
)
def test_subgraphs_read_what_they_capture(where):
    flat = parsed(CONTROL_FLOW)
    original = onnx.shape_inference.infer_shapes(flat)
    for seed in (0, 1, 2):
        check(plan_of(ir.from_proto(original), accelerate(*where)), original, seed=seed)


def test_captured_values_have_moved_and_inner_names_are_taken():
    """What a body captures has become another value, and the names it defines itself now belong to outer values."""
    b = Builder()
    cond = b.input("cond", (), onnx.TensorProto.BOOL)
    x = b.input("x", (3,))
    first = b.node("Exp", x, target=1)
    second = b.node("Neg", first, target=1)
    third = b.node("Abs", x, target=0)
    c = b.constant(np.arange(3, dtype=np.float32))
    b.subgraph_names = {"gone": second, "weight": c, "x_before": third}
    host = ir.from_proto(
        parsed(
            """g (bool cond, float[3] gone, float[3] weight, float[3] x_before) => (float[3] y) {
                 y = If (cond) <
                   then_branch = a () => (float[3] r) { h = Add (gone, weight) r = Relu (h) },
                   else_branch = b () => (float[3] r) { h = Mul (x_before, weight) k = Sub (h, gone) r = Abs (k) }
                 > }"""
        )
    )
    attributes = host.graph.node(0).attributes
    y = b.node(
        "If", cond, then_branch=attributes["then_branch"].as_graph(), else_branch=attributes["else_branch"].as_graph()
    )
    b.output(y, "y")
    b.output(first, "f")
    b.names[second] = "h"
    b.names[first] = "k"
    b.names[third] = "r"
    b.names[c] = "h_1"
    plan, flat = b.build()
    captured_as = {"gone": "h", "weight": "h_1", "x_before": "r"}
    model = check(plan, flat, seed=1)
    check(plan, flat, seed=2)
    node = next(n for n in model.graph if n.op_type == "If")
    read = {v.name for g in ("then_branch", "else_branch") for n in node.attributes[g].as_graph() for v in n.inputs}
    defined = {v.name for g in ("then_branch", "else_branch") for n in node.attributes[g].as_graph() for v in n.outputs}
    assert set(captured_as.values()) <= read
    assert not defined & (set(captured_as.values()) | {"f"})
    # The bodies that were given are as they were.
    assert [n.outputs[0].name for n in attributes["then_branch"].as_graph()] == ["h", "r"]


def test_captured_value_that_is_nowhere():
    flat = parsed(CONTROL_FLOW)
    plan = plan_of(ir.from_proto(flat))
    lost = {k: v for k, v in plan.subgraph_names.items() if k != "early"}
    broken = dataclasses.replace(plan, subgraph_names=lost)
    with pytest.raises(OptimizationError, match=r"subgraph captures.*'early'"):
        regions(broken)
