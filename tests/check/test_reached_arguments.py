"""Limits after functions are found by drawing where the functions reach them."""

from __future__ import annotations

import math

import pytest

from eqsat.check.reached_arguments import reached
from eqsat.check.rule import check_rule
from eqsat.rules.reader import read_text

LIMITS = {
    "Exp": ("0", "2000"),
    "Log": ("-10", "10"),
    "Softplus": ("0", "500"),
    "Sqrt": ("0", "60"),
    "Tanh": ("-0.999", "0.999"),
    "Sigmoid": ("0.003", "1"),
    "Reciprocal": ("-900", "900"),
    "Asinh": ("-8", "8"),
    "Atan": ("-1.5", "1.5"),
    "Softsign": ("-0.999", "0.999"),
}


def rule_of(function: str, low: str, high: str) -> str:
    sides = f"{function}(x)  =>  Clip({function}(x), {low}, {high})"
    return f"rule limited : real\n    {sides}\n    where x.dtype == float32\n"


@pytest.mark.parametrize("function", LIMITS)
def test_a_limit_behind_a_function_is_found(function: str) -> None:
    (rule,) = read_text(rule_of(function, *LIMITS[function]), "my.rules").rules
    outcome = check_rule(rule, instances=40, pointed=True)
    assert [c.kind for c in outcome.counterexamples] == ["value"]


@pytest.mark.parametrize(
    ("function", "low", "high"), [("Tanh", "-1", "1"), ("Sigmoid", "0", "1"), ("Exp", "0", "3.4e38")]
)
def test_a_limit_that_a_function_never_reaches_is_none(function: str, low: str, high: str) -> None:
    (rule,) = read_text(rule_of(function, low, high), "my.rules").rules
    assert check_rule(rule, instances=40, pointed=True).holds


def test_arguments_are_on_both_sides() -> None:
    (rule,) = read_text(rule_of("Exp", "0", "2000"), "my.rules").rules
    found = reached(rule, [0.0, 2000.0])
    assert min(found) < math.log(2000) < max(found) < 10
    assert all(math.isfinite(x) for x in found)
    assert reached(rule, []) == ()
