"""The weakest link among the rules that led to a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.explain.origin import Origin
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


@pytest.mark.slow
def test_a_rule_without_a_proof_and_one_of_a_weaker_class_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    file = tmp_path / "mine.rules"
    file.write_text(RULES, "utf-8")
    x = eqsat.input("x", (2, 8))
    result = eqsat.optimize(eqsat.graph(op.Sinh(op.Asinh(op.Relu(op.Relu(x))))), rules=[file])
    found = result.summary.trust
    assert found is not None
    assert set(found.rules) == {"relu_twice", "sinh_of_asinh"}
    assert (found.numerics, found.numerics_by) == ("real", ("sinh_of_asinh",))
    assert (found.proof, found.proof_by) == ("executed", ("sinh_of_asinh",))
    assert "weakest class: real (sinh_of_asinh)" in as_text(result.summary)
    result.report(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["trust"]["proof_by"] == ["sinh_of_asinh"]
    result.report(tmp_path / "report.html")
    assert "weakest numerics class is real" in (tmp_path / "report.html").read_text("utf-8")


def test_the_verdict_on_a_rule_of_ones_own_is_that_of_its_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mine.rules"
    file.write_text("rule negated : exact\n    Neg(Neg(Abs(x)))  =>  Abs(x)\n", "utf-8")
    model = eqsat.graph(op.Neg(op.Neg(op.Abs(eqsat.input("x", (2, 8))))))
    own: dict[str, Any] = {"rules": [file], "default_rules": False}
    unknown = eqsat.optimize(model, trust=True, **own).summary.trust
    assert unknown is not None and (unknown.proof, unknown.proof_by) == (None, ("negated",))
    executed = eqsat.optimize(model, **own).summary.trust
    assert executed is not None and executed.proof == "executed"
    eqsat.prove_rules(file)
    proven = eqsat.optimize(model, **own).summary.trust
    assert proven is not None and proven.proof == "proven"
    assert main(["rules", "list", str(file)]) == 0
    assert "proven" in capsys.readouterr().out


def test_composites_alone_need_no_rule() -> None:
    x = eqsat.input("x", (1, 4, 8, 8))
    w = np.ones((4, 4, 3, 3), np.float32)
    result = eqsat.optimize(eqsat.graph(op.Relu(op.Conv(x, w))), targets=["dnnl"])
    assert result.summary.trust is not None and result.summary.trust.rules == ()
    assert "weakest class" not in as_text(result.summary)


def _applied(model: ir.Model, rules: Path) -> tuple[tuple[str, ...], dict[str, Origin]]:
    result = eqsat.optimize(model, rules=[rules])
    assert result.summary.trust is not None
    return result.summary.trust.rules, dict(result.origins)


@pytest.mark.slow
def test_a_rule_that_leaves_nothing_but_an_input_is_trusted_and_explained(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RULES, "utf-8")
    x = eqsat.input("x", (2, 8))
    same = op.Sinh(op.Asinh(x))
    rules, origins = _applied(eqsat.graph(op.Exp(same)), file)
    assert rules == ("sinh_of_asinh",)
    assert set(origins["output"].sources) == {"output", "asinh", "sinh"}
    assert [(s.before, s.after) for s in origins["output"].steps] == [("Sinh(Asinh(x))", "x")]
    # An output that is the input itself has no operator of its own.
    rules, origins = _applied(eqsat.graph(same), file)
    assert rules == ("sinh_of_asinh",) and set(origins["output"].sources) == {"output", "asinh"}
    # A reader of the input alone does not rest on the rule.
    rules, origins = _applied(eqsat.graph(op.Log(x) + op.Exp(same)), file)
    assert origins["log"].steps == () and [s.rule for s in origins["exp"].steps] == ["sinh_of_asinh"]
    # Nor does a rule stay unnamed that another rule met the input by.
    rules, origins = _applied(eqsat.graph(op.Relu(op.Relu(same))), file)
    assert rules == ("relu_twice", "sinh_of_asinh")


@pytest.mark.slow
def test_a_rule_that_leaves_nothing_but_a_constant_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(
        "rule between : real\n    Max(Min(x, 1.0), 2.0)  =>  Expand(tensor(2.0, float32), x.shape)\n"
        "    where x.dtype == float32\n",
        "utf-8",
    )
    x, y = eqsat.input("x", (2, 8)), eqsat.input("y", (2, 8))
    bound = op.Max(op.Min(x, np.float32(1)), np.float32(2))
    for model in (eqsat.graph(op.Exp(y) + bound), eqsat.graph(bound)):
        rules, _ = _applied(model, file)
        assert "between" in rules
