"""Reading partitioned models back from their bytes."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import ModelError
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline, read_regions
from eqsat.partition.write_plan import to_model
from tests.partition.plans import Builder, body, random_feeds, run_ort
from tests.partition.random_plans import random_plan


@pytest.mark.parametrize("seed", range(10))
def test_regions_are_found_again(seed):
    plan, flat = random_plan(seed)
    expected = regions(plan)
    model = ir.from_proto(ir.to_proto(to_model(plan, expected, ir.from_proto(flat))))
    found = [r for r in read_regions(model) if r.name]
    assert [r.name for r in found] == [r.name for r in expected]
    assert [r.target for r in found] == [plan.targets[r.target] for r in expected]
    for saved, region in zip(found, expected, strict=True):
        kernels = [n for n in saved.nodes if n.op_type != "Constant"]
        stated = [n.metadata_props.get("eqsat.composite", n.op_type) for n in kernels]
        assert stated == [plan.nodes[i].op.name for i in region.nodes]
        assert [float(n.metadata_props["eqsat.cost"]) for n in kernels] == [plan.nodes[i].cost for i in region.nodes]
        assert [n.metadata_props.get("eqsat.rule", "") for n in kernels] == [plan.nodes[i].rule for i in region.nodes]
        assert (saved.function is None) == (saved.call is None) == (region.target == 0)
        if saved.call is not None and saved.function is not None:
            assert len(saved.call.inputs) == len(saved.function.inputs)
            assert [v.name for v in saved.call.outputs] == [v.name for v in saved.function.outputs]
    rest = [n for r in read_regions(model) if not r.name for n in r.nodes]
    assert all(n.op_type == "Identity" for n in rest)
    everything = [n for r in read_regions(model) for n in ([r.call] if r.call is not None else r.nodes)]
    assert everything == list(model.graph)


def test_inlining_leaves_nothing_of_ours_and_the_given_model_alone():
    plan, flat = random_plan(3)
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    before = ir.to_proto(model).SerializeToString()
    plain = inline(model)
    assert ir.to_proto(model).SerializeToString() == before
    assert b"eqsat." not in ir.to_proto(plain).SerializeToString()
    assert not plain.functions
    feeds = random_feeds(flat, 0)
    for a, b in zip(run_ort(ir.to_proto(plain), feeds), run_ort(ir.to_proto(model), feeds), strict=True):
        assert (a == b).all()
    kept = {v.name for f in model.functions.values() if "composite" not in f.domain for n in f for v in n.outputs}
    assert kept <= {v.name for n in plain.graph for v in n.outputs}, "tensors inside regions keep their names"
    assert ir.to_proto(inline(plain)).SerializeToString() == ir.to_proto(plain).SerializeToString()


def test_models_of_others():
    text = '<ir_version: 13, opset_import: ["" : 26]> g (float[2] x) => (float[2] y) { h = Exp (x) y = Neg (h) }'
    model = ir.from_proto(onnx.parser.parse_model(text))
    (only,) = read_regions(model)
    assert (only.name, only.target, only.function) == ("", "", None)
    assert [n.op_type for n in only.nodes] == ["Exp", "Neg"]


def test_missing_function():
    plan, flat = random_plan(0)
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    lost = next(f for f in model.functions.values() if f.domain == "eqsat.dnnl")
    del model.functions[lost.identifier()]
    with pytest.raises(ModelError, match=f"node '{lost.name}'.*no `eqsat.dnnl.{lost.name}`"):
        read_regions(model)


def test_inlined_names_do_not_shadow():
    """Values inside composites have short names; a body on the host may define the same ones."""
    host = ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 13, opset_import: ["" : 26]>
               g (bool cond, float[3] x) => (float[3] y) {
                 y = If (cond) <
                   then_branch = a () => (float[3] relu) { add = Neg (x) relu = Exp (add) },
                   else_branch = b () => (float[3] relu) { relu = Abs (x) }
                 > }"""
        )
    ).graph.node(0).attributes  # fmt: skip
    b = Builder()
    cond = b.input("cond", (), onnx.TensorProto.BOOL)
    x = b.input("in", (3,))
    y = b.composite("add_relu", body(2, ("Add", (0, 1)), ("Relu", (2,))), x, x)
    b.subgraph_names = {"x": y}
    b.output(b.node("If", cond, **{k: a.as_graph() for k, a in host.items()}), "z")
    plan, flat = b.build()
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    plain = ir.to_proto(inline(model))
    onnx.checker.check_model(plain, full_check=True)
    for seed in range(3):
        feeds = random_feeds(flat, seed)
        assert (run_ort(plain, feeds)[0] == run_ort(flat, feeds)[0]).all()
