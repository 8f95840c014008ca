"""An audit finds wrong unions, wherever they are, and nothing where all rules are right."""

from __future__ import annotations

import json
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.audit.audit_nodes import audit
from eqsat.audit.class_values import spread
from eqsat.audit.report import AuditReport
from eqsat.cli import main
from eqsat.egraph import demand_tables
from eqsat.egraph.made_constants import MadeConstants
from eqsat.egraph.saturate import Saturation
from eqsat.errors import AuditError
from eqsat.search import Search
from tests.egraph.helpers import model, saturated

HALF, SINGLE, DOUBLE = np.float16, np.float32, np.float64


def report_of(graph: object, **options) -> AuditReport:
    return Search.of(eqsat.graph(graph), **options).audit()


def tensor(name: str = "float32", shape: tuple[int, ...] = (4,)):
    return eqsat.input("x", shape, name)


OUT_OF_RANGE: dict[str, Callable[[], object]] = {
    "products overflow": lambda: tensor("float16") * HALF(300) * HALF(300) * HALF(0.001),
    "single products overflow": lambda: tensor() * SINGLE(1e20) * SINGLE(1e20) * SINGLE(1e-19),
    "double products overflow": lambda: tensor("float64") * DOUBLE(1e200) * DOUBLE(1e200),
    "bfloat16 products overflow": lambda: tensor("bfloat16") * ml_dtypes.bfloat16(1e20) * ml_dtypes.bfloat16(1e20),
    "products vanish": lambda: tensor("float16") * HALF(1e-4) * HALF(1e-5),
    "sums overflow": lambda: tensor("float16") + HALF(60000) + HALF(60000),
    "a reciprocal overflows": lambda: tensor("float16") / HALF(1e-5),
    "a scale folds into weights": lambda: (
        op.Conv(tensor("float16", (1, 2, 3, 3)), np.full((2, 2, 1, 1), 300, HALF)) * HALF(1000)
    ),
}


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_constants_out_of_range_are_found_where_nothing_refuses_them(case: str, monkeypatch) -> None:
    assert report_of(OUT_OF_RANGE[case]()).ok
    monkeypatch.setattr(MadeConstants, "check", lambda self: None)
    monkeypatch.setattr(demand_tables, "residues", lambda *given: [None] * len(given[-1]))
    report = report_of(OUT_OF_RANGE[case]())
    assert not report.ok
    first = report.disagreements[0]
    assert first.chain, first
    assert {u.rule for u in first.chain} & {
        "merge_constant_factors", "merge_added_constants", "divide_by_constant", "fold_scale_into_conv",
    }  # fmt: skip


