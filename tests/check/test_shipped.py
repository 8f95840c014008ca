"""Every shipped rule, executed on random instances and compared as strictly as its class claims.

Some instances here, more by ``make check-rules``: each takes an e-graph of its own.
"""

from __future__ import annotations

import pytest

from eqsat.check.outcome import Outcome
from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule
from eqsat.rules.selection import select_rules
from tests.check.oracle import onnx_runtime

RULES = select_rules((), "approximate", default_rules=True).rules
INSTANCES, MORE = 12, 60

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def checked(rule: Rule, instances: int, seed: int = 0) -> Outcome:
    """A rule on instances at random, or on such as its conditions ask for where too few are found at random."""
    outcome = check_rule(rule, instances=instances, seed=seed, oracle=onnx_runtime)
    if outcome.counterexamples or (not outcome.silent_clauses and outcome.instances >= instances / 3):
        return outcome
    return check_rule(rule, instances=instances, seed=seed, oracle=onnx_runtime, pointed=True)


@pytest.mark.slow
@each_rule
def test_both_sides_are_equal_and_every_clause_fires(rule: Rule) -> None:
    """One test, so that its instances are drawn and executed once, whichever worker runs it."""
    outcome = checked(rule, INSTANCES)
    assert outcome.holds, f"\n{outcome}"
    assert outcome.instances >= INSTANCES / 3, outcome.why_silent()
    assert outcome.silent_clauses == [], outcome.why_silent()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@each_rule
def test_on_more_instances(rule: Rule, seed: int) -> None:
    outcome = checked(rule, MORE, seed)
    assert outcome.holds, f"\n{outcome}"
    assert outcome.instances >= MORE / 3, outcome.why_silent()
    assert outcome.silent_clauses == [], outcome.why_silent()
