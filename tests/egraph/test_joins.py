"""Rules that egglog is not given yet: only such as cannot match, and only until they can."""

from __future__ import annotations

import pytest

from eqsat.egraph import joins
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from eqsat.targets.find_targets import load_targets
from tests.egraph.helpers import model

RULES = tuple(select_rules((), "real", True).rules)
TARGETS = tuple(load_targets(["dnnl"], "cpu"))
BLOCK = """
    a = Mul(x, two)
    b = Add(a, y)
    c = Clip(b, zero, six)
    h1, h2 = Split<axis=0>(c, halves)
    d = Concat<axis=0>(h1, h2)
    e = Sigmoid(d)
    f = Mul(d, e)
    g = ReduceMean<keepdims=1>(f, axes)
    s = Sub(f, g)
    p = Pow(s, two)
    v = ReduceMean<keepdims=1>(p, axes)
    w = Add(v, epsilon)
    q = Sqrt(w)
    out = Div(s, q)
"""
CONSTANTS = """
    two = Constant<value_float=2.0>()
    zero = Constant<value_float=0.0>()
    six = Constant<value_float=6.0>()
    epsilon = Constant<value_float=0.001>()
    halves = Constant<value_ints=[2, 2]>()
    axes = Constant<value_ints=[0]>()
"""
CONVOLUTIONS = """
    c1 = Conv<pads=[1, 1, 1, 1]>(i, k, b)
    r1 = Relu(c1)
    c2 = Conv(r1, l)
    t2 = Add(c2, i)
    r2 = Relu(t2)
    n = Neg(r2)
    m1, m2 = TopK<axis=1>(n, two)
    o = Add(m1, m1)
"""


@pytest.mark.parametrize("name", ["block", "convolutions"])
def test_what_is_left_out_never_matches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def saturated() -> Saturation:
        if name == "block":
            graph = model(CONSTANTS + BLOCK)
        else:
            inputs = "float[1, 3, 6, 6] i, float[3, 3, 3, 3] k, float[3] b, float[3, 3, 1, 1] l"
            graph = model("two = Constant<value_ints=[2]>()" + CONVOLUTIONS, inputs, "float[1, 2, 6, 6] o")
        saturation = Saturation(graph, RULES, TARGETS)
        saturation.run()
        return saturation

    some = saturated()
    monkeypatch.setattr(joins, "MOST_ROWS", 0)
    every = saturated()
    assert len(list(some.clauses())) < len(list(every.clauses()))
    for one, other in zip(some.statistics, every.statistics, strict=True):
        assert (one.matches, one.applied, one.mismatches) == (other.matches, other.applied, other.mismatches), one.name
    assert some.iterations == every.iterations
    assert snapshot(some).nodes == snapshot(every).nodes


TWICE = "rule twice : exact\n    Relu(Relu(x))  =>  Relu(x)\n"
AROUND = "rule around : exact\n    Abs(Relu(x))  =>  Relu(Relu(x))\n"


def test_a_rule_is_given_once_another_makes_its_pattern() -> None:
    graph = model("a = Relu(x)\nb = Neg(a)\nc = Relu(b)\nd = Abs(c)\nout = Add(d, y)")
    alone = Saturation(graph, read_text(TWICE).rules, [])
    alone.run()
    assert not list(alone.clauses())
    both = Saturation(graph, read_text(TWICE + AROUND).rules, [])
    both.run()
    assert {clause.definition.name for clause, _ in both.clauses()} == {"twice", "around"}
    assert [row.applied for row in both.statistics] == [1, 1]


def test_results_of_tuples_are_joined() -> None:
    rule = "rule halves : exact\n    Neg(Split(x, sizes?, axis=0)[1])  =>  Split(Neg(x), sizes?, axis=0)[1]\n"
    halves = "halves = Constant<value_ints=[2, 2]>()\nh1, h2 = Split<axis=0>(x, halves)\n"
    graph = model(halves + "n = Neg(h2)\nout = Add(h1, n)", outputs="float[2] out")
    saturation = Saturation(graph, read_text(rule).rules, [])
    saturation.run()
    assert [row.applied for row in saturation.statistics] == [1]
