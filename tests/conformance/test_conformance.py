"""A part of the conformance cases that is quick to run; ``make conformance`` runs all of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance import __main__ as conformance
from tests.conformance import cases

PARTS = 6
EVERY = {"node": 2, "simple": 1, "pytorch-converted": 2, "pytorch-operator": 2, "real": 9}
"""One case in so many is run here."""


def chosen() -> list[str]:
    by_kind: dict[str, list[str]] = {kind: [] for kind in cases.KINDS}
    for identifier in conformance.expected():
        by_kind[identifier.partition("/")[0]].append(identifier)
    return [identifier for kind, members in by_kind.items() for identifier in members[1 :: EVERY[kind]]]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_expected_cases_pass(part: int):
    outcomes = {i: conformance.outcome(i) for i in chosen()[part::PARTS]}
    assert len(outcomes) > 100
    assert {i: o for i, o in outcomes.items() if o.startswith("fail")} == {}
    assert sum(o == "pass" for o in outcomes.values()) > len(outcomes) - 20


@pytest.mark.slow
def test_the_promised_selection_is_as_large_as_it_was():
    ours = [name for name, case in cases.cases("node").items() if cases.is_ours(case)]
    passing = {i.partition("/")[2] for i in conformance.expected() if i.startswith("node/")}
    assert len(ours) >= 1426
    assert len(passing.intersection(ours)) >= 1414


def test_a_wrong_result_fails():
    case = cases.cases("node")["test_add"]
    model = cases.model_of(case)
    _, expected = next(iter(cases.data_sets(case, model)))
    with pytest.raises(AssertionError):
        cases.compare([expected[0] * np.float32(1.01)], expected, case.rtol, case.atol)
    with pytest.raises(AssertionError):
        cases.compare([expected[0].astype(np.float64)], expected, case.rtol, case.atol)
    with pytest.raises(AssertionError):
        cases.compare([None], expected, case.rtol, case.atol)


def test_report_names_what_changed(capsys: pytest.CaptureFixture[str]):
    results = {"node/a": "pass", "node/b": "fail: ValueError: x", "node/c": "pass", "node/d": "skip: no"}
    assert conformance.report(results, {"node/a", "node/b", "node/d", "node/e"}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["node/e", "node/b", "node/c"]
    assert conformance.report(results, {"node/a", "node/c"}) == 0


def test_a_crash_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    answers = iter(["pass", "", "pass"])
    monkeypatch.setattr(conformance, "_ask", lambda child, identifier: next(answers))
    results = conformance.run_all(["node/a", "node/b", "node/c"])
    assert [r.partition(":")[0] for r in results.values()] == ["pass", "fail", "pass"]
