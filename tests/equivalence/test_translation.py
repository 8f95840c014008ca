"""`optimize(prove=True)`: results are proven from the two models alone, and a wrong rule cannot hide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

import eqsat
from eqsat.cli import cli
from eqsat.errors import VerificationError

HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
NETWORK = HEAD + (
    "g (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b) => (float[N, 4, 6, 6] y) "
    "{ c = Conv(x, w, b) r = Relu(c) s = Relu(r) t = Neg(s) y = Neg(t) }"
)
EXACT = HEAD + "g (float[4] x) => (float[4] y) { a = Relu(x) b = Relu(a) y = Neg(b) }"
CONTROL = HEAD + (
    "g (float[4] x, bool k) => (float[4] y) { y = If(k) "
    "<then_branch = t () => (float[4] r) { q = Relu(x) r = Relu(q) }, "
    "else_branch = e () => (float[4] r2) { q2 = Neg(x) r2 = Neg(q2) }> }"
)


@pytest.mark.parametrize("options", [{}, {"targets": "dnnl"}, {"host": "c"}, {"host": "ort"}], ids=str)
def test_results_are_proven_on_each_host_and_target(options: dict[str, Any]) -> None:
    proof = eqsat.optimize(NETWORK, prove=True, **options).summary.proof
    assert proof is not None and proof.verdict == "equal"
    assert {"relu_twice"} <= set(proof.rules) and not proof.apart


def test_the_class_is_that_of_the_weakest_rule_in_the_proof() -> None:
    proof = eqsat.optimize(EXACT, prove=True).summary.proof
    assert proof is not None and (proof.verdict, proof.numerics) == ("equal", "exact")
    assert proof.statement == "equal to the bit"
    assert proof.trust is not None and (proof.trust.proof, proof.trust.proof_by) == ("proven", ("relu_twice",))
    assert eqsat.optimize(EXACT).summary.proof is None


def test_values_and_sizes_that_are_bound() -> None:
    text = HEAD + "g (float[N] x, int64 k) => (float[N] y) { c = Cast<to=1>(k) m = Mul(x, c) a = Relu(m) y = Relu(a) }"
    proof = eqsat.optimize(text, prove=True, values={"k": 3}, dims={"N": 5}).summary.proof
    assert proof is not None and proof.verdict == "equal"


def test_what_is_not_proven_is_said() -> None:
    proof = eqsat.optimize(CONTROL, prove=True).summary.proof
    assert proof is not None and proof.verdict == "not proven" and proof.numerics is None
    assert proof.apart == ("y (If) and y (If)",)
    assert proof.statement == "equal on 3 inputs, not proven"


@pytest.mark.slow
def test_a_wrong_rule_is_seen(tmp_path: Path) -> None:
    rules = tmp_path / "wrong.rules"
    rules.write_text("rule wrong : exact\n    Relu(x)  =>  x\n", "utf-8")
    text = HEAD + "g (float[8, 4] x) => (float[8, 4] y) { a = Relu(x) y = Exp(a) }"
    with pytest.raises(VerificationError, match=r"y: the result must compute what the input computes; got max abs"):
        eqsat.optimize(text, rules=[rules], trust=True, verify=False, prove=True)


def test_command(tmp_path: Path) -> None:
    path, page = tmp_path / "m.onnx", tmp_path / "r.html"
    onnx.save(onnx.parser.parse_model(EXACT), path)
    run = CliRunner().invoke(cli, ["optimize", str(path), "--prove", "--report", str(page)])
    assert run.exit_code == 0, run.output
    assert "proof     equal to the bit\n          by relu_twice\n" in run.output
    assert "equal to the bit, by relu_twice" in page.read_text("utf-8")
    run = CliRunner().invoke(cli, ["optimize", str(path), "--prove", "--json"])
    assert json.loads(run.stdout)["proof"]["verdict"] == "equal"
