"""Why operators stay on the host: programs in which they do not, what these cost, and what keeps them away."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import ModelError, TargetError
from eqsat.extract.problem import Choice
from eqsat.extract.program_cost import needed, program_cost
from eqsat.report.host import Placement
from eqsat.rules.ast import Target
from eqsat.rules.reader import read_text
from eqsat.search import Search

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '


FREE = {"dispatch": "1e-12", "link": "1e15, latency = 1e-12"}


def target(*items: str, dispatch: str = "5e-6", link: str = "1e9, latency = 1e-6") -> Target:
    text = "\n\n    ".join(items)
    return read_text(
        f"""target npu
    peak float32 = 1e15
    bandwidth = 1e15, launch = 1e-12, dispatch = {dispatch}
    link bandwidth = {link}

    {text}
"""
    ).targets[0]


def placed(npu: Target, body: str, *nodes: str, inputs: str = "float[64,64] x", rules: bool = False) -> list[Placement]:
    model = f"{HEAD}({inputs}) => (float[64,64] z) {{ {body} }}"
    return list(eqsat.explain_placement(model, [npu], nodes, default_rules=rules))


def test_a_launch_that_does_not_pay() -> None:
    (one,) = placed(target("supports Sigmoid", dispatch="1e-3"), "z = Sigmoid(x)", "z")
    assert (one.outcome, one.kernel, one.runs_on, one.proven) == ("dearer", "Sigmoid", "npu", True)
    assert one.dispatch == pytest.approx(1e-3) and one.copies > 0 and one.kernels < 0
    assert one.extra == pytest.approx(one.kernels + one.copies + one.dispatch)
    assert str(one).startswith("z (Sigmoid): the cheapest program that runs it on npu costs 1.0")


def test_the_extra_cost_is_that_of_all_programs() -> None:
    """Every choice of targets is priced by itself."""
    body = "a = Sigmoid(x) b = Tanh(a) c = Add(a, b) z = Exp(c)"
    npu = target("supports Sigmoid, Tanh, Add")
    model = f"{HEAD}(float[64,64] x) => (float[64,64] z) {{ {body} }}"
    search = Search.of(model, [npu], default_rules=False)
    formulation, problem = search.formulation, search.formulation.problem
    own = formulation.original
    running = [c for c in own if formulation.snapshot.nodes[formulation.node[own[c].node]].kind == "op"]
    costs: dict[tuple[int, ...], float] = {}
    for places in itertools.product((0, 1), repeat=len(running)):
        tried = own | {c: Choice(own[c].node, t) for c, t in zip(running, places, strict=True)}
        if all(problem.cost[tried[c].node, tried[c].target] < 1 for c in running):
            costs[places] = program_cost(problem, needed(problem, tried) or {})
    names = {formulation.snapshot.refs[v]: v.name for v in formulation.snapshot.refs}
    for one in eqsat.explain_placement(model, [npu], ["a", "b", "c"], default_rules=False):
        i = next(i for i, c in enumerate(running) if names[formulation.eclass[c]] == one.node)
        there = min(cost for places, cost in costs.items() if places[i])
        assert one.extra == pytest.approx(there - min(costs.values()), abs=1e-15)
        assert one.outcome in ("dearer", "there")


def test_a_composite_stands_for_its_operators() -> None:
    npu = target("composite add_relu : exact\n        Relu(x + y)", dispatch="1e-3")
    sums = placed(npu, "s = Add(x, x) z = Relu(s)", "s", "z")
    assert {(p.outcome, p.kernel) for p in sums} == {("dearer", "npu.add_relu")}
    assert all(p.there is None and p.here is not None for p in sums)


def test_what_runs_there() -> None:
    (one,) = placed(target("composite add_relu : exact\n        Relu(x + y)", **FREE), "s = Add(x, x) z = Relu(s)", "s")
    assert str(one) == "s (Add): it runs on npu, as npu.add_relu"


def test_the_condition_that_fails() -> None:
    npu = target("composite add_relu : exact\n        Relu(x + y)\n        where x.rank == 3")
    (one,) = placed(npu, "s = Add(x, x) z = Relu(s)", "s")
    assert one.outcome == "impossible"
    assert one.reason == "npu runs Add within add_relu only where x.rank == 3: x.rank is 2"


def test_the_nearest_composite() -> None:
    npu = target("composite far : exact\n        Tanh(Exp(Sigmoid(x)))", "composite near : exact\n        Relu(x + y)")
    (one,) = placed(npu, "s = Add(x, x) z = Tanh(s)", "s")
    assert one.nearest == "npu.near" and one.place is not None
    assert str(one).splitlines()[1] == (
        "  nearest: npu.near, at s: 1 of 2 operators match; Relu as what reads s is required, found Tanh z"
    )


def test_another_spelling_does_not_count() -> None:
    """`Transpose` may run there after `Erf` on the host: that is no `Erf` there."""
    npu = target("supports Transpose")
    (one,) = placed(npu, "q = Transpose<perm = [1, 0]>(x) z = Erf(q)", "z", rules=True)
    assert (one.outcome, one.reason) == ("impossible", "operator not supported by npu")


def test_what_nothing_computes() -> None:
    npu = target("supports Add")
    body = "k = Constant<value_float = 2.0>() c = Add(k, k) i = Identity(x) z = Mul(i, c)"
    constant, given = placed(npu, body, "c", "i", rules=True)
    assert str(constant) == "c (constant): it is a constant, computed in advance"
    assert str(given) == "i (input): it is an input of the model"


def test_outputs_of_one_operator() -> None:
    body = "k = Constant<value_ints = [32, 32]>() a, b = Split<axis = 0>(x, k) z = Concat<axis = 0>(b, a)"
    there = placed(target("supports Split, Concat", dispatch="1e-3"), body, "a", "b")
    assert {(p.op, p.outcome, p.kernel) for p in there} == {("Split", "dearer", "Split")}


def test_the_dearest_operators() -> None:
    found = placed(target("supports Exp", dispatch="1e-3"), "a = Exp(x) b = MatMul(a, a) z = Tanh(b)")
    assert found[0].op == "MatMul" and len(found) == 3


def test_no_accelerator() -> None:
    with pytest.raises(TargetError, match="an accelerator is required; got the host alone"):
        eqsat.explain_placement(f"{HEAD}(float[2] x) => (float[2] z) {{ z = Relu(x) }}", [])


def test_a_node_of_a_body() -> None:
    model = HEAD + (
        "(float[4] x, bool c) => (float[4] y) { y = If (c) <then_branch = t () => (float[4] a) "
        "{ r = Abs(x) a = Relu(r) }, else_branch = e () => (float[4] b) { b = Neg(x) }> }"
    )
    with pytest.raises(ModelError, match="a node outside of the bodies of control flow is required; got `r`"):
        eqsat.explain_placement(model, "dnnl", ["r"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.onnxtxt"
    model.write_text(f"{HEAD}(float[2,4] x) => (float[2,4] z) {{ a = Tanh(x) z = Erf(a) }}", "utf-8")
    assert main(["targets", "why", "dnnl", str(model), "a", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["node"], one["outcome"], one["runs_on"]) == ("a", "dearer", "dnnl")
    assert main(["targets", "why", "dnnl", str(model), "-q"]) == 0
    assert "no equal program runs it on dnnl: operator not supported by dnnl" in capsys.readouterr().out
