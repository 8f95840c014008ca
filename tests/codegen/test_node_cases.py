"""A part of the node cases of ``onnx.backend.test`` as C; ``make c-conformance`` runs all of them."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from tests.codegen import __main__ as conformance
from tests.codegen import nodes

EVERY = 28
"""One case in so many is run here."""


def test_expected_cases_pass():
    chosen = conformance.expected()[5::EVERY]
    outcomes = conformance.batch(chosen)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "pass"} == {}
    assert len(outcomes) == len(chosen) > 40


def test_the_list_is_as_long_as_it_was():
    assert len(conformance.expected()) >= 1400


@pytest.mark.heavy
def test_sanitizers_find_nothing():
    chosen = conformance.expected()[::5]
    for start in range(0, len(chosen), conformance.BATCH):
        outcomes = conformance.batch(chosen[start : start + conformance.BATCH], how="sanitize")
        assert {name: outcome for name, outcome in outcomes.items() if outcome != "pass"} == {}


def test_a_wrong_result_fails():
    ready = nodes.prepare("test_add", "sum", conformance.native_isas())
    library = nodes.compiled([ready])
    nodes.check(library, ready)
    ready.expected = [ready.expected[0] * np.float32(1.01)]
    with pytest.raises(AssertionError):
        nodes.check(library, ready)


def test_a_crash_is_named_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch):
    answers = iter(["a\tpass\nb\tstarted\n", "c\trefused: why\nd\tstarted\nd\tpass\n"])

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, next(answers), "segmentation fault")

    monkeypatch.setattr(subprocess, "run", run)
    outcomes = conformance.batch(["a", "b", "c", "d"])
    assert outcomes == {"a": "pass", "b": "fail: crash: segmentation fault", "c": "refused: why", "d": "pass"}


def test_what_differs_is_said():
    known = conformance.expected()[0]
    outcomes = {
        known: "refused: no",
        "new_one": "pass",
        "other": "fail: crash: x",
        "more": "fail: y",
        "rest": "refused",
    }
    lines = conformance.report(outcomes)
    assert [line.partition(":")[0] for line in lines] == [known, "new_one", "other"]
