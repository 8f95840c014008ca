"""Rules that look right and are wrong are refuted; rules that are right are not, and instances of them are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.check.checked import verdict_of
from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_file

HERE = Path(__file__).parent
WRONG = [
    rule
    for name in ("plausible_wrong", "asked_wrong", "jumps_wrong")
    for rule in read_file(HERE / f"{name}.rules").rules
]
TRUE = [rule for name in ("true", "asked_true", "jumps_true") for rule in read_file(HERE / f"{name}.rules").rules]


@pytest.mark.slow
@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_wrong_rules_are_refuted(rule: Rule) -> None:
    outcome = check_rule(rule, instances=40, pointed=True)
    assert verdict_of(outcome) == "refuted", outcome.why_silent()
    found = next(c for c in outcome.counterexamples if c.kind != "silent")
    assert found.kind in ("value", "type", "failure")
    assert found.kind != "value" or "elements differ, first [" in found.message


@pytest.mark.slow
@pytest.mark.parametrize("rule", TRUE, ids=lambda rule: rule.name)
def test_true_rules_are_not(rule: Rule) -> None:
    outcome = check_rule(rule, instances=40, pointed=True)
    assert verdict_of(outcome) == "holds", outcome
    assert outcome.instances == 40
    assert rule.numerics.kind != "exact" or outcome.bitwise
