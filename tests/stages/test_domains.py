"""``ops``: from which domains the operators of a result may come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import op
from eqsat.cli import main
from eqsat.errors import OptimizationError


def model() -> object:
    x = eqsat.input("x", (1, 3, 8, 8))
    return eqsat.graph(op.Relu(op.Conv(x, np.ones((4, 3, 3, 3), np.float32))))


def found(ops: str | list[str]) -> set[str]:
    return {node.domain for node in eqsat.optimize(model(), host="ort", ops=ops).model.graph}


def test_only_operators_of_these_domains_come_into_the_result() -> None:
    assert (
        found([]) == found("") == found("onnx,com.microsoft") == found(["com.microsoft", "onnx"]) == {"com.microsoft"}
    )
    assert found("onnx") == found(["onnx"]) == found("onnx,ai.onnx.ml") == {""}


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ("onx", "ops: domains of operators are required; got 'onx'\n  hint: did you mean `onnx`?"),
        ("onnx,acme", "known are ai.onnx.ml, ai.onnx.preview, ai.onnx.preview.training, com.microsoft, onnx"),
        ("com.microsoft", "ops: `onnx`, ONNX's own domain, is required among the domains; got com.microsoft"),
        (["onnx", ""], "got ''"),
    ],
)
def test_wrong_domains(ops: str | list[str], message: str) -> None:
    with pytest.raises(OptimizationError) as error:
        eqsat.optimize(model(), host="ort", ops=ops)
    assert message in str(error.value)


def test_what_the_model_contains_stays() -> None:
    x = eqsat.input("x", (4, 8))
    given = eqsat.graph(eqsat.op("com.microsoft").BiasGelu(x, np.ones(8, np.float32)))
    result = eqsat.optimize(given, ops="onnx")
    assert [node.op_type for node in result.model.graph] == ["BiasGelu"]


@pytest.mark.slow
def test_rules_that_make_others_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(
        "operator acme.Twice(x: floats) = Relu(x) + Relu(x)\n"
        "rule declared : exact\n    Relu(x) + Relu(x)  =>  acme.Twice(x)\n"
        'rule of_the_runtime : real\n    Gelu(x, approximate="none")  =>  com.microsoft.Gelu(x)\n',
        "utf-8",
    )
    x = eqsat.input("x", (4, 8))
    given = eqsat.graph(op.Gelu(op.Relu(x) + op.Relu(x)))
    for ops, expected in (("onnx", {"declared"}), ("", {"declared", "of_the_runtime"})):
        result = eqsat.optimize(given, rules=[tmp_path / "own.rules"], ops=ops)
        assert {"declared", "of_the_runtime"} & {rule.name for rule in result.summary.rules} == expected


def test_an_own_domain_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text("operator acme.Twice(x: floats) = x + x\n", "utf-8")
    eqsat.optimize(model(), rules=[tmp_path / "own.rules"], ops="onnx,acme")


def test_command_line(tmp_path: Path) -> None:
    given, written = str(tmp_path / "m.onnx"), str(tmp_path / "o.onnx")
    eqsat.save(model(), given)
    for ops, expected in (("onnx", ["Conv", "Relu"]), ("onnx,com.microsoft", ["FusedConv"])):
        assert main(["optimize", given, "--host", "ort", "--ops", ops, "-o", written, "-q"]) == 0
        assert [node.op_type for node in onnx.load(written).graph.node] == expected
    assert main(["optimize", given, "--host", "ort", "--ops", "microsoft", "-o", written, "-q"]) == 1
