"""Patterns of several roots: what takes too long to join is held back; the bound is never below the matches."""

from __future__ import annotations

import pytest

from eqsat.egraph.combinations import MOST_COMBINATIONS, most_matches
from eqsat.egraph.saturate import Saturation
from eqsat.rules.reader import read_text
from tests.egraph.helpers import model

APART = "rule apart : exact\n    a = Relu(x), b = Neg(y), c = Abs(z)  =>  a = Relu(x), b = Neg(y), c = Abs(Abs(z))\n"
SHARED = """rule shared : real
    a = Mul(x, u), b = Mul(x, v), c = Mul(x, w)  =>  a = Mul(u, x), b = Mul(v, x), c = Mul(w, x)
"""
PAIR = "rule pair : exact\n    a = Relu(x), b = Neg(x)  =>  a = Relu(Relu(x)), b = Neg(x)\n"


def chain(operators: str, count: int) -> str:
    lines, last = [], "x"
    for i in range(count):
        for operator in operators.split():
            lines.append(f"{operator}{i} = {operator}({last})")
            last = f"{operator}{i}"
    return "\n".join([*lines, f"out = Identity({last})"])


def star(count: int) -> str:
    lines = [f"c{i} = Exp(y{i})\nm{i} = Mul(x, c{i})" for i in range(count)]
    lines = [f"y{i} = {'Exp' if i % 2 else 'Neg'}({f'y{i - 1}' if i else 'x'})" for i in range(count)] + lines
    return "\n".join([*lines, f"out = Sum({', '.join(f'm{i}' for i in range(count))})"])


@pytest.mark.parametrize(("rule", "text"), [(APART, chain("Relu Neg Abs", 130)), (SHARED, star(130))])
def test_what_cannot_be_joined_is_held_back(rule: str, text: str) -> None:
    saturation = Saturation(model(text), read_text(rule).rules, [])
    saturation.run()
    (row,) = saturation.statistics
    assert saturation.stop_reason == "rules held back"
    assert row.held_back and not row.matches


@pytest.mark.parametrize(
    ("rule", "text"),
    [(APART, chain("Relu Neg Abs", 3)), (SHARED, star(4)), (PAIR, "a = Relu(x)\nb = Neg(x)\nout = Add(a, b)")],
)
def test_there_are_never_more_matches(rule: str, text: str) -> None:
    saturation = Saturation(model(text), read_text(rule).rules, [])
    before = {
        clause.key: most_matches(clause.query.sites, saturation.engine.tables()) for clause, _ in saturation.clauses()
    }
    for clause, _ in saturation.clauses():
        saturation.engine.step(f"find_{clause.key}")
        found = saturation.engine.matches[f"find {clause.key}"]
        assert 0 < found <= before[clause.key] < MOST_COMBINATIONS


def test_a_composite_that_cannot_be_joined_is_left_out() -> None:
    text = """
target t
    peak float32 = 1
    bandwidth = 1, launch = 1
    link bandwidth = 1, latency = 1
    composite three : exact
        a = Mul(x, u), b = Mul(x, v), c = Mul(x, w)
"""
    many = Saturation(model(star(130)), [], read_text(text).targets)
    many.run()
    (row,) = many.statistics
    assert row.held_back == 1 and not row.matches
    few = Saturation(model(star(4)), [], read_text(text).targets)
    few.run()
    (row,) = few.statistics
    assert not row.held_back and row.applied