WRONG_RULES = {
    "sign": ("rule wrong : real\n  x - y => y - x\n", "out = Sub(x, y)"),
    "only large": ("rule wrong : real\n  Clip(x, 0, 50) => Relu(x)\n", "l = Constant<value = float {0.0}>()\n"
                   "h = Constant<value = float {50.0}>()\nout = Clip(x, l, h)"),
    "only negative": ("rule wrong : exact\n  Abs(x) => x\n", "out = Abs(x)"),
    "a percent": ("rule wrong : real\n  x * 3 => x * 3.03\n", "c = Constant<value = float {3.0}>()\nout = Mul(x, c)"),
    "not exact": ("rule wrong : exact\n  x * 3 => x + x * 2.0000002\n",
                  "c = Constant<value = float {3.0}>()\nout = Mul(x, c)"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_RULES)
def test_wrong_rules_are_found_and_named(case: str) -> None:
    rules, body = WRONG_RULES[case]
    saturation = saturated(model(body), rules)
    report = audit(saturation)
    assert [u.rule for u in report.disagreements[0].chain] == ["wrong"]
    assert report.disagreements[0].tensor.endswith("out")
    assert "test.rules:1" in report.disagreements[0].place + report.disagreements[0].chain[0].place
    assert "wrong" in str(report)


def test_the_chain_leads_through_all_rules_between() -> None:
    rules = """
        rule one : exact
            Neg(Neg(x)) => Identity(x)
        rule two : real
            Identity(x) => x * 1.5
        rule three : exact
            x * 1.5 => 1.5 * x - 0
        """
    report = audit(saturated(model("a = Neg(x)\nout = Neg(a)"), rules))
    wrong = {d.found: [u.rule for u in d.chain] for d in report.disagreements}
    assert ["one", "two"] in wrong.values() or ["two"] in wrong.values()
    assert all("two" in chain for chain in wrong.values()), wrong


def test_unchosen_programs_count() -> None:
    """The wrong spelling is dearer, so that executing the result shows nothing."""
    rules = "rule wrong : real\n  Relu(x) => Exp(Sin(Cos(x)))\n"
    graph = model("out = Relu(x)")
    assert not audit(saturated(graph, rules)).ok


def test_wrong_composites_are_found() -> None:
    target = """
    target npu
        summary "test"
        peak float32 = 1e9
        bandwidth = 1e9, launch = 1e-6
        link bandwidth = 1e9, latency = 1e-6
        composite add_relu : exact
            Relu(x + y)
    """
    saturation = saturated(model("a = Add(x, y)\nout = Relu(a)"), targets=target)
    report = audit(saturation)
    assert report.ok and report.enodes >= 1


def test_integers_are_compared_to_the_bit() -> None:
    graph = model("c = Constant<value = int8 {2}>()\nout = Div(x, c)", "int8[4] x", "int8[4] out")
    assert not audit(saturated(graph, "rule wrong : exact\n  Div(x, 2) => x\n")).ok


def test_what_cannot_be_computed_is_counted() -> None:
    graph = model("s = RandomNormalLike(x)\nout = Add(s, y)")
    report = audit(saturated(graph))
    assert report.ok and "random or unknown operator" in report.skipped


def test_the_same_report_each_time() -> None:
    rules, body = WRONG_RULES["a percent"]
    assert str(audit(saturated(model(body), rules))) == str(audit(saturated(model(body), rules)))


def test_recording_matches_changes_nothing() -> None:
    graph = eqsat.load(eqsat.graph((tensor() + SINGLE(1)) * SINGLE(2) + SINGLE(3)))
    plain = Search.of(graph).saturation
    again = plain.recorded()
    assert isinstance(again, Saturation)
    assert (again.enodes, again.iterations, again.stop_reason) == (plain.enodes, plain.iterations, plain.stop_reason)


def test_optimize_raises_and_writes_nothing(tmp_path, capsys) -> None:
    rules = tmp_path / "wrong.rules"
    rules.write_text(WRONG_RULES["only large"][0], "utf-8")
    source = tmp_path / "m.onnx"
    eqsat.save(model(WRONG_RULES["only large"][1]), source)
    with pytest.raises(AuditError, match="by wrong: Clip"):
        eqsat.optimize(source, rules=[rules], default_rules=False, trust=True, audit=True)
    out = tmp_path / "out.onnx"
    command = ["optimize", str(source), "--rules", str(rules), "--trust", "--audit", "-o", str(out)]
    assert main(command) == 1
    told = capsys.readouterr().err
    assert "by wrong: Clip" in told and "Traceback" not in told
    assert not out.exists()


def test_the_summary_tells_the_audit(tmp_path, capsys) -> None:
    source = tmp_path / "m.onnx"
    eqsat.save(model("out = Add(x, x)"), source)
    assert main(["optimize", str(source), "--audit", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["audit"]
    assert told["enodes"] >= 1 and told["disagreements"] == []
    assert main(["optimize", str(source), "--audit"]) == 0
    assert "audit " in capsys.readouterr().out


def test_what_exact_rules_build_of_constants_is_rounded_to_its_type() -> None:
    """Tables of 256 numbers: the e-graph folds them in float32."""
    x = eqsat.input("x", (2, 3), "int8")
    scale, zero = SINGLE(0.07), np.int8(3)
    y = op.QuantizeLinear(op.Tanh(op.DequantizeLinear(x, scale, zero)), SINGLE(0.01), np.int8(0))
    search = Search.of(eqsat.graph(y), numerics="exact")
    assert any(s.applied and "table" in s.name for s in search.saturation.statistics)
    assert search.audit().ok


def test_constants_inside_a_composite_are_rounded_to_their_type() -> None:
    """A kernel of ``x * k + t`` takes over a product of constants, which is a constant where it stands alone."""
    rng = np.random.default_rng(0)
    k, t = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    x = eqsat.input("x", (3, 4))
    search = Search.of(eqsat.graph(x * k + op.Mul(t, k)), "dnnl", default_rules=False)
    assert any(node.op.name == "scale_shift" for node in search.snapshot.nodes)
    assert search.audit().ok


def test_dequantization_is_computed_over_the_reals() -> None:
    """An operator that rounded to float32 would differ from arithmetic that does not."""
    x = eqsat.input("x", (2, 3), "int8")
    y = (op.Cast(x, to=1) - SINGLE(3)) * np.full((1, 1), -0.6517321, SINGLE)
    search = Search.of(eqsat.graph(y), numerics="exact")
    assert any(s.applied and s.name == "dequantize_from_arithmetic" for s in search.saturation.statistics)
    assert search.audit().ok


def test_operators_that_give_more_than_they_are_asked_for() -> None:
    x, w, r = (eqsat.input(n, s) for n, s in (("x", (4, 2, 3)), ("w", (1, 1, 3)), ("r", (1, 1, 1))))
    first = op.RNN(x, w, r, hidden_size=1)[0]
    report = report_of(op.Relu(first) + op.Relu(op.Relu(first)))
    assert report.ok and report.enodes and not report.skipped


def test_sizes_that_rounding_decides_are_left_out() -> None:
    scales = np.array([1, 1, 4 / 3, 1], SINGLE)
    report = report_of(op.Relu(op.Resize(tensor(shape=(1, 1, 3, 2)), None, scales, mode="nearest")))
    assert report.ok and report.skipped == {"its shape depends on rounding": 1}


def test_an_exact_rule_may_rely_on_the_rounding_of_its_type() -> None:
    """Above 20, log(1 + exp(x)) is x in float32, and 2e-9 more in the wide types of an audit."""
    x = tensor("float32", (512,))
    assert report_of(op.Where(op.Greater(x, SINGLE(20)), x, op.Softplus(x)), numerics="exact").ok


def test_roundings_do_not_turn_whole_exponents_into_others() -> None:
    # Where the terms of a sum cancel, roundings count. Without a number, they cannot be measured.
    w = np.resize(np.float32([1.1, -1.3]), (1, 24, 1, 1))
    x = eqsat.input("x", (1, 24, 16, 16))
    squares = op.Conv(op.Pow(x, np.float32(2)), w, np.float32([0.1])) * np.float32(0.7)
    report = report_of(squares)
    assert report.ok and report.enodes, str(report)
    c = "c = Constant<value = float {2.0}>()\n"
    wrong = "rule wrong : real\n  Pow(x, 2) => Pow(x, 2) * 1.0001\n"
    assert not audit(saturated(model(c + "out = Pow(x, c)"), wrong)).ok


def test_roundings_that_decide_whether_there_is_a_number_have_no_bound() -> None:
    values = np.array([1.0, 2.0, np.nan]), np.array([1.25, np.nan, np.nan]), np.array([1.0, 2.0, np.nan])
    np.testing.assert_array_equal(spread(values), [0.25, np.inf, 0.25])
