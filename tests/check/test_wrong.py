"""Wrong rules are caught, each for the right reason, with a counterexample that a person can follow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsat.check.outcome import Outcome
from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_file, read_text
from tests.check.oracle import onnx_runtime

RULES = {rule.name: rule for rule in read_file(Path(__file__).parent / "wrong.rules").rules}
CONDITIONS = ("any_one_is_neutral", "concat_of_transposes", "relu_of_any_type")
NOTHING = ("contradiction", "impossible_operands")
VALUES = tuple(name for name in RULES if name not in CONDITIONS + NOTHING)


def checked(rule: Rule, seed: int = 0, instances: int = 60) -> Outcome:
    return check_rule(rule, instances=instances, seed=seed, oracle=onnx_runtime)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_a_wrong_value_is_seen(name: str) -> None:
    outcome = checked(RULES[name])
    assert [c.kind for c in outcome.counterexamples] == ["value"], outcome
    text = str(outcome.counterexamples[0])
    assert f"rule {name} : " in text
    assert re.search(r"of [\d,]+ elements differ, first \[[\d, ]*\]: \S+ against \S+", text), text
    assert re.search(r"^ +(const )?[a-z0-9]+\[[\d, ]*\] \w+ = ", text, re.MULTILINE), text
    assert re.search(r"^ +\w+.* = \w+(<.*>)?\(.*\)  # [a-z0-9]+\[[\d, ]*\]$", text, re.MULTILINE), text


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.slow
def test_whatever_the_seed(name: str, seed: int) -> None:
    outcome = checked(RULES[name], seed)
    # Most instances of a wrong permutation differ in shape already.
    assert [c.kind for c in outcome.counterexamples] == ["value"] or outcome.mismatch is not None


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_missing_condition_is_seen(name: str) -> None:
    outcome = checked(RULES[name])
    assert outcome.holds, outcome
    assert outcome.mismatch is not None
    assert f"rule {name} : {RULES[name].numerics} lacks a condition: " in str(outcome.mismatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTHING)
def test_a_rule_that_never_fires_is_seen(name: str) -> None:
    outcome = checked(RULES[name])
    assert not outcome.fires
    assert not outcome.holds
    assert f"{name} : exact: never fires in " in str(outcome)


def test_the_same_seed_gives_the_same_counterexample() -> None:
    rule = RULES["relu_of_difference"]
    assert str(checked(rule)) == str(checked(rule))
    assert str(checked(rule)) != str(checked(rule, seed=1))


def test_a_counterexample_says_it_all() -> None:
    text = str(
        checked(
            read_text("rule r : exact\n    Relu(x)  =>  Abs(x)\n    where x.shape == [2, 2], x.dtype == int32").rules[0]
        )
    )
    head, *body = text.splitlines()
    assert head.startswith("<text>:1:6: rule r : exact is wrong (value): ")
    assert body[0].startswith("    int32[2, 2] x = [[")
    assert body[1] == "    _relu1 = Relu(x)  # int32[2, 2]"
    assert body[3] == "    _relu1 = Abs(x)"


@pytest.mark.slow
def test_a_right_rule_passes_under_its_class_alone() -> None:
    """The same rule: true over the reals, not to the bit."""
    text = "rule r : {}\n    (x + y) + z  =>  x + (y + z)\n    where x.dtype in floats"
    assert checked(read_text(text.format("real")).rules[0]).holds
    assert not checked(read_text(text.format("exact")).rules[0]).holds


@pytest.mark.slow
def test_units_are_counted() -> None:
    """Of two halves, each truncated, the sum is one less than half of the sum."""
    conditions = "x.shape == y.shape, x.dtype == int32, y.dtype == int32, const(y), y.value == 1"
    text = "rule r : {}\n    Abs(x) / 2 + y / 2  =>  (Abs(x) + y) / 2\n    where " + conditions
    assert not checked(read_text(text.format("exact")).rules[0]).holds
    overflow = checked(read_text(text.format("within 1 lsb")).rules[0])
    assert not overflow.holds
    assert "2147483647" in str(overflow)
    bounded = text.replace("Abs(x)", "Clip(x, 0, 1000)")
    assert checked(read_text(bounded.format("within 1 lsb")).rules[0]).holds
    assert not checked(read_text(bounded.format("exact")).rules[0]).holds


def test_the_own_kernels_judge_too() -> None:
    assert not check_rule(RULES["relu_of_difference"], instances=20).holds
    assert check_rule(read_text("rule r : exact\n    Neg(Neg(x))  =>  x").rules[0], instances=20).holds
