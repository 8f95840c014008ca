"""``eqsat.check_rules`` and ``eqsat rules check``: verdicts, where a rule fails, and what makes rules useless."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.check import checked
from eqsat.check.checked import CheckedRule
from eqsat.cli import main
from eqsat.cli.rules import SAMPLES
from eqsat.rules.reader import read_text
from eqsat.rules.selection import shipped_rules


def check(text: str) -> CheckedRule:
    (found,) = eqsat.check_rules(read_text(text).rules)
    return found


def test_a_difference_that_random_inputs_rarely_meet_is_found_and_its_place_is_said() -> None:
    found = check("rule r : exact\n    Min(Relu(v), c)  =>  Relu(v)\n    where const(c)")
    assert found.verdict == "refuted"
    assert found.where in ("only where c < Relu(v)", "mostly where c < Relu(v)") or found.where.startswith(
        "only where c < Relu(v), or"
    )
    assert found.counterexample is not None
    assert found.counterexample.values is not None
    left, right = found.counterexample.values
    leaves = {leaf.name: leaf.array for leaf in found.counterexample.instance.leaves}
    np.testing.assert_array_equal(right, np.maximum(leaves["v"], 0))
    assert not np.array_equal(left, right, equal_nan=left.dtype.kind == "f") or np.any(
        np.signbit(left) != np.signbit(right)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("Clip(x, 1, 6)  =>  Clip(x, 1, 5)", "x > 5"),
        ("Abs(x)  =>  x\n    where x.dtype == int32", "x < 0"),
        ("(x / 2) * 2  =>  x\n    where x.dtype == int32", "x is odd"),
        ("Max(x, y)  =>  x\n    where x.dtype == int32, x.shape == y.shape", "x != y"),
        ("Softmax(x, axis=a)  =>  Softmax(x, axis=1)\n    where x.rank == 2", "a == 0"),
    ],
)
def test_where_a_rule_fails(text: str, where: str) -> None:
    found = check(f"rule r : real\n    {text}")
    assert (found.verdict, found.where) == ("refuted", f"only where {where}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "Celu(x, alpha=a)  =>  Elu(x, alpha=a)",
        "LeakyRelu(x, alpha=a)  =>  Elu(x, alpha=a)",
        "n: ThresholdedRelu(x)  =>  ThresholdedRelu(x, alpha=1.0)",
    ],
)
def test_attributes_vary_also_where_the_rule_has_no_number(text: str) -> None:
    assert check(f"rule r : real\n    {text}").verdict == "refuted"


def test_a_rule_that_is_wrong_everywhere_gets_no_such_statement() -> None:
    found = check("rule r : exact\n    Sin(x)  =>  Cos(x)\n    where x.dtype == float32")
    assert (found.verdict, found.where) == ("refuted", "")


@pytest.mark.slow
def test_the_condition_that_cannot_be_met_is_named() -> None:
    found = check("rule r : exact\n    Relu(x)  =>  x\n    where x.rank > 12")
    assert found.verdict == "undecided"
    assert "no instance was found in 4,000 attempts: the condition `x.rank > 12` (<text>:3:11)" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("Cast(x, to=int8)  =>  Cast(x, to=int16)", "it never applies: on 40 instances"),
        ("Abs(x)  =>  Abs(-x)\n    where x.dtype == float32", "it grows without end: alone, it makes"),
        ("Relu(Relu(v))  =>  Relu(v)", "`relu_twice` (rules/activations.rules:"),
        ("(x + y) - y  =>  x\n    where x.dtype == int32", "a condition is missing"),
    ],
)
def test_notes(text: str, note: str) -> None:
    found = check(f"rule r : exact\n    {text}")
    assert found.verdict != "refuted"
    assert any(note in said for said in found.lints), found.lints


def test_a_shipped_rule_is_not_implied_by_itself() -> None:
    path = Path(os.path.relpath(next(p for p in shipped_rules() if Path(p).name == "activations.rules")))
    (found,) = eqsat.check_rules([path], names=["relu_twice"], samples=4)
    assert not any("`relu_twice`" in note for note in found.lints)


def test_a_rule_of_one_kind_gets_no_note() -> None:
    assert check("rule r : exact\n    Erf(-x)  =>  -Erf(x)\n    where x.dtype == float64").lints == ()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "my rules.rules"
    path.write_text(
        "rule good : exact\n    Erf(-x)  =>  -Erf(x)\n\nrule bad : exact\n    Abs(x)  =>  x\n\n"
        "rule both : exact\n    -(-x)  <=>  x + 0\n    where x.rank > 20\n",
        "utf-8",
    )
    return path


@pytest.mark.slow
def test_the_command_prints_and_repeats(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", str(mine)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "rules: 4, holds: 1, undecided: 2, refuted: 1"
    assert "both.reverse" in out
    (line,) = (line for line in out.splitlines() if "repeat: " in line)
    start = out.index("refuted")
    counterexample = out[start : out.index(line)]
    assert main(shlex.split(line.partition("repeat: eqsat ")[2])) == 1
    assert counterexample in capsys.readouterr().out
    assert main(["rules", "check", str(mine), "--rule", "good", "--samples", "5"]) == 0
    assert "(5 instances)" in capsys.readouterr().out


@pytest.mark.slow
def test_json(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", str(mine), "--json"]) == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert [row["verdict"] for row in rows.values()] == ["holds", "refuted", "undecided", "undecided"]
    wrong = rows["bad"]["counterexample"]
    assert wrong["operands"][0]["name"] == "x"
    assert wrong["left_value"] != wrong["right_value"]
    assert rows["good"]["counterexample"] is None


def test_what_cannot_be_checked(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", str(mine), "--rule", "goad"]) == 1
    assert "did you mean `good`" in capsys.readouterr().err
    with pytest.raises(eqsat.errors.RuleError, match="samples: a whole number, 1 or more, is required; got 0"):
        eqsat.check_rules([mine], samples=0)


def test_the_default_is_the_same() -> None:
    assert SAMPLES == checked.SAMPLES
