"""Composites with several results as they are written: names, what they stand for, and what cannot match."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.check.matching import unmatched
from eqsat.errors import EqsatError
from eqsat.rules.expand import expand
from eqsat.rules.format import format_file
from eqsat.rules.reader import read_text
from eqsat.rules.tree import without_places
from tests.rules.reading import MARK, composite, rule


def test_names() -> None:
    found = composite("s = x + y, d = LayerNormalization(s, scale, bias)")
    assert found.results == ("s", "d")
    assert composite("Relu(x)").results == ("",)
    assert composite("r = Relu(x)").results == ("r",)


def test_a_name_stands_for_its_result() -> None:
    by_name = composite("s = x + y, d = Relu(s)")
    (clause,) = expand(by_name.patterns)
    assert clause.roots[1].args[0] is clause.roots[0]


def test_a_tuple_is_short_for_its_parts() -> None:
    apart, together = composite("a = Relu(x), b = Neg(x)"), composite("(a, b) = (Relu(x), Neg(x))")
    assert together.results == apart.results
    assert without_places(together.patterns) == without_places(apart.patterns)
    given, short = (
        rule("a = Relu(x), b = Neg(x) => a = x, b = Neg(x)"),
        rule("(a, b) = (Relu(x), Neg(x)) => (a, b) = (x, Neg(x))"),
    )
    assert without_places((given.left, given.right)) == without_places((short.left, short.right))


def test_results_of_one_operator() -> None:
    found = composite("(_, h, c) = LSTM(x, w, r)")
    assert found.results == ("h", "c")
    (clause,) = expand(found.patterns)
    assert [root.output for root in clause.roots] == [1, 2]
    assert clause.roots[0].node == clause.roots[1].node


def test_alternatives() -> None:
    found = composite("let c = Conv(x, w, b?)\n        (raw, z) = (c, Relu(c) | Clip(c, 0, 6))")
    clauses = expand(found.patterns)
    assert [clause.roots[1].ops[0].name for clause in clauses] == ["Relu", "Clip"] * 2
    assert all(clause.aliases["raw"] == "c" for clause in clauses)


FORMATTED = """\
target t
    peak float32 = 1
    bandwidth = 1, launch = 1
    link bandwidth = 1, latency = 1

    composite a : exact
        s = x + y, d = LayerNormalization(s, scale, bias)

    composite b : exact
        let c = Conv(x, w, b?)
        (raw, z) = (c, Relu(c))
        call "t_b({x}, {w}, {b}, {raw}, {z})"

    composite c : exact
        (_, h, c) = LSTM(x, w, r)

    composite d : exact
        a_long_name_of_a_result = MatMul(an_operand_with_a_name, another_operand_with_a_name),
        another_long_name_of_a_result = MatMul(an_operand_with_a_name, yet_another_operand_with_a_name)
