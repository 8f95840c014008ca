"""``eqsat prove``: exit codes and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from eqsat.cli import main

MODEL = '<ir_version: 8, opset_import: ["": 18]> g (float[N, 4] x) => (float[N, 4] y) {{ {} }}'


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    bodies = {
        "one": "y = Relu(x)",
        "two": "a = Relu(x) \n y = Relu(a)",
        "other": "y = Abs(x)",
        "open": "l = Constant<value_float = 10000000.0>() \n r = Relu(x) \n y = Min(r, l)",
        "broken": "y = Relu(w)",
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.onnxtxt").write_text(MODEL.format(body), "utf-8")
    return {name: str(tmp_path / f"{name}.onnxtxt") for name in bodies}


@pytest.mark.parametrize(
    ("second", "code", "said"),
    [
        ("two", 0, "are equal to the bit"),
        ("other", 1, "are different: output y"),
        ("open", 3, "are equal on 3 inputs, not proven"),
        ("broken", 2, "error: "),
    ],
)
def test_each_verdict_has_an_exit_code(
    files: dict[str, str], second: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", files["one"], files[second]]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_json_has_the_verdict_and_no_arrays(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", files["one"], files["other"], "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "different"
    assert found["counterexample"]["difference"]["name"] == "y"
    assert found["places"] == [{"first": "y", "second": "y", "operators": ["Relu", "Abs"], "reason": ""}]


def test_the_input_that_tells_them_apart_is_written(files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "differ.npz"
    assert main(["prove", files["one"], files["other"], "--quiet", "--save-inputs", str(path)]) == 1
    with np.load(path) as arrays:
        assert (arrays["x"] < 0).any()
    assert main(["compare", files["one"], files["other"], "-i", f"x={path}"]) in (1, 2)


def test_the_chain_of_rules_is_printed(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", files["one"], files["two"]]) == 0
    said = capsys.readouterr().out
    assert "relu_twice (proven) [exact]" in said
    assert "trust     1 rule; weakest proof: proven for all shapes and values (relu_twice)" in said


@pytest.mark.slow
def test_the_weakest_rule_of_the_chain_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    rules, models = (
        tmp_path / "mine.rules",
        {"long": "a = Asinh(x) b = Sinh(a) c = Neg(b) y = Neg(c)", "short": "y = Identity(x)"},
    )
    rules.write_text("rule mine : real\n    Sinh(Asinh(x))  =>  x\n", "utf-8")
    for name, body in models.items():
        (tmp_path / f"{name}.onnxtxt").write_text(MODEL.format(body), "utf-8")
    given = ["prove", *(str(tmp_path / f"{name}.onnxtxt") for name in models), "-r", str(rules)]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trust"]["verdicts"] == {"negate_twice": "proven", "mine": "executed"}
    assert (found["trust"]["proof"], found["trust"]["proof_by"]) == ("executed", ["mine"])
    assert {j["proof"] for j in found["joints"] if "mine" in j["rules"]} == {"executed"}
    assert main(given) == 0
    assert "weakest proof: executed on random instances (mine)" in capsys.readouterr().out
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "other"))
    assert main([*given, "--trust"]) == 0
    said = capsys.readouterr().out
    assert "mine (no verdict)" in said and "weakest proof: no verdict is known (mine)" in said
