"""The stored verdicts on shipped rules are those of the prover, and belong to what the rules say now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from eqsat.proofs.proved import WORDS, prove
from eqsat.rules import verdicts
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_text
from eqsat.rules.verdicts import Trust, key_of, stored_verdict, verdicts_file
from tests.proofs.verdicts import PAGE, shipped, with_table

SHIPPED = shipped()
SAMPLE = [
    pytest.param(rule, verdict, id=rule.name, marks=() if verdict == "proven" else pytest.mark.slow)
    for kind in ("proven", "bounded", "executed", "refuted")
    for rule, verdict in [pair for pair in SHIPPED if pair[1] == kind][::40]
]


def test_each_shipped_rule_has_a_stored_verdict_and_no_other_has() -> None:
    stored = json.loads(verdicts_file().read_text("utf-8"))
    assert stored == {key_of(rule): [rule.name, verdict] for rule, verdict in SHIPPED}, "make verdicts"


def test_no_shipped_rule_is_refuted() -> None:
    assert [rule.name for rule, verdict in SHIPPED if verdict == "refuted"] == []


def test_the_documentation_has_the_table() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_table(page, SHIPPED), "make verdicts"


@pytest.mark.parametrize(("rule", "verdict"), SAMPLE)
def test_a_sample_is_proven_again(rule: Rule, verdict: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    assert prove(rule).trust == verdict


def test_a_changed_rule_has_no_verdict() -> None:
    rule = next(rule for rule, verdict in SHIPPED if verdict == "proven" and rule.where)
    assert stored_verdict([rule]) == "proven"
    assert stored_verdict([replace(rule, where=())]) is None
    assert stored_verdict([rule, replace(rule, where=())]) is None


def test_a_verdict_does_not_depend_on_places_and_comments() -> None:
    text = "rule r : exact\n    Abs(Neg(x))  =>  Abs(x)\n    where x.rank == 1\n"
    [first], [second] = read_text(text).rules, read_text(f"\n# Why.\n{text}").rules
    assert key_of(first) == key_of(second)
    [third] = read_text(text.replace("1", "2")).rules
    assert key_of(first) != key_of(third)


def test_the_weakest_verdict_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (rule for rule, _ in SHIPPED[:2])
    monkeypatch.setattr(verdicts, "_stored", lambda: {key_of(first): "executed", key_of(second): "proven"})
    assert stored_verdict([first, second]) == "executed"
    assert stored_verdict([second]) == "proven"


def test_each_verdict_has_words() -> None:
    assert set(get_args(Trust)) == set(WORDS)
