"""Plans that are written as a model and read back are the same plans."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.model.load import load
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.read_plan import SavedPlan, SavedScope, operand_places, read_plan, read_region
from eqsat.partition.regions import regions
from eqsat.partition.write_plan import to_model
from eqsat.rules.reader import read_text
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey
from tests.partition.random_plans import random_plan

NPU = """
target npu
    peak float32 = 4e13
    bandwidth = 8e11, launch = 1e-8, dispatch = 1e-8
    link bandwidth = 4e11, latency = 1e-9
    composite sum_relu : exact
        s = x + y, d = Relu(s)
        cost 1e-12
"""


def kernels(saved: SavedPlan) -> list[tuple[SavedScope, PlanNode, ir.Node]]:
    """The kernels of a model in order, those of its regions included."""
    found = []
    for call in saved.main.plan.nodes:
        scope = saved.regions[call.op].scope if call.op in saved.regions else saved.main
        if scope is not saved.main:
            found += [(scope, *pair) for pair in zip(scope.plan.nodes, scope.nodes, strict=True)]
        else:
            found.append((scope, call, saved.main.nodes[saved.main.plan.nodes.index(call)]))
    return found


def operators(node: PlanNode) -> list[OpKey]:
    return [node.op] if node.body is None else [inner.op for inner in node.body.nodes]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_saved", [False, True])
def test_a_plan_comes_back(seed, is_saved):
    plan, flat = random_plan(seed)
    expected = regions(plan)
    model = to_model(plan, expected, ir.from_proto(flat))
    if is_saved:
        model = load(ir.to_proto(model))
    before = ir.to_proto(model).SerializeToString()
    saved = read_plan(model)
    assert ir.to_proto(model).SerializeToString() == before
    assert saved.main.plan.targets[: len(plan.targets)] == plan.targets
    assert {f.name for f in saved.regions.values()} == {r.name for r in expected if r.target and r.outputs}
    order = [plan.nodes[i] for r in expected if not r.target or r.outputs for i in r.nodes]
    # What the writer adds are identities for outputs that have another name.
    found = [k for k in kernels(saved) if k[2].name and "eqsat.cost" in k[2].metadata_props]
    assert len(found) == len(order)
    for (scope, node, origin), wanted in zip(found, order, strict=True):
        assert node.name == origin.name
        assert (node.op, node.cost, node.rule, node.family) == (wanted.op, wanted.cost, wanted.rule, wanted.family)
        assert scope.plan.targets[node.target] == plan.targets[wanted.target]
        assert (node.body is None) == (wanted.body is None)
        same = operators(wanted)
        assert operators(node)[: len(same)] == same
        assert set(operators(node)[len(same) :]) <= {OpKey("", "Identity")}, "a function may not return its operand"
        last = max((i for i, v in enumerate(wanted.inputs) if v is not None), default=-1)
        assert [v is None for v in node.inputs] == [v is None for v in wanted.inputs[: last + 1]]
        if node.body is not None and wanted.body is not None:
            assert_same_body(node.body, wanted.body.without([i for i, v in enumerate(wanted.inputs) if v is None]))
    assert_closed(saved.main.plan)
    for function in saved.regions.values():
        assert_closed(function.scope.plan)


@pytest.mark.parametrize("seed", range(4))
def test_a_region_alone_is_read_as_within_its_model(seed: int) -> None:
    plan, flat = random_plan(seed)
    model = load(ir.to_proto(to_model(plan, regions(plan), ir.from_proto(flat))))
    saved = read_plan(model)
    assert saved.regions
    for wanted in saved.regions.values():
        found = read_region(wanted.function, model.functions)
        assert (found.name, found.target, found.scope.nodes) == (wanted.name, wanted.target, wanted.scope.nodes)
        assert found.scope.values == wanted.scope.values
        pairs = zip(found.scope.plan.nodes, wanted.scope.plan.nodes, strict=True)
        for one, other in pairs:
            assert (one.op, one.attrs, one.inputs, one.outputs) == (other.op, other.attrs, other.inputs, other.outputs)
            assert (one.body, one.cost, one.rule) == (other.body, other.cost, other.rule)
        for vid, value in enumerate(found.scope.values):
            assert found.scope.plan.names[vid] == value.name


@pytest.mark.parametrize("text", ["", "dear", "-1", "nan", "inf"])
def test_a_cost_that_cannot_be_right_is_ignored(text: str) -> None:
    plan, flat = random_plan(0)
    model = to_model(plan, regions(plan), ir.from_proto(flat))
    for node in model.graph:
        node.metadata_props["eqsat.cost"] = text
    assert all(node.cost == 0 for node in read_plan(model).main.plan.nodes)


def present(node: BodyNode) -> tuple[int | None, ...]:
    """Operands without the absent ones at the end."""
    last = max((i for i, v in enumerate(node.inputs) if v is not None), default=-1)
    return node.inputs[: last + 1]


def assert_same_body(found: Body, wanted: Body) -> None:
    for node, same in zip(found.nodes, wanted.nodes, strict=False):
        known = dict(same.attrs)
        assert {name: known.get(name, value) for name, value in node.attrs} == dict(node.attrs)
        assert known.keys() <= dict(node.attrs).keys() | {"dilations"}
    if found.inputs == wanted.inputs:
        assert [n.inputs for n in found.nodes[: len(wanted.nodes)]] == [present(n) for n in wanted.nodes]
    if len(found.nodes) == len(wanted.nodes) and found.inputs == wanted.inputs:
        assert found.results == wanted.results


def assert_closed(plan: Plan) -> None:
    """Every value is an input, a constant, or computed before it is read."""
    known = {vid for vid, _ in plan.inputs} | plan.constants.keys()
    for node in plan.nodes:
        assert known.issuperset(v for v in node.inputs if v is not None)
        known.update(v for v in node.outputs if v is not None)
    assert known.issuperset(vid for vid, _ in plan.outputs)


def test_a_model_of_others_is_a_plan_of_plain_operators():
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
            a = Add (x, w)
            b = If (c) <then_branch = t () => (float[2] p) { p = Neg (a) },
                        else_branch = e () => (float[2] q) { q = Identity (w) }>
            k = Constant <value = float[2] {3, 4}> ()
            y = Mul (b, k)
        }"""
    saved = read_plan(ir.from_proto(onnx.parser.parse_model(text)))
    plan = saved.main.plan
    assert [str(n.op) for n in plan.nodes] == ["Add", "If", "Mul"]
    assert not saved.regions
    assert_closed(plan)
    a, w = (next(i for i, name in plan.names.items() if name == wanted) for wanted in "aw")
    assert plan.nodes[1].inputs[1:] == (w, a), "captured values are the last operands"
    assert sorted(t.numpy().tolist() for t in plan.constants.values()) == [[1, 2], [3, 4]]


