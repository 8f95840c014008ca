"""What a verdict says is what was seen: no proof against a counterexample, no "holds" without a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

import eqsat
from eqsat.check import rule as check
from eqsat.check.checked import verdict_of
from eqsat.check.instance import Instance
from eqsat.check.outcome import Outcome, RuleCounterexample
from eqsat.rules.expand import expand
from eqsat.rules.reader import read_text

BEYOND = """
rule four : real
    ReduceSum(x, [0], keepdims=0)
        =>  Squeeze(Slice(x, [0], [1], [0]) + Slice(x, [1], [2], [0]) + Slice(x, [2], [3], [0]), [0])
    where x.rank == 2, x.shape[0] >= 3, x.dtype == float32

rule flat : exact
    Transpose(x, perm=[1, 0])  =>  Reshape(x, [x.shape[1], x.shape[0]])
    where x.rank == 2, x.shape[0] * x.shape[1] <= 3 or x.shape[0] == 4
"""


def test_what_is_proven_within_bounds_is_refuted_by_a_counterexample_beyond_them(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    file.write_text(BEYOND, "utf-8")
    assert [found.trust for found in eqsat.prove_rules(file)] == ["refuted", "refuted"]


def test_instances_to_which_a_rule_did_not_apply_show_nothing() -> None:
    (rule,) = read_text("rule r : exact\n    Relu(Relu(x))  =>  Relu(x)\n").rules
    outcome = Outcome(rule, attempts=1)
    instance = Instance(rule, expand(rule.left)[0], (), (), (), {})
    outcome.counterexamples.append(RuleCounterexample(rule, "silent", instance, "does not apply"))
    assert not outcome.fires and verdict_of(outcome) == "undecided"


def test_an_exception_within_an_instance_is_said_and_ends_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = read_text("rule r : exact\n    Relu(Relu(x))  =>  Relu(x)\n").rules

    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(check, "draw", broken)
    (found,) = eqsat.check_rules(rule)
    assert found.verdict == "undecided" and "ZeroDivisionError: division by zero" in found.reason


@pytest.mark.slow
def test_the_order_of_operands_is_the_operators_business() -> None:
    (rule,) = read_text("rule r : exact\n    Max(x, y)  =>  Max(y, x)\n").rules
    (found,) = eqsat.check_rules(rule)
    assert found.verdict == "holds"
    assert [lint for lint in found.lints if "says nothing new" in lint] and "implies" not in str(found)


def test_no_part_of_the_domain_is_named_beside_a_failure() -> None:
    """The sides differ in value for some instances, and for others the right side cannot be executed."""
    (found,) = eqsat.check_rules(Path(__file__).with_name("asked_wrong.rules"), names=["index_without_its_sign"])
    kinds = {c.kind for c in found.outcome.counterexamples}
    assert {"value", "failure"} <= kinds
    assert found.where == ""
