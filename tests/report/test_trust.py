"""The weakest link among the rules behind a result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import eqsat
from eqsat import op
from eqsat.report.table import as_text

RULES = """
rule sinh_of_asinh : real
    Sinh(Asinh(x))  =>  x
"""


def test_a_proven_rule_is_the_weakest_link_of_a_result_that_needs_no_other() -> None:
    x = eqsat.input("x", (2, 8))
    found = eqsat.optimize(eqsat.graph(op.Relu(op.Relu(x)))).summary.trust
    assert found is not None
    assert (found.rules, found.numerics, found.proof) == (("relu_twice",), "exact", "proven")
    assert found.numerics_by == found.proof_by == ("relu_twice",)


def test_a_rule_without_a_verdict_and_one_of_a_weaker_class_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RULES)
    x = eqsat.input("x", (2, 8))
    result = eqsat.optimize(eqsat.graph(op.Sinh(op.Asinh(op.Relu(op.Relu(x))))), rules=[file])
    found = result.summary.trust
    assert found is not None
    assert set(found.rules) == {"relu_twice", "sinh_of_asinh"}
    assert (found.numerics, found.numerics_by) == ("real", ("sinh_of_asinh",))
    assert (found.proof, found.proof_by) == (None, ("sinh_of_asinh",))
    assert "weakest class: real (sinh_of_asinh)" in as_text(result.summary)
    result.report(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["trust"]["proof_by"] == ["sinh_of_asinh"]
    result.report(tmp_path / "report.html")
    assert "weakest numerics class is real" in (tmp_path / "report.html").read_text()


def test_composites_alone_need_no_rule() -> None:
    x = eqsat.input("x", (1, 4, 8, 8))
    w = np.ones((4, 4, 3, 3), np.float32)
    result = eqsat.optimize(eqsat.graph(op.Relu(op.Conv(x, w))), targets=["dnnl"])
    assert result.summary.trust is not None and result.summary.trust.rules == ()
    assert "weakest class" not in as_text(result.summary)
