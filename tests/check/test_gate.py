"""Rules that do not ship are executed before a model meets them, once for each thing that a rule says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.check import gate
from eqsat.check.outcome import Outcome
from eqsat.cli import main
from eqsat.rules.ast import Rule
from eqsat.rules.reader import read_text

WRONG = "rule cap : exact\n    Min(Relu(v), c)  =>  Relu(v)\n    where const(c)\n"
RIGHT = "rule odd : exact\n    Sin(-x)  =>  -Sin(x)\n"
SILENT = "rule deep : exact\n    Relu(x)  =>  x\n    where x.rank > 12\n"
TARGET = """
target npu
    summary "n"
    peak float32 = 1e12
    bandwidth = 1e12, launch = 1e-9
    link bandwidth = 1e12, latency = 1e-9
    rules "npu.rules"
    supports Relu
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gate, "_known", {})
    return tmp_path / "cache"


@pytest.fixture
def model() -> ir.Model:
    """Relu up to 50, which random inputs do not reach."""
    return eqsat.graph(op.Min(op.Relu(eqsat.input("x", (16,))), np.full(16, 50, np.float32)))


def test_a_wrong_rule_is_refused_with_its_counterexample(model: ir.Model, tmp_path: Path) -> None:
    path = tmp_path / "cap.rules"
    path.write_text(WRONG, "utf-8")
    with pytest.raises(eqsat.errors.RuleError, match="of which this is a counterexample") as error:
        eqsat.optimize(model, rules=[path], default_rules=False)
    text = str(error.value)
    assert f"{path}:1:6: a rule whose two sides are equal is required" in text
    assert "Relu(v)" in text
    assert "elements differ, first [" in text
    assert f"eqsat rules check {path} --rule cap" in text
    result = eqsat.optimize(model, rules=[path], default_rules=False, trust=True, verify=False)
    assert [node.op_type for node in result.model.graph] == ["Relu"]


@pytest.mark.slow
def test_a_rule_that_was_not_executed_is_named(model: ir.Model) -> None:
    result = eqsat.optimize(model, rules=read_text(SILENT + RIGHT).rules, default_rules=False)
    (note,) = (note for note in result.summary.notes if "not checked" in note)
    assert note.startswith("used although not checked, since no instance was found: `deep` (<text>:1); ")


def test_what_holds_is_said_nowhere(model: ir.Model) -> None:
    result = eqsat.optimize(model, rules=read_text(RIGHT).rules, default_rules=False)
    assert not any("check" in note for note in result.summary.notes)


def count_checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    original = gate.check_rule

    def counted(rule: Rule, **options: Any) -> Outcome:
        seen.append(rule.name)
        return original(rule, **options)

    monkeypatch.setattr(gate, "check_rule", counted)
    return seen


def test_a_rule_is_executed_once_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_checks(monkeypatch)
    for text in (RIGHT, RIGHT, f"\n\n{RIGHT}"):
        gate.require_believed(read_text(text).rules)
        gate._known.clear()  # as in another process
    assert seen == ["odd"]
    gate.require_believed(read_text(RIGHT.replace("Sin", "Erf")).rules)
    assert seen == ["odd", "odd"]


def test_refused_rules_are_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_checks(monkeypatch)
    messages = []
    for _ in range(2):
        with pytest.raises(eqsat.errors.RuleError) as error:
            gate.require_believed(read_text(WRONG).rules)
        messages.append(str(error.value))
        gate._known.clear()
    assert seen == ["cap"]
    assert messages[0] == messages[1]


def test_a_damaged_entry_counts_as_missing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_checks(monkeypatch)
    gate.require_believed(read_text(RIGHT).rules)
    (entry,) = (path for path in cache.rglob("checked/*") if path.is_file())
    entry.write_bytes(entry.read_bytes().replace(b"holds", b"sinks"))
    gate._known.clear()
    gate.require_believed(read_text(RIGHT).rules)
    assert seen == ["odd", "odd"]


def test_shipped_rules_cost_nothing(model: ir.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_checks(monkeypatch)
    eqsat.optimize(model, ["dnnl"])
    assert seen == []


def test_rules_of_a_target_are_executed(model: ir.Model, tmp_path: Path) -> None:
    (tmp_path / "npu.target").write_text(TARGET, "utf-8")
    (tmp_path / "npu.rules").write_text(WRONG, "utf-8")
    with pytest.raises(eqsat.errors.RuleError, match="of which this is a counterexample"):
        eqsat.optimize(model, [tmp_path / "npu.target"], default_rules=False)
    assert eqsat.optimize(model, [tmp_path / "npu.target"], default_rules=False, trust=True, verify=False).cost > 0
    assert main(["rules", "check", str(tmp_path / "npu.target")]) == 1


def test_operators_of_ones_own_are_executed(model: ir.Model) -> None:
    sinc = eqsat.operator("acme.Sinc(x: floats)", reference=lambda x: np.sinc(x).astype(x.dtype))
    with eqsat.declarations(sinc):
        even = read_text("rule even : exact\n    acme.Sinc(-x)  =>  acme.Sinc(x)").rules
        odd = read_text("rule odd : exact\n    acme.Sinc(-x)  =>  -acme.Sinc(x)").rules
    eqsat.optimize(model, rules=even, default_rules=False, declarations=[sinc])
    with pytest.raises(eqsat.errors.RuleError, match="`odd`, of which this is a counterexample"):
        eqsat.optimize(model, rules=odd, default_rules=False, declarations=[sinc])


def test_the_command_line(model: ir.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    eqsat.save(model, tmp_path / "m.onnx")
    (tmp_path / "cap.rules").write_text(WRONG, "utf-8")
    command = ["optimize", str(tmp_path / "m.onnx"), "-r", str(tmp_path / "cap.rules"), "--no-default-rules"]
    assert main(command) == 1
    assert "of which this is a counterexample" in capsys.readouterr().err
    assert main([*command, "--trust", "--no-verify"]) == 0
