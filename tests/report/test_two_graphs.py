"""The two graphs of a report: complete, in agreement with the tables, and right about what covers what."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.report.cover import shared_costs
from eqsat.report.drawn_graphs import script_data
from eqsat.report.graphs import GraphComparison
from eqsat.report.html import to_html
from eqsat.rules.listing import texts_of
from eqsat.rules.reader import read_files
from tests.hostile_names import INSTRUCTIONS

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
NORM = (
    HEAD
    + """g (float[1, 8, 256, 256] x) => (float[1, 4, 256, 256] y)
<float[4, 8, 3, 3] w, float[4] s, float[4] b, float[4] m, float[4] v> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    n = BatchNormalization (a, s, b, m, v)
    y = Relu (n)
}"""
)
BRANCHES = (
    HEAD
    + """g (float[64, 64] x) => (float[64, 64] y, float[64, 64] z) {
    a = Relu (x)
    twin = Relu (x)
    unread = Exp (x)
    b = Neg (a)
    c = Neg (b)
    y = Add (c, twin)
    z = Tanh (b)
}"""
)
PARTS = HEAD + "g (float[4, 8] x) => (float[4, 4] y) { a, b = Split <axis = 1> (x) y = Sub (a, b) }"
LOOPED = (
    HEAD
    + """g (float[32] x, int64 n, bool go) => (float[32] y) {
    y = Loop (n, go, x) <body = inner (int64 i, bool c, float[32] s) => (bool d, float[32] t)
        { d = Identity (c) e = Neg (s) f = Neg (e) t = Tanh (f) }>
}"""
)
MODELS = {"norm": NORM, "branches": BRANCHES, "parts": PARTS}


def compared(model: str, targets: str | tuple[str, ...] = "dnnl") -> tuple[eqsat.Result, GraphComparison]:
    result = eqsat.optimize(model, targets=targets)
    return result, result.summary.graphs[0]


def weighted(text: str) -> str:
    """The text with contents of its initialisers."""
    rng = np.random.default_rng(0)
    for name, shape in (("w", "4, 8, 3, 3"), ("s", "4"), ("b", "4"), ("m", "4"), ("v", "4")):
        count = int(np.prod([int(d) for d in shape.split(",")]))
        numbers = ", ".join(f"{value:.4f}" for value in rng.uniform(0.5, 1.5, count))
        text = text.replace(f"float[{shape}] {name}", f"float[{shape}] {name} = {{{numbers}}}", 1)
    return text


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("targets", ["dnnl", "cpu"])
def test_graphs_agree_with_the_tables(name: str, targets: str) -> None:
    model = weighted(MODELS[name])
    result, found = compared(model, () if targets == "cpu" else targets)
    kernels = [n for n in found.after.nodes if n.kind in ("operator", "composite")]
    assert [(n.name, n.op, n.target, n.cost) for n in kernels] == [
        (k.name, k.op, k.target, k.cost) for k in result.summary.kernels
    ]
    assert sum(n.cost for n in found.before.nodes) == pytest.approx(result.summary.before.cost)
    assert len(found.before.nodes) == result.summary.before.operators + len(result.plan.inputs) + len(
        result.plan.outputs
    )
    assert [r.name for r in found.after.regions] == [r.name for r in result.summary.regions]
    for graph in (found.before, found.after):
        assert all(a < b for a, b in graph.edges)
    assert {r.name for r in found.rules} == {name for n in found.after.nodes for name in n.rules}
    assert all(r.name.rpartition(".")[2] in r.text for r in found.rules)


FUSING = """target near
    peak float32 = 100e9
    bandwidth = 400e9, launch = 0.1e-6, dispatch = 0.1e-6
    link bandwidth = 400e9, latency = 0.05e-6

    composite conv_relu : exact
        Relu(Conv(x, w, b))
