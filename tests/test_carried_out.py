"""Rules that are carried out before the search: what is believed of them starts from the model as it was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.errors import RuleError, VerificationError

WRONG_ANNOTATION = """
rule stops : exact
    Relu(x)  =>  StopFusion(Abs(x))
"""
WRONG = """
rule absolute : exact
    Relu(x)  =>  Abs(x)
"""
RIGHT = """
rule maximum : exact
    Relu(x)  =>  Max(x, 0.0)
    where x.dtype == float32
"""
TARGET = """
target mine
    peak float32 = 1e12
    bandwidth = 1e11, launch = 1e-7
    link bandwidth = 1e11, latency = 1e-7

    supports *
    prepare "prepares.rules"
"""


def _model() -> ir.Model:
    x = eqsat.input("x", (1, 3, 8, 8))
    w = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    return eqsat.graph(op.Relu(op.Conv(x, w)))


def _rules(folder: Path, text: str) -> Path:
    (folder / "own.rules").write_text(text, "utf-8")
    return folder / "own.rules"


def _target(folder: Path, text: str) -> Path:
    (folder / "prepares.rules").write_text(text, "utf-8")
    (folder / "mine.target").write_text(TARGET, "utf-8")
    return folder / "mine.target"


@pytest.mark.slow
def test_a_wrong_rule_that_places_an_annotation_is_refused(tmp_path: Path) -> None:
    rules = [_rules(tmp_path, WRONG_ANNOTATION)]
    for call in (
        lambda: eqsat.optimize(_model(), rules=rules),
        lambda: eqsat.prove(_model(), _model(), rules=rules),
    ):
        with pytest.raises(RuleError, match="`stops`"):
            call()


def test_a_wrong_rule_by_which_a_target_prepares_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="`absolute`"):
        eqsat.optimize(_model(), targets=[_target(tmp_path, WRONG)])


@pytest.mark.slow
def test_a_result_is_executed_against_the_model_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="output") as error:
        eqsat.optimize(_model(), rules=[_rules(tmp_path, WRONG_ANNOTATION)], trust=True)
    assert "stops" in (error.value.hint or "")
    with pytest.raises(VerificationError, match="absolute"):
        eqsat.optimize(_model(), targets=[_target(tmp_path, WRONG)], trust=True)


@pytest.mark.slow
def test_only_inputs_beyond_the_usual_show_some_differences(tmp_path: Path) -> None:
    rules = _rules(tmp_path, "rule caps : exact\n    Relu(x)  =>  StopFusion(Clip(x, 0.0, 20.0))\n")
    x = eqsat.input("x", (64,))
    with pytest.raises(VerificationError):
        eqsat.optimize(eqsat.graph(op.Relu(x)), rules=[rules], trust=True)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [WRONG_ANNOTATION, WRONG])
def test_a_proof_starts_from_the_model_as_it_was_given(wrong: str, tmp_path: Path) -> None:
    options: dict[str, Any] = (
        {"targets": [_target(tmp_path, wrong)]} if wrong == WRONG else {"rules": [_rules(tmp_path, wrong)]}
    )
    with pytest.raises(VerificationError, match="must compute what the input computes"):
        eqsat.optimize(_model(), trust=True, verify=False, prove=True, **options)
    result = eqsat.optimize(_model(), trust=True, verify=False, **options)
    if "rules" in options:
        assert eqsat.prove(_model(), result.model, trust=True, **options).verdict == "different"


def test_a_right_rule_that_prepares_models_is_believed_and_named(tmp_path: Path) -> None:
    result = eqsat.optimize(_model(), targets=[_target(tmp_path, RIGHT)], prove=True, default_rules=False)
    assert result.summary.verification is not None and result.summary.verification.agrees
    proof, trust = result.summary.proof, result.summary.trust
    assert proof is not None and proof.verdict == "equal" and "maximum" in proof.rules
    assert trust is not None and trust.rules == ("maximum",)
    made = result.origins["output"]
    assert made.sources == ("output",) and [step.rule for step in made.steps] == ["maximum"]
    assert eqsat.compare(_model(), result.model).agrees


def test_rules_check_and_prove_read_what_prepares_models(tmp_path: Path) -> None:
    target = _target(tmp_path, WRONG)
    (found,) = eqsat.check_rules(target)
    assert (found.rule.name, found.verdict) == ("absolute", "refuted")
    (proven,) = eqsat.prove_rules(target)
    assert (proven.rule.name, proven.trust) == ("absolute", "refuted")


def test_bodies_of_control_flow_are_prepared_and_executed_as_well(tmp_path: Path) -> None:
    source = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        graph (bool c, float[4, 8] x) => (float[4, 8] y) {
            y = If (c) <
                then_branch = then () => (float[4, 8] a) { e = Exp(x)  a = Relu(e) },
                else_branch = other () => (float[4, 8] b) { b = Relu(x) }
            >
        }""")
    with pytest.raises(VerificationError, match="branch"):
        eqsat.optimize(source, targets=[_target(tmp_path, WRONG)], trust=True)
    result = eqsat.optimize(source, targets=[_target(tmp_path, RIGHT)], default_rules=False)
    assert result.summary.trust is not None
    assert any(step.rule == "maximum" for origin in result.origins.values() for step in origin.steps)
    assert eqsat.compare(source, result.model).agrees


@pytest.mark.slow
def test_files_for_egglog_are_said_to_be_unchecked(tmp_path: Path) -> None:
    file = tmp_path / "own.egg"
    file.write_text("(relation seen (i64))\n", "utf-8")
    notes = eqsat.optimize(_model(), rules=[file]).summary.notes
    assert any("own.egg" in note and "unchecked" in note for note in notes)


def test_a_model_that_draws_random_numbers_is_not_compared_with_itself(tmp_path: Path) -> None:
    x = eqsat.input("x", (4, 64))
    model = eqsat.graph(op.Relu(op.Dropout(x, np.float32(0.5), np.True_)))
    result = eqsat.optimize(model, [_target(tmp_path, RIGHT)])
    assert "the input before it was changed: Dropout is random" in result.summary.verification.skipped
