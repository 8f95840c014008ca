"""Composites match in both spellings, where a rule leads models to the other one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor
from eqsat.rules.ast import Match
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from eqsat.rules.tree import walk
from eqsat.rules.turned_rules import turned_rules
from eqsat.targets.find_targets import load_targets

HEAD = """target near
    peak float32 = 500e9
    bandwidth = 20e9, launch = 1e-7, dispatch = 1e-6
    link bandwidth = 16e9, latency = 5e-7
"""
CONV = """
        let c = Conv(Transpose(x, perm=[0, 3, 1, 2]), w, b?)
        let t = Transpose(c, perm=[0, 2, 3, 1])
"""
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def target(body: str) -> str:
    return f"{HEAD}    composite conv : real{CONV}        {body}\n        where const(w, b), c.group == 1\n"


def convolved(seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
    return op.Conv(op.Transpose(eqsat.input("x", (1, 8, 8, 16)), perm=FIRST), weight, pads=[1] * 4)


def last(x: Tensor) -> Tensor:
    return op.Transpose(x, perm=LAST)


def first(x: Tensor) -> Tensor:
    return op.Transpose(x, perm=FIRST)


ZERO, SIX = np.float32(0), np.float32(6)
SPELLINGS = {
    "relu": ("Relu(t) | t", lambda c, z: [op.Relu(last(c)), last(op.Relu(c))]),
    "one of several": (
        "(f: Relu | LeakyRelu | Sigmoid)(t)",
        lambda c, z: [op.LeakyRelu(last(c), alpha=0.2), last(op.LeakyRelu(c, alpha=0.2))],
    ),
    "clip": ("Clip(t, low?, high?)", lambda c, z: [op.Clip(last(c), ZERO, SIX), last(op.Clip(c, ZERO, SIX))]),
    "scale": ("t * s", lambda c, z: [last(c) * SIX, last(c * SIX)]),
    "residual": ("t + z", lambda c, z: [last(c) + z, last(c + first(z))]),
    "residual, swapped": ("z + t", lambda c, z: [last(c) + z, last(first(z) + c)]),
    "two steps": (
        "Relu(t + z)",
        lambda c, z: [op.Relu(last(c) + z), last(op.Relu(c + first(z))), op.Relu(last(c + first(z)))],
    ),
    "three steps": (
        "Tanh(Relu(t + z))",
        lambda c, z: [op.Tanh(op.Relu(last(c) + z)), last(op.Tanh(op.Relu(c + first(z))))],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPELLINGS)
def test_all_spellings_are_one_kernel(name: str, tmp_path: Path):
    body, spelled = SPELLINGS[name]
    near = tmp_path / "near.target"
    near.write_text(target(body), encoding="utf-8")
    z = eqsat.input("z", (1, 8, 8, 16))
    results = [eqsat.optimize(eqsat.graph([y]), targets=[str(near)]) for y in spelled(convolved(), z)]
    costs = [result.summary.after.cost for result in results]
    assert costs == pytest.approx([costs[0]] * len(costs))
    for result in results:
        assert result.summary.verification is not None and result.summary.verification.agrees
        assert [region.nodes for region in result.regions] == [("near.conv",)]


def turned(body: str) -> dict[str, str]:
    found = turned_rules(read_text(target(body), "near.target").targets, select_rules((), "real", True).rules)
    return {rule.name: rule.doc for rule in found}


@pytest.mark.slow
def test_only_what_a_composite_needs_is_turned_around():
    assert turned("t") == {}
    assert turned("Relu(t)") == {"unary_of_transpose.reverse": "The other way round, because near.conv is written so."}
    steps = {"unary_of_transpose", "binary_of_transposes", "binary_of_transpose_and_scalar"}
    assert set(turned("Relu(t + z)")) == {f"{name}.reverse" for name in steps}


def test_it_holds_for_the_operators_of_the_composite_only():
    (rule,) = turned_rules(read_text(target("Relu(t)"), "near.target").targets, select_rules((), "real", True).rules)
    moved = [{op.name for op in node.ops} for node in walk(rule.left) if isinstance(node, Match)]
    assert moved == [{"Transpose"}, {"Relu"}, {"Conv"}]


def test_a_rule_of_ones_own_is_turned_around_as_well():
    rules = read_text(
        "rule sine_last : exact  Sin(Pad(x, p))  =>  Pad(Sin(x), p)\nrule other : real  Sin(Neg(x))  =>  Neg(Sin(x))"
    ).rules
    near = read_text(target("Sin(Pad(t, p))"), "near.target").targets
    assert [rule.name for rule in turned_rules(near, rules)] == ["sine_last.reverse"]
    near = read_text(target("Sin(Neg(t))"), "near.target").targets
    assert turned_rules(near, rules) == ()


def test_it_is_checked_explained_and_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    near = tmp_path / "near.target"
    near.write_text(target("Relu(t)"), encoding="utf-8")
    graph = eqsat.graph([last(op.Relu(convolved()))])
    result = eqsat.optimize(graph, targets=[str(near)])
    trust = result.summary.trust
    assert trust is not None and trust.proof_by == ("unary_of_transpose.reverse",)
    assert trust.proof == "executed"
    place, *_ = eqsat.explain_rule(graph, "unary_of_transpose.reverse", targets=[str(near)]).places
    assert place.outcome == "applied"


def test_shipped_targets_are_written_in_the_spelling_of_the_rules():
    rules = select_rules((), "real", True).rules
    for name in ("dnnl", "ethos_n", "ccompiler"):
        assert turned_rules(load_targets([name]), rules) == ()