"""


def test_fused_operators_are_covered_and_the_rules_inside_are_named(tmp_path: Path) -> None:
    file = tmp_path / "near.target"
    file.write_text(FUSING, "utf-8")
    _, found = compared(weighted(NORM), str(file))
    (kernel,) = (i for i, n in enumerate(found.after.nodes) if n.kind == "composite")
    assert [found.before.nodes[k].op for k in found.covers[kernel]] == ["Conv", "BatchNormalization", "Relu"]
    *inner, last = found.after.nodes[kernel].rules
    assert last == found.after.nodes[kernel].op == "near.conv_relu"
    texts = {rule.name: rule for rule in found.rules}
    assert any("BatchNormalization" in texts[name].text for name in inner)
    assert texts[last].text.endswith("Relu(Conv(x, w, b))")
    assert texts[last].place == f"{file}:6"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("targets", ["dnnl", "cpu"])
def test_every_chain_leads_back_to_the_input(name: str, targets: str) -> None:
    result, found = compared(weighted(MODELS[name]), () if targets == "cpu" else targets)
    own = {node.name for node in found.before.nodes}
    for node, covers in zip(found.after.nodes, found.covers, strict=True):
        if node.kind in ("input", "output"):
            continue
        origin = result.explain(node.name)
        assert (node.steps, node.constants) == (origin.steps, origin.constants)
        assert covers
        assert {found.before.nodes[k].name for k in covers} == set(origin.sources) & own
        assert origin.is_kept or node.steps or node.name in own


def test_what_operators_cost_in_the_result_adds_up_to_its_kernels(tmp_path: Path) -> None:
    for model, targets in ((weighted(NORM), "dnnl"), (BRANCHES, "dnnl"), (PARTS, ())):
        result, found = compared(model, targets)
        shared = shared_costs(found)
        assert {name: before for name, (before, _) in shared.items()} == {
            n.name: n.cost for n in found.before.nodes if n.op
        }
        assert sum(after for _, after in shared.values()) == pytest.approx(sum(k.cost for k in result.summary.kernels))


def test_duplicates_are_covered_and_what_nobody_needs_is_not() -> None:
    _, found = compared(BRANCHES, ())
    names = [n.name for n in found.before.nodes]
    covered = {names[k] for nodes in found.covers for k in nodes}
    assert {"a", "twin", "b", "y", "z"} <= covered
    assert "unread" not in covered


def test_limits_follow_from_the_roofline() -> None:
    result, found = compared(weighted(NORM))
    conv = next(n for n in found.before.nodes if n.op == "Conv")
    assert conv.work is not None
    assert conv.work.macs == 4 * 256 * 256 * 8 * 9
    assert conv.work.bytes == 4 * (8 * 256 * 256 + 4 * 256 * 256 + 4 * 8 * 9)
    assert conv.cost == pytest.approx(conv.work.launch + max(conv.work.compute, conv.work.memory))
    assert result.summary.graphs[0].after.nodes[-1].work is None


def test_a_cost_that_is_not_the_roofline_says_so() -> None:
    model = HEAD + "g (float[64, 64] x) => (float[4096] y) <int64[1] s = {4096}> { a = Tanh (x) y = Reshape (a, s) }"
    summary = eqsat.optimize(model).summary
    before = json.loads(script_data(summary.graphs, summary.targets))[0]["before"]
    limits = {node[3]: node[9][1] for node in before["nodes"] if node[9]}
    assert limits["Reshape"].startswith("its target has its own cost; by roofline ")


def test_bodies_have_graphs_of_their_own() -> None:
    result = eqsat.optimize(LOOPED)
    main, inner = result.summary.graphs
    assert main.body == ""
    assert "Loop" in inner.body
    assert [n.op for n in inner.before.nodes if n.op] == ["Identity", "Neg", "Neg", "Tanh"]
    assert [n.op for n in inner.after.nodes if n.op and n.op != "Identity"] == ["Tanh"]


def test_sizes_that_stay_free() -> None:
    model = HEAD + "g (float[N, 256] x) => (float[N, 256] y) { a = Relu (x) y = Tanh (a) }"
    result = eqsat.optimize(model, dims={"N": (1, None, 64)})
    before = result.summary.graphs[0].before
    assert before.nodes[1].makes == ("a: float[N, 256]",)
    assert before.nodes[1].work is not None
    assert before.nodes[1].work.bytes == 2 * 64 * 256 * 4


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_hostile_names_stay_text(name: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], [name], name=name), helper.make_node("Exp", [name], ["y"])]
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, name, tensors[:1], tensors[1:])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    summary = eqsat.optimize(model).summary
    text = script_data(summary.graphs, summary.targets)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)[0]["before"]["nodes"][1][4].isprintable()
    html = to_html(summary)
    assert html.count("</script>") == html.count("<script") == 4
    assert "<img src=x" not in html


def test_a_rule_file_that_is_gone_leaves_its_place(tmp_path: Path) -> None:
    rules = tmp_path / "my.rules"
    one = "rule twice : exact\n    Neg(Neg(x))  =>  x"
    two = "# Odd.\nrule odd : exact\n    Tanh(Neg(x))  =>  Neg(Tanh(x))"
    rules.write_text(f"{one}\n\n{two}\n", "utf-8")
    (file,) = read_files([rules])
    assert texts_of(file.rules) == [one, two]
    rules.unlink()
    assert texts_of(file.rules) == ["", ""]
