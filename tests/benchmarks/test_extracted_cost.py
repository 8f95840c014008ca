"""The cost benchmark: golden values, and what every result must be whatever the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import extracted_cost, scaling
from benchmarks.cases import CASES
from benchmarks.extracted_cost import WAYS, differences, golden_costs, measure

GOLDEN = golden_costs()
GREEDY = [w for w in WAYS if w != "eqsat"]
SMALL = [c for c in CASES if not c.heavy]


def test_golden_costs_are_complete() -> None:
    """``eqsat`` may be missing only everywhere: before it could be run for the first time."""
    assert list(GOLDEN) == [c.name for c in CASES]
    ways = {tuple(sorted(entries)) for entries in GOLDEN.values()}
    assert ways <= {tuple(sorted(WAYS))} or ways <= {tuple(sorted(GREEDY))}


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda c: c.name)
def test_costs(case: extracted_cost.Case) -> None:
    """Of the input, the baselines and, where it has a golden value, eqsat."""
    ways = [way for way in WAYS if way in GREEDY or way in GOLDEN[case.name]]
    entries, seconds = measure(case, ways)
    assert list(entries) == ways
    assert not differences(entries, GOLDEN[case.name])
    assert sorted(way for way in seconds if "." not in way) == sorted(ways)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_eqsat_is_never_dearer(case: extracted_cost.Case) -> None:
    """Than the input, than either baseline, than it can prove; and has the known optimum."""
    entries = GOLDEN[case.name]
    if "eqsat" not in entries:
        assert all("eqsat" not in other for other in GOLDEN.values())
        return
    found = entries["eqsat"]
    for way in GREEDY:
        assert "error" in entries[way] or found["cost"] <= entries[way]["cost"] * (1 + 1e-9), way
    assert found["cost"] - found["bound"] <= 1e-4 * found["cost"], "proven optimal"
    assert {key: found[key] for key in case.optimum} == case.optimum


def test_differences_are_found() -> None:
    old = {"host": {"cost": 1.0, "composites": 0, "regions": 0, "host": 3}}
    assert differences({"host": {**old["host"], "cost": 1.0 + 1e-12}}, old) == []
    assert differences({"host": {**old["host"], "cost": 1.001}}, old) == ["host: cost is 1.001, was 1.0"]
    assert differences({"host": {**old["host"], "host": 2}}, old) == ["host: host is 2, was 3"]
    assert differences({"relax": {"error": "cycle"}}, {"relax": {"cost": 1.0}}) == [
        "relax: cost is None, was 1.0",
        "relax: error is cycle, was None",
    ]
    assert differences({"relay": old["host"]}, old) == ["relay: no golden values"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "costs.json"
    assert (
        extracted_cost.main(["--only", "chains", "shared_sum", "--without-eqsat", "--check", "--json", str(file)]) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["case", "chains", "relay", "relax", "shared_sum", "relay", "relax"]
    written = json.loads(file.read_text("utf-8"))
    assert [c["name"] for c in written["cases"]] == ["chains", "shared_sum"]
    assert written["cases"][0]["results"] == {way: GOLDEN["chains"][way] for way in GREEDY}
    assert sorted(written["cases"][0]["cpu_seconds"]) == sorted(GREEDY)

    wrong = tmp_path / "golden.json"
    monkeypatch.setattr(extracted_cost, "GOLDEN", wrong)
    extracted_cost.write_json(wrong, {"chains": {"host": {**GOLDEN["chains"]["host"], "cost": 1.0}}})
    assert extracted_cost.main(["--only", "chains", "--without-eqsat", "--check"]) == 1
    assert "chains: host: cost is" in capsys.readouterr().err
    assert extracted_cost.main(["--only", "chains", "--without-eqsat", "--update"]) == 0
    assert json.loads(wrong.read_text("utf-8")) == {"chains": {way: GOLDEN["chains"][way] for way in GREEDY}}
    with pytest.raises(SystemExit):
        extracted_cost.main(["--only", "chain"])
    assert "a case must be one of" in capsys.readouterr().err


def test_scaling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaling.json"
    assert scaling.main(["--blocks", "1", "2", "--repeat", "1", "--without-eqsat", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["blocks", "nodes", "load", "relay", "relax"]
    assert [line.split()[:2] for line in lines[2:4]] == [["1", "26"], ["2", "51"]]
    assert lines[4].startswith("a node at 51 over a node at 26 nodes: load ")
    assert [row["nodes"] for row in json.loads(file.read_text("utf-8"))["rows"]] == [26, 51]


def test_medians() -> None:
    assert scaling.medians([{"a": 3.0}, {"a": 1.0}, {"a": 2.0}]) == {"a": 2.0}
