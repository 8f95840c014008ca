"""A side of `or` that no instance met is said not to have been tried."""

from __future__ import annotations

import pytest

from eqsat.check.lints import silent
from eqsat.check.rule import check_rule
from eqsat.rules.reader import read_text

POOL = """rule pool : real
    AveragePool(x, kernel_shape=k)  =>  MaxPool(x, kernel_shape=k)
    where prod(k) == 1 or max(k) > 1000
"""
RANKS = """rule r : exact
    Relu(Relu(x))  =>  Relu(x)
    where (x.rank >= 3 or x.rank < 2 or x.rank == 2) and x.size >= 0
"""


@pytest.mark.slow
def test_a_side_that_was_not_tried_is_named() -> None:
    (rule,) = read_text(POOL, "my.rules").rules
    outcome = check_rule(rule, instances=40, pointed=True)
    assert outcome.holds
    (note,) = [remark for remark in silent(outcome) if "or" in remark and "tried" in remark]
    assert "`max(k) > 1000` (my.rules:3:27)" in note


def test_sides_that_were_met_are_not_named() -> None:
    (rule,) = read_text(RANKS, "my.rules").rules
    outcome = check_rule(rule, instances=40, pointed=True)
    assert outcome.holds and outcome.unmet == []


def test_what_reading_adds_has_no_sides() -> None:
    """An operand that may be absent is a condition that the author did not write."""
    (rule,) = read_text(
        "rule r : exact\n    Squeeze(x, axes=[0])  =>  Reshape(x, x.shape[1:x.rank])\n", "my.rules"
    ).rules
    assert check_rule(rule, instances=4, pointed=True).unmet == []