"""


def test_the_formatter_keeps_them() -> None:
    assert format_file(FORMATTED) == FORMATTED
    assert [len(c.results) for c in read_text(FORMATTED).targets[0].composites] == [2, 2, 2, 2]


# The body of a composite with a mark where the error points, what the message says, and what the hint says.
WRONG = [
    ("a = Relu(x), b = ‸Sigmoid(y)", "shares no operand with `a`: the composite cannot match", "two composites"),
    ("a = Relu(x), b = Neg(x), c = ‸Exp(z)", "`c`, which shares no operand with `a`", ""),
    ("a = Relu(x), b = Neg(x) | ‸Neg(y)", "`b`, which shares no operand", ""),
    ("a = Relu(x), b = ‸Relu(x)", "`b` and `a`, which are the same value", "one name is enough"),
    ("c: ‸Relu(c)", "`c` among its own operands: the composite cannot match", ""),
    ("a = ‸Relu(b), b = Neg(a)", "`a` among its own operands", ""),
    ("a = Relu(x), ‸Neg(x)", "each of several roots must have a name", "a = MatMul"),
    ("(a, b) = ‸(Relu(x), Neg(x), Exp(x))", "a value for each name before `=` is required: a, b; got 3", ""),
    ("(a, ‸b) = Relu(x)", "an output of `Relu` is required", ""),
    ("a = Relu(x), ‸a = Neg(x)", "a name of its own", ""),
    ("‸_ = Relu(x)", "the name of a root is required", ""),
    ("‸(_, _) = TopK(x, k)", "the name of a root is required", ""),
    (
        'a = Neg(x), b = Exp(x)\n        call ‸"f({x}, {a})"',
        "a placeholder for each result: {a}, {b}; got none for `b`",
        "",
    ),
    ('a = Neg(x), b = Exp(x)\n        call "f({a}, {b}, {‸y})"', "`y` is not bound", ""),
    (
        'let c = Relu(x)\n        a = Neg(c), b = Exp(c)\n        call "f({x}, {a}, {b}, {‸c})"',
        "`c`, a value inside of the composite, which is not in memory",
        "",
    ),
]


@pytest.mark.parametrize(("text", "message", "hint"), WRONG)
def test_what_cannot_match_says_so(text: str, message: str, hint: str) -> None:
    plain = text.replace(MARK, "")
    before = f"composite c : exact\n        {text}"
    with pytest.raises(EqsatError) as raised:
        composite(plain)
    assert message in str(raised.value).splitlines()[0]
    assert hint in (raised.value.hint or "")
    at = before[: before.index(MARK)]
    column = len(at) - at.rfind("\n") - 1 + (4 if "\n" not in at else 0)
    assert f":{column + 1}" in raised.value.place, raised.value.place


# Conditions on element types that ONNX does not have for the pattern, and what the warning says.
IMPOSSIBLE = [
    ("Relu(x)\n        where ‸x.dtype == uint8", "`x` is never uint8, only float32, int8"),
    ("Relu(x)\n        where x.rank == 2 and ‸x.dtype in (bool, uint8)", "`x` is never uint8, bool, only float32"),
    ("Relu(x) | Neg(x)\n        where x.dtype in integers, ‸x.dtype == uint16", "`x` is never uint16"),
    ("x + y\n        where x.dtype == float32, ‸y.dtype == int8", "`y` is never int8, only float32"),
    ("QLinearConv(x, sx, zx, w, sw, zw, sy, zy)\n        where ‸x.dtype == float32", "`x` is never float32, only"),
    ("a = QuantizeLinear(x, s, z), b = Relu(x)\n        where ‸x.dtype == a.dtype, a.dtype == uint8", "`x` is never"),
]


@pytest.mark.parametrize(("text", "message"), IMPOSSIBLE)
def test_what_no_element_type_matches_is_warned_of(text: str, message: str) -> None:
    declared = read_text(
        "target t\n    peak float32 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
        f"    composite c : exact\n        {text.replace(MARK, '')}\n"
    ).targets
    (found,) = unmatched(declared)
    assert message in found and found.endswith("the composite `c` never matches")
    line = text[: text.index(MARK)].split("\n")[-1]
    assert f":{6 + text.count(chr(10))}:{len(line) + 1}: " in found


def test_conditions_on_operators_of_ones_own_are_warned_of() -> None:
    declared = read_text(
        "operator acme.Gate(x: float32) = x * Sigmoid(x)\n"
        "target t\n    peak float32 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
        "    composite c : exact\n        acme.Gate(x)\n        where x.dtype == float16\n"
        "    composite d : exact\n        acme.Gate(Relu(x))\n        where x.dtype == float32\n"
    ).targets
    (found,) = unmatched(declared)
    assert found.endswith("`x` is never float16, only float32: the composite `c` never matches")


def test_types_that_one_alternative_has_are_enough() -> None:
    assert composite("Relu(x) | Abs(x)\n        where x.dtype == uint8").results == ("",)
    assert composite("Relu(x)\n        where x.dtype in (int8, uint8)").results == ("",)
    assert composite("Clip(x, lo?)\n        where lo.dtype == uint8").results == ("",)


@pytest.mark.slow
def test_rules_that_cannot_match() -> None:
    (found,) = eqsat.check_rules([rule("Relu(Relu(x)) => Relu(x) where x.dtype == uint8")])
    assert found.verdict == "undecided"
    assert any(lint.startswith("it never applies: `x` is never uint8, only float32") for lint in found.lints)


def test_a_family_computes_one_result() -> None:
    text = """
host h
    peak float32 = 1
    bandwidth = 1, launch = 1
    family *
        cost launch
    supports *
    composite c : exact
        a = Relu(x), b = Neg(x)
        by vector_map
"""
    with pytest.raises(EqsatError, match="has one result; got 2 results: a, b"):
        read_text(text)
