"""The report names what free sizes kept from being applied: rules and composites, with the condition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eqsat
from eqsat.report.as_json import to_json
from eqsat.report.html import to_html
from eqsat.report.summary import RuleRow
from eqsat.report.table import as_text

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
MODEL = HEAD + "(float[N, 256] x, float[M, 256] z) => (float[N, 256] y, float[M, 256] t) { y = Relu(x) t = Relu(z) }"
RULE = """rule lanes : exact
    Relu(x)  =>  Relu(Relu(x))
    where x.rank == 2, x.shape[0] % 16 == 0 because "vectors have 16 lanes"
"""
TARGET = """target lanes
    peak float32 = 100e9
    bandwidth = 40e9, launch = 0.1e-6, dispatch = 0.1e-6
    link bandwidth = 40e9, latency = 0.05e-6

    composite relu16 : exact
        Relu(x)
        where x.shape[0] % 16 == 0
"""


@pytest.fixture
def rule(tmp_path: Path) -> Path:
    path = tmp_path / "lanes.rules"
    path.write_text(RULE, "utf-8")
    return path


def _row(result: eqsat.Result, name: str) -> RuleRow:
    return next(row for row in result.summary.rules if row.name == name)


def _notes(result: eqsat.Result) -> list[str]:
    return [note for note in result.summary.notes if "because sizes are free" in note]


def test_a_rule_whose_condition_holds_at_the_sizes_of_costs(rule: Path):
    result = eqsat.optimize(MODEL, rules=[rule], default_rules=False, dims={"N": (1, None, 64), "M": (1, 100, 7)})
    row = _row(result, "lanes")
    assert (row.applied, row.undecided) == (0, 1)
    condition = "`x.shape[0] % 16 == 0` (vectors have 16 lanes) holds at N = 64"
    assert row.undecided_condition == condition
    (note,) = _notes(result)
    assert note.endswith(f"lanes ({condition})")
    assert json.loads(to_json(result.summary))["rules"][0]["undecided_condition"] == condition
    assert condition in " ".join(as_text(result.summary, details=True, width=1000).split())
    assert "vectors have 16 lanes) holds at N = 64, not at all sizes" in to_html(result.summary)


def test_one_of_several_sizes_is_enough(rule: Path):
    result = eqsat.optimize(MODEL, rules=[rule], default_rules=False, dims={"N": [3, 5, 32], "M": [7, 48]})
    assert _row(result, "lanes").undecided == 2


def test_sizes_that_are_bound_or_that_never_fit_are_not_named(rule: Path):
    for dims in ({"N": 64, "M": 7}, {"N": (1, None, 3), "M": (1, None, 5)}):
        result = eqsat.optimize(MODEL, rules=[rule], default_rules=False, dims=dims)
        assert _row(result, "lanes").undecided == 0
        assert not _notes(result)


def test_rules_that_apply_at_all_sizes_are_not_named():
    result = eqsat.optimize(HEAD + "(float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Relu(a) }")
    assert all(row.undecided == 0 for row in result.summary.rules)
    assert not _notes(result)


def test_composites_are_named_as_rules_are(tmp_path: Path):
    path = tmp_path / "lanes.target"
    path.write_text(TARGET, "utf-8")
    free = eqsat.optimize(MODEL, targets=[path], default_rules=False, dims={"N": (1, None, 512), "M": (1, None, 256)})
    row = _row(free, "lanes.relu16")
    assert (row.applied, row.undecided) == (0, 2)
    assert row.undecided_condition.startswith("`x.shape[0] % 16 == 0` holds at ")
    assert row.undecided_condition.endswith(("N = 512", "M = 256"))
    bound = eqsat.optimize(MODEL, targets=[path], default_rules=False, dims={"N": 512, "M": 256})
    assert (_row(bound, "lanes.relu16").applied, _row(bound, "lanes.relu16").undecided) == (2, 0)
