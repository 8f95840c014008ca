"""Shipped rules without one of their conditions: what the checker refutes is not proven."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from eqsat.check.rule import check_rule
from eqsat.proofs.prover import prove_every_rank
from eqsat.rules.ast import Condition, Rule
from eqsat.rules.constness import asked_constant, conjuncts
from eqsat.rules.selection import select_rules

SHIPPED = select_rules((), "approximate", default_rules=True).rules
FILES = sorted({rule.place.file for rule in SHIPPED})
LONG = "quantize.rules"
"""Takes many minutes."""


def mutants(rule: Rule) -> list[Rule]:
    """The rule without each of its conditions; constness stays, because contents may only be asked of constants."""
    parts = [Condition(part, None, c.place) for c in rule.where for part in conjuncts(c.expr)]
    return [
        replace(rule, where=tuple(parts[:k] + parts[k + 1 :]))
        for k, part in enumerate(parts)
        if not asked_constant(part.expr)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [pytest.param(f, marks=pytest.mark.heavy) if f.endswith(LONG) else f for f in FILES],
    ids=lambda f: f.rsplit("/", 1)[-1],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_refuted_mutant_is_proven(file: str) -> None:
    believed = [m for rule in SHIPPED if rule.place.file == file for m in mutants(rule) if prove_every_rank(m).proven]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refuted = [m.name for m in believed if _computes_another_value(m)]
    assert not refuted


def _computes_another_value(rule: Rule) -> bool:
    """Whether the checker says so; that inference and execution of the left side disagree is not a fault of a rule."""
    return any(c.kind in ("value", "failure") for c in check_rule(rule, attempts=600, pointed=True).counterexamples)
