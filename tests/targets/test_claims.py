"""A composite that is written as an operator claims that the operator computes its pattern; that is executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.errors import RuleError
from eqsat.rules.claims import claims_of
from eqsat.targets.find_targets import load_targets

HEAD = """
target mine
    peak float32 = 1e12
    bandwidth = 1e11, launch = 1e-7
    link bandwidth = 1e11, latency = 1e-7

    supports *

"""
FUSED = """    composite conv_relu : exact
        Relu(c: Conv(x, w, b?))
        where x.dtype == float32
        as com.microsoft.FusedConv(x, w, b, **c, activation="{}")
"""
SKIPPED = """    composite skip : real
        s = x + y, d = LayerNormalization(s, scale, shift, axis=k)
        where x.dtype == float32, x.rank == 3, x.shape == y.shape, k == 2, scale.rank == 1, shift.rank == 1
        as ({}) = com.microsoft.SkipLayerNormalization(x, y, scale, shift, epsilon=d.epsilon)
"""


def _target(folder: Path, composite: str) -> Path:
    file = folder / "mine.target"
    file.write_text(HEAD + composite, "utf-8")
    return file


def _model() -> ir.Model:
    x = eqsat.input("x", (1, 3, 8, 8))
    return eqsat.graph(op.Relu(op.Conv(x, np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32))))


def test_a_wrong_operator_is_refused_wherever_the_target_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _target(tmp_path, FUSED.format("Tanh"))
    (found,) = eqsat.check_rules(file)
    assert (found.rule.name, found.verdict) == ("mine.conv_relu", "refuted")
    with pytest.raises(RuleError, match=r"mine\.conv_relu"):
        eqsat.optimize(_model(), targets=[file])
    assert main(["targets", "check", str(file)]) == 1
    said = capsys.readouterr().err
    assert "mine.conv_relu" in said and "counterexample" in said


@pytest.mark.slow
def test_a_right_operator_is_used_and_trusted(tmp_path: Path) -> None:
    file = _target(tmp_path, FUSED.format("Relu"))
    assert [found.verdict for found in eqsat.check_rules(file)] == ["holds"]
    assert main(["targets", "check", str(file)]) == 0
    result = eqsat.optimize(_model(), targets=[file], prove=True)
    assert result.summary.trust is not None and result.summary.trust.rules == ("mine.conv_relu",)
    assert result.summary.proof is not None and result.summary.proof.verdict == "equal"


@pytest.mark.slow
def test_each_result_is_compared_with_its_output(tmp_path: Path) -> None:
    assert [f.verdict for f in eqsat.check_rules(_target(tmp_path, SKIPPED.format("d, _, _, s")))] == ["holds"]
    assert [f.verdict for f in eqsat.check_rules(_target(tmp_path, SKIPPED.format("s, _, _, d")))] == ["refuted"]


def test_only_composites_that_are_written_as_operators_claim_something() -> None:
    assert not claims_of(load_targets("dnnl"))


@pytest.mark.parametrize(
    "pattern",
    [
        "s: Softmax(x)\n        where s.axis == -1",
        "Transpose(x, perm=[0, 1, -1, 2])",
        "Transpose(x, perm=[0, 0, 1])",
        "Relu(x)\n        where x.rank == 4, x.rank == 3",
        "c: Conv(x, w, b)\n        where w.rank == 2",
        "c: Conv(x, w, b)\n        where c.group > 5, c.group < 3",
        "c: Conv(x, w, b)\n        where c.group == 1.5",
        "Sigmoid(Cast(x, to=int8))",
        "Relu(x)\n        where x.shape[0] == -1",
    ],
)
def test_a_pattern_that_nothing_matches_is_noted(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["targets", "check", str(_target(tmp_path, f"    composite c : exact\n        {pattern}\n"))]) == 0
    assert "`c` may never match: no instance of its pattern was found" in capsys.readouterr().err


@pytest.mark.parametrize(
    "pattern",
    [
        "Relu(c: Conv(x, w, b?, group=g))\n        where g == x.shape[1], c.pads == [1, 1, 1, 1], x.rank == 4",
        "c: QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b)\n        where x.dtype == uint8 and c.dtype == uint8,"
        " w.dtype == int8, x.rank == 4, x.shape[0] == 1, all([z == 0 for z in zw.value]), sw.size == w.shape[0],"
        " c.group == 1, c.dilations == [1, 1], w.shape[2] == w.shape[3], c.strides[0] == c.strides[1],"
        " min(c.pads) == max(c.pads)",
    ],
)
def test_a_pattern_that_something_matches_is_not(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["targets", "check", str(_target(tmp_path, f"    composite c : exact\n        {pattern}\n"))]) == 0
    assert "may never match" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("supports", "said"),
    [
        ('Relu\n        where x.dtype == uint8 because "bytes"', ["ONNX has no `Relu` whose `x` is uint8"]),
        ('Add, Relu\n        where x.dtype in (uint8, bool) because "b"', ["`Relu` whose `x` is uint8, bool"]),
        ('MatMul\n        where A.dtype == float32, B.dtype == bool because "b"', ["`MatMul` whose `B` is bool"]),
        ('Relu\n        where y.dtype == bool because "b"', ["`Relu` whose `y` is bool"]),
        ('Relu\n        where x.dtype in (uint8, int8) because "bytes"', []),
        ('Add\n        where x.dtype == uint8 because "bytes"', []),
        ('QuantizeLinear\n        where x.dtype == float32, y.dtype == uint8 because "bytes"', []),
        ("Relu", []),
    ],
)
def test_an_operator_that_never_runs_is_noted(
    supports: str, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.target"
    file.write_text(HEAD.replace("supports *", f"supports {supports}"), "utf-8")
    assert main(["targets", "check", str(file)]) == 0
    errors = capsys.readouterr().err
    assert errors.count("never runs here") == len(said)
    assert all(text in errors for text in said)
