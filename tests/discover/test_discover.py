"""Rules that nobody wrote: what is found is right, new and minimal, and what was removed is found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import eqsat
from benchmarks.discover import term as _term
from eqsat.check.checked import check_rules
from eqsat.cli import cli
from eqsat.discover.elementwise_terms import ElementwiseTerm, Enumeration, Pair
from eqsat.discover.find_rules import Discovery, discover_rules
from eqsat.discover.general import most_general
from eqsat.discover.implied_pairs import not_implied
from eqsat.errors import RuleError
from eqsat.rules.reader import read_text

X, Y = ElementwiseTerm(name="x"), ElementwiseTerm(name="y")


def texts(found: Discovery) -> list[str]:
    return [line.strip() for line in found.text.splitlines() if "=>" in line]


def test_a_variable_of_the_right_side_is_one_of_the_left() -> None:
    # Whatever holds, nothing can be built from a variable that nothing binds.
    found = most_general(Pair(ElementwiseTerm("Relu", (ElementwiseTerm("Abs", (X,)),)), X), lambda pair: True)
    assert set(found.right.variables) <= set(found.left.variables)


def test_terms_are_compared_over_all_values() -> None:
    pairs = Enumeration(["Relu", "Abs", "Neg"], ir.DataType.FLOAT, 1, [], 2).pairs
    found = {(pair.left.text, pair.right.text) for pair in pairs}
    assert found == {
        ("Abs(Abs(x))", "Abs(x)"),
        ("Abs(Neg(x))", "Abs(x)"),
        ("Abs(Relu(x))", "Relu(x)"),
        ("Neg(Neg(x))", "x"),
        ("Relu(Abs(x))", "Abs(x)"),
        ("Relu(Relu(x))", "Relu(x)"),
    }


def test_a_difference_at_a_single_number_is_seen() -> None:
    # 1/(1/x) is x everywhere but at 0; Sqrt(x)*Sqrt(x) only where x is not negative.
    found = Enumeration(["Reciprocal", "Sqrt", "Mul", "Abs"], ir.DataType.FLOAT, 1, [], 3).pairs
    assert ("Sqrt(Mul(x, x))", "Abs(x)") in {(pair.left.text, pair.right.text) for pair in found}
    assert "x" not in {pair.right.text for pair in found if pair.left.text.startswith("Mul(Sqrt")}


def test_terms_have_the_types_of_their_operators() -> None:
    """numpy would also choose by numbers, and between truth values and numbers."""
    terms = Enumeration(["Abs", "Less", "Neg", "Where"], ir.DataType.FLOAT, 1, [0.0], 3)
    less, zero = ElementwiseTerm("Less", (X, ElementwiseTerm(number=0.0))), ElementwiseTerm(number=0.0)
    assert terms.holds(
        Pair(ElementwiseTerm("Where", (less, ElementwiseTerm("Neg", (X,)), X)), ElementwiseTerm("Abs", (X,)))
    )
    assert not terms.holds(Pair(ElementwiseTerm("Where", (X, X, zero)), X))
    choices = [t for pair in terms.pairs for t in (*pair.left.subterms, *pair.right.subterms) if t.op == "Where"]
    assert choices
    for condition, *both in (choice.operands for choice in choices):
        assert condition.op == "Less" or condition.op == "Where"
        assert len({term.op == "Less" for term in both}) == 1 or "Where" in {term.op for term in both}


@pytest.mark.slow
def test_what_was_removed_is_found_again() -> None:
    """Without any rules, the rules about the operators are found, each in its numerics class."""
    found = discover_rules(["Relu", "Neg", "Abs", "Max"], size=2, constants=[0.0], default_rules=False)
    said = texts(found)
    assert "Neg(Neg(x))  =>  x" in said
    assert "Abs(Neg(x))  =>  Abs(x)" in said
    assert found.implied == 0 < len(found.rules)
    numerics = {rule.name: str(rule.numerics) for rule in found.rules}
    assert numerics["neg_of_neg"] == "exact"
    # Which zero Max(-x, x) gives is open.
    assert numerics["max_of_neg"] == "real"


@pytest.mark.slow
def test_found_rules_hold_and_none_implies_another(tmp_path: Path) -> None:
    found = discover_rules(["Min", "Max", "Neg"], size=2, constants=[], default_rules=False)
    path = tmp_path / "found.rules"
    path.write_text(found.text, "utf-8")
    checked = check_rules(path, samples=60, seed=7)
    assert {c.verdict for c in checked} == {"holds"}
    assert [c.rule.name for c in checked] == [rule.name for rule in found.rules]
    assert "Max(x, Min(x, y))  =>  x" in texts(found)
    assert not any("grows" in lint for c in checked for lint in c.lints)
    # With them as known rules, nothing is left to find.
    again = discover_rules(["Min", "Max", "Neg"], size=2, constants=[], rules=[path], default_rules=False)
    assert not again.rules
    assert again.implied == again.equal


@pytest.mark.slow
def test_truth_values_and_integers() -> None:
    found = discover_rules(["And", "Or", "Not"], size=2, dtype="bool", default_rules=False)
    assert {"And(x, Or(x, y))  =>  x", "Not(Not(x))  =>  x"} <= set(texts(found))
    found = discover_rules(["Add", "Neg", "Sub"], size=2, dtype="int32", constants=[], default_rules=False)
    assert "Sub(x, Neg(y))  =>  Add(x, y)" in texts(found)
    found = discover_rules(["Div", "Neg"], size=1, dtype="int64")
    assert not any("Div(x, 0)" in text for text in texts(found))


def term(text: str) -> ElementwiseTerm:
    """A term as a rule file has it, of operators with one or two operands."""
    (rule,) = read_text(f"rule r : real\n    Neg({text})  =>  Neg(x)\n", "r.rules").rules
    return _term(rule.left[0]).operands[0]


@pytest.mark.parametrize(
    ("left", "right", "general"),
    [
        ("Div(Exp(x), Exp(x))", 1.0, "Div(a, a) => 1"),
        ("Div(1, Div(1, Abs(x)))", "Abs(x)", "Div(1, Div(1, a)) => a"),
        ("Add(Add(x, x), Exp(x))", "Add(x, Add(x, Exp(x)))", "Add(Add(a, b), c) => Add(a, Add(b, c))"),
        # Nothing more general is true.
        ("Add(x, Abs(x))", "Abs(Add(x, Abs(x)))", "Add(a, Abs(a)) => Abs(Add(a, Abs(a)))"),
        ("Max(x, Min(x, y))", "x", "Max(a, Min(a, b)) => a"),
    ],
)
def test_the_most_general_pair_stands_for_its_instances(left: str, right: str | float, general: str) -> None:
    enumeration = Enumeration(["Add"], ir.DataType.FLOAT, 2, [0.0, 1.0], 1)
    other = term(right) if isinstance(right, str) else ElementwiseTerm(number=right)
    found = most_general(Pair(term(left), other), enumeration.holds)
    assert enumeration.holds(found)
    names = dict(zip(found.left.variables, "abc", strict=False))
    assert f"{found.left.renamed(names).text} => {found.right.renamed(names).text}" == general


def test_what_is_one_number_is_no_part_of_other_terms() -> None:
    enumeration = Enumeration(["Div", "Sub", "Abs"], ir.DataType.FLOAT, 1, [0.0, 1.0], 3)
    pairs = {(pair.left.text, pair.right.text) for pair in enumeration.pairs}
    assert {("Div(x, x)", "1"), ("Sub(x, x)", "0")} <= pairs
    assert not any("Sub(x, x)" in left and left != "Sub(x, x)" for left, _ in pairs)


@pytest.mark.slow
def test_a_number_stands_for_a_tensor() -> None:
    found = discover_rules(["Sub", "Neg"], size=1, variables=1, constants=[0.0], default_rules=False)
    assert "Sub(x, x)  =>  0" in texts(found)
    shipped = discover_rules(["Sub", "Neg"], size=1, variables=1, constants=[0.0])
    assert not shipped.rules and shipped.implied == shipped.equal


def test_known_rules_join_pairs() -> None:
    pairs = [
        Pair(ElementwiseTerm("Neg", (ElementwiseTerm("Neg", (X,)),)), X),
        Pair(ElementwiseTerm("Add", (X, Y)), ElementwiseTerm("Sub", (X, ElementwiseTerm("Neg", (Y,))))),
    ]
    (rule,) = read_text("rule double : exact\n    Neg(Neg(x))  =>  x", "double.rules").rules
    assert not_implied(pairs, [rule], ir.DataType.FLOAT) == pairs[1:]
    assert not_implied(pairs, [], ir.DataType.FLOAT) == pairs


@pytest.mark.slow
def test_a_model_gives_the_operators_and_the_order() -> None:
    x = eqsat.input("x", (4,))
    y = eqsat.input("y", (4,))
    op = eqsat.op
    model = eqsat.graph(op.Max(x, op.Min(x, y)) * np.float32(2) + op.Max(y, op.Min(y, x)))
    found = discover_rules(model=model, size=2, constants=[], default_rules=False)
    first = found.rules[0]
    assert found.uses[first.name] == max(found.uses.values()) >= 2
    assert "Max(x, Min(x, y))  =>  x" in texts(found)
    counts = [found.uses[rule.name] for rule in found.rules]
    assert counts == sorted(counts, reverse=True)
    # The rule is of use: the model becomes cheaper with it.
    used = [rule for rule in found.rules if found.uses[rule.name]]
    better = eqsat.optimize(model, rules=used, default_rules=False)
    assert better.cost < eqsat.optimize(model, default_rules=False).cost


@pytest.mark.slow
def test_the_same_each_time() -> None:
    runs = {discover_rules(["Min", "Abs", "Relu"], size=2, seed=3).text for _ in range(2)}
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operators": []}, "operators are required"),
        ({"operators": ["Minn"]}, "elementwise operator of ONNX is required; got `Minn`"),
        ({"operators": ["Conv"]}, "elementwise operator of ONNX is required; got `Conv`"),
        ({"operators": ["Cast"]}, "that needs no attributes is required; got `Cast`"),
        ({"operators": ["Relu"], "size": 9}, "size: a whole number from 1 to 5 is required; got 9"),
        ({"operators": ["Relu"], "variables": 0}, "variables: a whole number from 1 to 4"),
        ({"operators": ["Relu"], "dtype": "int9"}, "dtype: an element type is required; got 'int9'"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        discover_rules(**arguments)


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    path = tmp_path / "found.rules"
    run = CliRunner().invoke(cli, ["rules", "discover", "--ops", "Floor,Ceil", "--constants", "", "-o", str(path)])
    assert run.exit_code == 0, run.output
    assert "new rules" in run.stderr
    assert check_rules(path)
    run = CliRunner().invoke(cli, ["rules", "discover", "--ops", "Floor,Ceil", "--constants", "", "--json"])
    found = json.loads(run.stdout)
    assert [rule["text"] for rule in found["rules"]] == path.read_text("utf-8").strip().split("\n\n")
    assert CliRunner().invoke(cli, ["rules", "discover"]).exit_code == 2
