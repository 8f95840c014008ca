"""The rules that TensorRight lists, as eqsat writes them: complete, true, and false once they are changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks import proofs
from benchmarks.fresh_cache import fresh_cache
from eqsat.check.checked import verdict_of
from eqsat.check.rule import check_rule
from eqsat.rules.ast import Rule

TRUE, FALSE = proofs.read("xla.rules"), proofs.read("xla_false.rules")
LISTED = {
    "add": 4, "broadcast": 8, "clamp": 3, "compare": 6, "concat": 7, "conv": 3, "divmod": 8, "dot": 6, "dyslice": 5,
    "dyupslice": 4, "generalize": 1, "iota": 1, "logical": 11, "max": 2, "mul": 10, "not": 2, "pad": 4, "reduce": 8,
    "relabel": 2, "reverse": 4, "select": 4, "slice": 13, "sub": 3,
}  # fmt: skip
"""Rules by file of the public list."""


def test_each_listed_rule_is_expressed_or_has_a_reason() -> None:
    found = [name.rsplit("_", 1)[0] for name in (*TRUE, *proofs.NOT_EXPRESSED)]
    assert {file: found.count(file) for file in LISTED} == LISTED
    assert not set(TRUE) & set(proofs.NOT_EXPRESSED)


def test_each_rule_has_a_false_variant() -> None:
    assert {f"{name}_false" for name in TRUE if name not in proofs.FALSE_OF_NONE} == set(FALSE)


@pytest.mark.slow
@pytest.mark.parametrize("rule", FALSE.values(), ids=lambda r: r.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_false_variant_is_refuted(rule: Rule) -> None:
    assert verdict_of(check_rule(rule, instances=40, attempts=3000, pointed=True)) == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("rule", TRUE.values(), ids=lambda r: r.name)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_listed_rule_is_not_refuted(rule: Rule) -> None:
    assert verdict_of(check_rule(rule, instances=20, attempts=1500, pointed=True)) != "refuted"


@pytest.mark.slow
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proofs.main(["--only", "add_01", "not_02", "--json", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text("utf-8"))["rows"]
    assert [(r["verdict"], r["implied"], r["false variant"]) for r in rows] == [("proven", "yes", "refuted")] * 2
    assert "false variants refuted: 2 of 2" in capsys.readouterr().out


def test_the_cache_of_others_is_found_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_CACHE", "mine")
    with fresh_cache():
        assert os.environ["EQSAT_CACHE"] != "mine"
    assert os.environ["EQSAT_CACHE"] == "mine"
    monkeypatch.delenv("EQSAT_CACHE")
    with fresh_cache():
        assert Path(os.environ["EQSAT_CACHE"]).is_dir()
    assert "EQSAT_CACHE" not in os.environ
