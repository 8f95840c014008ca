"""Why rules and composites do not apply: what is said of each kind of place, and that it agrees with the search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import eqsat
from eqsat.cli import main
from eqsat.errors import ModelError, RuleError
from eqsat.explain.why import Explanation
from eqsat.reasons import explained, nearest
from eqsat.rules.reader import read_text
from eqsat.search import Search

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
MODEL = (
    HEAD + "(float[2,4] x, float[2,4] y) => (float[4,2] t) { two = Constant<value_float = 2.0>() m = Mul(x, two) "
    "a = Add(m, y) z = LeakyRelu(a) q = Transpose<perm = [1, 0]>(z) t = Relu(q) }"
)


def why(left: str, right: str = "", where: str = "", model: str = MODEL, **options: Any) -> Explanation:
    numerics = options.pop("kind", "real")
    text = f"rule mine : {numerics}\n    {left}  =>  {right or left}\n" + (f"    where {where}\n" if where else "")
    rules = read_text(text).rules
    return eqsat.explain_rule(model, "mine", rules=rules, trust=True, **options)


@pytest.mark.parametrize(
    ("left", "required", "found"),
    [
        ("Relu(Sigmoid(x))", "Sigmoid as first operand of Relu t", "Transpose q"),
        ("Relu(x * 2 + y)", "Relu as what reads a", "LeakyRelu z"),
        ("x * 3", "the constant 3 as second operand of Mul m", "two, which is 2.0"),
        ("LeakyRelu(x * 2 - y)", "Sub as first operand of LeakyRelu z", "Add a"),
        ("m - y * 2", "Sub as what reads m", "Add a"),
        ("x + x", "m as second operand of Add a (the pattern has one name for both)", "the input y"),
        ("(x * c) / d", "Div as what reads m", "Add a"),
    ],
)
def test_what_is_not_there(left: str, required: str, found: str) -> None:
    said = why(left)
    assert said.outcome == "partial"
    assert (required, found) in [(p.required, p.found) for p in said.places], str(said)


@pytest.mark.parametrize(
    ("left", "where", "required", "found"),
    [
        ("Transpose(x, perm=[0, 1])", "", "Transpose with perm = [0, 1]", "perm = [1, 0]"),
        ("x * c", "x.rank == 3", "x.rank == 3", "x.rank is 2"),
        ("x + y", "const(y)", "const(y)", "y.is_const is false"),
        ("x + y", "x.rank == 2, y.value > 1", "y.value > 1", "y.value is not known"),
        ("Transpose(x, perm=p)", "p[0] == 0", "p[0] == 0", "p is [1, 0]"),
    ],
)
def test_what_does_not_hold(left: str, where: str, required: str, found: str) -> None:
    said = why(left, where=where)
    assert said.outcome == "refused"
    assert (said.places[0].required, said.places[0].found) == (required, found)


def test_the_type_of_the_right_side() -> None:
    place = next(p for p in why("Relu(Transpose(x, perm=p))", "Relu(x)").places if p.outcome == "refused")
    assert place.required == "a right side of the type of the left side"
    assert place.found == "left is float[4, 2], right is float[2, 4]"


def test_a_rule_that_did_not_run() -> None:
    said = why("LeakyRelu(x)", "Relu(x)", kind="approximate")
    assert said.outcome == "not applied" and said.places[0].node == "z"
    assert said.remark == "it is left out: it is `approximate`, and the search allows `real`"


def test_a_limit() -> None:
    said = why("LeakyRelu(x)", "Relu(x)", iterations=0)
    assert str(said.places[0]) == (
        "z: meets all conditions, but the search ended before (`iteration limit`): raise its limits"
    )


def test_a_rule_that_applies() -> None:
    said = why("LeakyRelu(x)", "Sigmoid(x)", default_rules=False)
    assert (said.outcome, [str(p) for p in said.places]) == ("applied", ["z: applies, and makes Sigmoid(a)"])
    again = why("Relu(Transpose(x, perm=p))", "Transpose(Relu(x), perm=p)")
    assert [str(p) for p in again.places if p.node == "t"] == [
        "t: applies, and makes this equal to Transpose(Relu(z)), which was there already, from unary_of_transpose"
    ]


def test_other_spellings_are_searched() -> None:
    """The input has no `Relu` of the sum: a rule has made it."""
    model = HEAD + "(float[4] x, float[4] y) => (float[4] z) { a = Add(x, y) b = Relu(a) z = Relu(b) }"
    rules = read_text("rule mine : exact\n    Relu(x + y)  =>  Relu(y + x)\n    where x.rank == 2\n").rules
    said = eqsat.explain_rule(model, "mine", rules=rules, trust=True, node="z")
    assert said.places[0].required == "x.rank == 2"


def test_operators_that_do_not_occur() -> None:
    said = why("Clip(x, lo, hi)")
    assert str(said).splitlines()[1] == "  no operator of the pattern (Clip) occurs in the model, in any spelling"
    assert not said.places


def test_one_node() -> None:
    model = HEAD + "(float[4] x) => (float[4] b, float[4] d) { a = Abs(x) b = Relu(a) c = Sigmoid(x) d = Relu(c) }"
    assert {p.node for p in why("Relu(Tanh(x))", model=model).places} == {"b", "d"}
    (place,) = why("Relu(Tanh(x))", model=model, node="d").places
    assert (place.node, place.found) == ("d", "Sigmoid c")
    with pytest.raises(ModelError, match=r"a node of the model, or of a result, is required; got `e`"):
        why("Relu(Tanh(x))", model=model, node="e")
    with pytest.raises(ModelError, match=r"names are `a`, `b`, `c`, \.\.\."):
        why("Relu(Tanh(x))", model=model, node="nothing alike")


def test_the_models_own_nodes_are_named_before_folded_constants() -> None:
    model = HEAD + (
        "(float[4] x) => (float[4] b) <float one = {1}> { k1 = Neg(one) k2 = Abs(k1) k3 = Exp(k2) "
        "a = Add(x, k3) b = Relu(a) }"
    )
    with pytest.raises(ModelError, match=r"names are `a`, `b`, `k1`, \.\.\."):
        why("Relu(Tanh(x))", model=model, node="nothing alike")


def test_bodies_of_control_flow() -> None:
    model = HEAD + (
        "(float[4] x, bool c) => (float[4] y) { s = Sigmoid(x) y = If (c) <then_branch = t () => (float[4] a) "
        "{ r = Abs(s) a = Relu(r) }, else_branch = e () => (float[4] b) { b = Neg(s) }> }"
    )
    said = why("Relu(Tanh(x))", model=model)
    assert [p.node for p in said.places] == ["a in the then_branch of If 'y'"]
    assert said.places[0].found == "Abs r"
    assert why("Relu(Tanh(x))", model=model, node="a").places == said.places
    assert not why("Relu(Tanh(x))", model=model, node="b").places


def test_places_are_counted() -> None:
    nodes = " ".join(f"y{i} = Abs(x) z{i} = Mul(y{i}, w{i})" for i in range(9))
    inputs = ", ".join(["float[2] x", *(f"float[2] w{i}" for i in range(9))])
    model = f"{HEAD}({inputs}) => ({', '.join(f'float[2] z{i}' for i in range(9))}) {{ {nodes} }}"
    said = why("x * Tanh(y)", model=model, places=2)
    assert len(said.places) == 2 and said.more == {"partial": 7}
    assert str(said).endswith("and 7 further places: partial")


def test_operands_that_are_absent_or_too_many() -> None:
    model = HEAD + "(float[4] x, float l, float h) => (float[4] y) { y = Clip(x, l, h) }"
    (place,) = why("Clip(x, lo)", "Max(x, lo)", model=model, default_rules=False).places
    assert place.required == "Clip of 2 operands" and place.found.startswith("Clip of 3 operands")
    (place,) = why("Clip(x, max=hi)", "Min(x, hi)", model=model, default_rules=False).places
    assert (place.required, place.found) == ("no operand as second operand of Clip y", "the input l")


def test_outputs_of_one_operator() -> None:
    body = "k = Constant<value_ints = [2, 2]>() a, b = Split<axis = 0>(x, k) c, d = Split<axis = 0>(y, k) "
    inputs = "(float[4] x, float[4] y) => (float[4] z, float[2] c, float[2] b)"
    left = "Concat(Split(x, s, axis=0)[1], Split(x, s, axis=0)[0], axis=0)"
    right = "Concat(Split(x, s, axis=0)[1], Split(Identity(x), s, axis=0)[0], axis=0)"
    one = why(left, right, model=f"{HEAD}{inputs} {{ {body} z = Concat<axis = 0>(b, a) }}", default_rules=False)
    assert one.outcome in ("applied", "there already"), str(one)
    other = why(left, right, model=f"{HEAD}{inputs} {{ {body} z = Concat<axis = 0>(b, c) }}", default_rules=False)
    assert other.places[0].required == "Split as second operand of Concat z"
    assert other.places[0].found == "c, output 0 of Split(y, k)"


def test_the_composites_of_a_target() -> None:
    model = HEAD + "(float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { c = Conv(x, w) y = Abs(c) }"
    said = eqsat.explain_rule(model, "dnnl.conv_eltwise")
    assert said.name == "dnnl.conv_eltwise" and said.places
    with pytest.raises(RuleError, match=r"got `dnnl.conv_eltwis`\n.*`dnnl.conv_eltwise`"):
        eqsat.explain_rule(model, "dnnl.conv_eltwis")


NETWORKS = [
    MODEL,
    HEAD + "(float[2,8] x, float[8,8] w, float[8] b) => (float[2,8] y) { m = MatMul(x, w) a = Add(m, b) s = Sigmoid(a) "
    "p = Mul(a, s) k = Constant<value_float = 3.0>() h = Add(p, k) z = Constant<value_float = 0.0>() "
    "six = Constant<value_float = 6.0>() c = Clip(h, z, six) d = Mul(p, c) y = Div(d, six) }",
    HEAD + "(float[N,3,8,8] x, float[4,3,3,3] w, float[4] g) => (float[N,4,6,6] y) { c = Conv(x, w) "
    "q = BatchNormalization(c, g, g, g, g) r = Relu(q) i = Identity(r) y = Relu(i) }",
]


@pytest.mark.parametrize("model", NETWORKS, ids=["transposed", "hard_swish", "convolution"])
def test_the_search_and_the_explanation_agree(model: str) -> None:
    """A rule applied if and only if some place says so."""
    search = Search.of(model, "dnnl", free_sizes=True)
    applied = {s.name: s.applied for s in search.saturation.statistics}
    composites = [(c, t.name) for t in search.loaded.targets for c in t.composites]
    for definition, target in [*((rule, "") for rule in search.loaded.rewriting), *composites]:
        said = explained(search, definition, target, places=1_000)
        outcomes = {place.outcome for place in said.places}
        assert not outcomes & {"not applied"}, str(said)
        assert bool(applied[said.name]) == bool(outcomes & {"applied", "there already"}), str(said)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, rules = tmp_path / "m.onnxtxt", tmp_path / "my.rules"
    model.write_text(MODEL, "utf-8")
    rules.write_text("rule mine : exact\n    Relu(x + y)  =>  Relu(y + x)\n", "utf-8")
    assert main(["rules", "why", "mine", str(model), "-r", str(rules), "--node", "a", "-q"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[-1:] == [
        "  a: 1 of 2 operators match; Relu as what reads a is required, found LeakyRelu z"
    ]
    assert main(["rules", "why", "mine", str(model), "-r", str(rules), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["outcome"] == "partial" and said["places"][0]["required"] == "Relu as what reads a"
    assert main(["rules", "why", "min", str(model), "-r", str(rules)]) == 1
    assert "the name of a rule, or of a composite with its target, is required; got `min`" in capsys.readouterr().err


def test_the_list_gives_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, rules = tmp_path / "m.onnxtxt", tmp_path / "my.rules"
    model.write_text(MODEL, "utf-8")
    rules.write_text("rule mine : exact\n    x + y  =>  y + x\n    where x.rank == 3\n", "utf-8")
    assert main(["rules", "list", str(rules), "--on", str(model), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["matches"] and not row["applied"]
    assert row["remark"] == "a: 1 of 1 operator matches; x.rank == 3 is required: x.rank is 2"


def test_a_model_that_is_left_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.search.MOST_PLACED", 1)
    said = why("Relu(x)")
    assert said.outcome == "absent" and said.remark.startswith("the model is left unchanged")
    search = Search.of(MODEL, free_sizes=True)
    assert nearest(search, search.loaded.rules[0]) is None
