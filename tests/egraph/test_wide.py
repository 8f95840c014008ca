"""Operators of very many operands: what their tables and clauses cost, what still holds of them, and their values."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import eqsat
from eqsat.egraph import query
from eqsat.egraph.language import MOST_OPERANDS
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.rules.reader import read_text
from eqsat.rules.selection import select_rules
from tests.egraph.helpers import model, operators, read, saturated

UNARY = ("Relu", "Tanh", "Sigmoid", "Exp", "Abs", "Neg", "Softplus")


def wide(op: str, count: int, attributes: str = "") -> ir.Model:
    """An operator of so many operands, each of its own, after which all of them are read once more."""
    lines = [f"t{i} = {UNARY[i % 7]} ({f't{i - 7}' if i >= 7 else 'x'})" for i in range(count)]
    operands = ", ".join(f"t{i}" for i in range(count))
    result = "out" if not attributes else "joined"
    lines.append(f"{result} = {op} {attributes} ({operands})")
    if attributes:
        lines.append("out = ReduceSum <keepdims = 0> (joined)")
    return model("\n".join(lines), "float[4] x", "float[4] out" if not attributes else "float out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "attributes"), [("Sum", ""), ("Max", ""), ("Min", ""), ("Mean", ""), ("Concat", "<axis = 0>")]
)
@pytest.mark.parametrize("count", [MOST_OPERANDS, MOST_OPERANDS + 1, pytest.param(300, marks=pytest.mark.heavy)])
def test_values(op: str, attributes: str, count: int) -> None:
    graph = wide(op, count, attributes)
    x = np.linspace(-2, 2, 4, dtype=np.float32)
    proto = ir.to_proto(graph)
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = eqsat.optimize(graph).run({"x": x})["out"]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_einsum_of_many_operands() -> None:
    count = MOST_OPERANDS + 2
    terms = ",".join(["i"] * count)
    operands = ", ".join(["x", "y"] * (count // 2))
    graph = model(f'out = Einsum <equation = "{terms}->i"> ({operands})', "float[3] x, float[3] y", "float[3] out")
    values = {"x": np.array([1.1, -1, 0.9], np.float32), "y": np.array([1, -1, 1.05], np.float32)}
    expected = (values["x"].astype(np.float64) * values["y"]) ** (count // 2)
    np.testing.assert_allclose(eqsat.optimize(graph).run(values)["out"], expected, rtol=1e-4)


@pytest.mark.parametrize("count", [200, 400, 800])
def test_tables_and_clauses_do_not_grow_with_the_operands(count: int) -> None:
    rules = select_rules((), "real", default_rules=True).rules
    graph = wide("Sum", count)
    saturation = Saturation(graph, rules, ())
    columns = sum(c.inputs for c in saturation.vocabulary.constructors.values())
    assert columns < 100
    assert len(saturation._states) < 400


def test_a_sum_below_the_limit_still_falls_apart() -> None:
    rule = "rule r : real\n  Sum(x, y, z, rest...) => Sum(x + y, z, rest...)\nrule s : real\n  Sum(x, y) => x + y"
    graph = model("out = Sum(x, y, x, y, x, y, x, y, x, y)")
    assert operators(read(graph, rule), graph) == {"Sum", "Add"}


def test_arities_that_rules_build_are_bounded() -> None:
    graph = wide("Sum", MOST_OPERANDS)
    saturation = saturated(graph, "rule r : real\n  Sum(x, rest...) => Sum(x, x, rest...)\n")
    assert max(c.inputs for c in saturation.vocabulary.constructors.values()) == MOST_OPERANDS


@pytest.mark.slow
def test_several_rests_in_one_pattern_have_few_clauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MOST_CHOICES", 64)
    graph = wide("Max", MOST_OPERANDS)
    rule = (
        "rule shorter : real\n  Max(x, y, rest...) => Max(x, rest...)\n"
        "rule nested : real\n  Max(Max(Max(a, p...), q...), s...) => Max(a, p...)\n"
    )
    saturation = Saturation(graph, read_text(rule).rules, ())
    assert len(saturation._states) <= 64 + MOST_OPERANDS


def test_equal_ones_are_one_class() -> None:
    operands = ", ".join(["x", "y"] * MOST_OPERANDS)
    graph = model(f"a = Sum({operands})\nb = Sum({operands})\nc = Max({operands})\nd = Mul(b, c)\nout = Add(a, d)")
    snap = read(graph)
    assert sum(str(n.op) == "Sum" for n in snap.nodes) == 1


def test_a_constant_one_is_folded_and_rules_look_at_its_value() -> None:
    operands = ", ".join(["one"] * (MOST_OPERANDS + 16))
    graph = model(
        f"one = Constant <value = float[1] {{1}}> ()\nn = Sum({operands})\nout = Mul(x, n)", outputs="float[4] out"
    )
    snap = read(graph, f"rule r : real\n  x * {MOST_OPERANDS + 16} => Relu(x)\n")
    assert operators(snap, graph) == {"Mul", "Relu"}


def test_a_constant_that_is_too_large_for_the_e_graph_is_folded_afterwards() -> None:
    operands = ", ".join(["w"] * (MOST_OPERANDS + 1))
    graph = model(
        f"s = Constant <value = int64[1] {{5000}}> ()\nz = ConstantOfShape <value = float[1] {{2}}> (s)\n"
        f"w = Neg(z)\nn = Sum({operands})\nout = Add(x, n)",
        "float[5000] x",
        "float[5000] out",
    )
    result = eqsat.optimize(graph)
    assert [node.op_type for node in result.model.graph] == ["Add"]
    x = np.arange(5000, dtype=np.float32)
    np.testing.assert_array_equal(result.run({"x": x})["out"], x - 2 * (MOST_OPERANDS + 1))


def test_one_of_several_outputs() -> None:
    names = [f"s{i}" for i in range(MOST_OPERANDS)]
    operands = ", ".join(["n", "go", *["x"] * MOST_OPERANDS])
    body = (
        f"loop (int64 i, bool c, {', '.join(f'float[4] {s}' for s in names)}) => "
        f"(bool d, {', '.join(f'float[4] {s}_next' for s in names)}) {{ d = Identity(c) "
        + " ".join(f"{s}_next = Add({s}, y)" for s in names)
        + " }"
    )
    results = ", ".join(f"r{i}" for i in range(MOST_OPERANDS))
    graph = model(
        "n = Constant <value = int64 {3}> ()\ngo = Constant <value = bool {1}> ()\n"
        f"{results} = Loop <body = {body}> ({operands})\nout = Mul(r0, r{MOST_OPERANDS - 1})"
    )
    snap = snapshot(saturated(graph))
    assert any(node.outputs == MOST_OPERANDS and len(node.children) > MOST_OPERANDS for node in snap.nodes)
    x, y = np.array([1, 2, 3, 4], np.float32), np.array([1, -1, 2, 0.5], np.float32)
    np.testing.assert_array_equal(eqsat.optimize(graph).run({"x": x, "y": y})["out"], (x + 3 * y) ** 2)