def test_functions_of_a_declared_operator_are_read_by_its_name(tmp_path: Path) -> None:
    rules = tmp_path / "acme.rules"
    rules.write_text("operator acme.ScaledRelu(x: floats, alpha = 1.0) = Relu(x) * alpha\n", "utf-8")
    with eqsat.declarations(rules):
        scaled = eqsat.op("acme").ScaledRelu
        graph = eqsat.graph(scaled(scaled(eqsat.input("x", (4, 8)), alpha=3.0), alpha=0.5))
        model = eqsat.optimize(graph, rules=[rules], default_rules=False).model
        assert {node.op_type for node in model.graph} == {"ScaledRelu", "ScaledRelu_1"}
        found = read_plan(model).main.plan.nodes
    assert [(str(node.op), dict(node.attrs)["alpha"]) for node in found] == [
        ("acme.ScaledRelu", 3.0),
        ("acme.ScaledRelu", 0.5),
    ]
    assert all(node.body is not None and node.body.nodes[0].op == OpKey("", "Relu") for node in found)


@pytest.mark.parametrize("read", [[1], [0, 1]])
def test_a_composite_with_several_results_comes_back(read: list[int]) -> None:
    npu = read_text(NPU).targets[0]
    x = eqsat.input("x", (3, 8))
    s = x + op.Sin(x)
    outputs = [s, op.Relu(s)]
    result = eqsat.optimize(eqsat.graph([op.Exp(outputs[i]) for i in read]), targets=[npu], default_rules=False)
    (node,) = [n for n in result.plan.nodes if n.op.name == "sum_relu"]
    assert node.body is not None
    for model in (result.model, load(ir.to_proto(result.model))):
        saved = read_plan(model)
        ((scope, found, _),) = [k for k in kernels(saved) if k[1].op == node.op]
        assert found.body is not None
        assert len(found.outputs) == len(found.body.results) == 2
        assert found.body.results == node.body.results
        used = {v for inner in scope.plan.nodes for v in inner.inputs} | {vid for vid, _ in scope.plan.outputs}
        assert [i for i, v in enumerate(found.outputs) if v in used] == read


@pytest.mark.parametrize("text", ["", "a", "1", "0,0", "1,0", "0,99999999999", "-1,0", "0,1,2", "0,\u0661"])
def test_places_that_cannot_be_right_are_ignored(text):
    graph = ir.Graph([ir.Value(name="x"), ir.Value(name="y")], [], nodes=[], name="f")
    function = ir.Function("eqsat.t", "f", graph=graph, attributes=())
    function.metadata_props["eqsat.operands"] = text
    assert operand_places(function) == [0, 1]
    function.metadata_props["eqsat.operands"] = "0,2"
    assert operand_places(function) == [0, 2]
