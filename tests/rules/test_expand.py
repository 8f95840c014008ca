"""Expansion of alternatives, against a matcher that searches through them."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from eqsat.errors import RuleError
from eqsat.rules.ast import Alternatives, Match, Name, Optional, Pattern, Place, Wildcard
from eqsat.rules.expand import Clause, expand, most_clauses, needed
from eqsat.rules.tree import without_places
from eqsat.schema.types import OpKey
from tests.rules.printing import pattern_text, shown
from tests.rules.reading import pattern, rule


def texts(text: str) -> list[str]:
    """The clauses of a pattern as text."""
    found = rule(f"{text}  =>  0")
    return [describe_clause(c) for c in expand(found.left)]


def describe_clause(clause: Clause) -> str:
    (root,) = clause.roots
    return shown(root)


def test_textual_order() -> None:
    assert texts("(Relu | Tanh)(x + (y | -y))") == [
        "Relu(x + y)",
        "Relu(x + -y)",
        "Tanh(x + y)",
        "Tanh(x + -y)",
    ]


def test_optional_operand() -> None:
    with_bias, without = expand((pattern("Conv(x, w, b?)"),))
    assert len(with_bias.roots[0].args) == 3
    assert with_bias.absent == frozenset()
    assert len(without.roots[0].args) == 2
    assert without.absent == {"b"}


def test_optional_operand_in_the_middle() -> None:
    found = expand((pattern("Clip(x, lo?, hi)"),))
    assert [[a is not None for a in c.roots[0].args] for c in found] == [[True, True, True], [True, False, True]]


def test_an_optional_operand_is_there_everywhere_or_nowhere() -> None:
    both, none = expand((pattern("Clip(Conv(x, w, b?), b?)"),))
    assert both.absent == frozenset()
    assert none.absent == {"b"}


def test_an_operand_that_is_needed_elsewhere_is_there() -> None:
    (only,) = expand((pattern("Conv(x, w, b?) + b"),))
    assert only.absent == frozenset()


def test_operators_with_a_name() -> None:
    found = expand((pattern("(op: Add | Mul)(x, (op: Add | Mul)(y, z))"),))
    assert [dict(c.operators) for c in found] == [{"op": OpKey("", "Add")}, {"op": OpKey("", "Mul")}]
    assert all(len(m.ops) == 1 for c in found for m in c.roots)


def test_operators_without_a_name_are_independent() -> None:
    assert len(expand((pattern("(Add | Mul)(x, (Add | Mul)(y, z))"),))) == 4


def test_names_of_what_did_not_match_are_absent() -> None:
    pad, plain = expand((pattern("c: Conv(p: Pad(x, widths, mode=m) | x, w)"),))
    assert pad.absent == frozenset()
    assert plain.absent == {"widths", "m"}
    assert plain.aliases == {"p": "x"}


def test_equal_clauses_occur_once() -> None:
    assert len(expand((pattern("Relu(x + y | x + y)"),))) == 1
    assert len(expand((pattern("Relu((Exp | Exp)(x))"),))) == 1


def test_several_roots_share_choices() -> None:
    found = rule("let s = x + y | x\n    a = Exp(s), b = Log(s)  =>  a = x, b = x")
    assert len(expand(found.left)) == 2


def test_unchanged_parts_stay_the_same_object() -> None:
    root = pattern("let s = Exp(x)\n        s * Relu(s)")
    (clause,) = expand((root,))
    assert clause.roots[0].args[0] is clause.roots[0].args[1].args[0]


def test_it_is_deterministic() -> None:
    root = pattern("(Relu | Tanh)(Conv(maybe(Pad)(x, widths), w, b?) + r | Conv(x, w))")
    first, second = (without_places(tuple((c.roots, c.absent) for c in expand((root,)))) for _ in range(2))
    assert first == second


def test_descriptions_stay_readable() -> None:
    assert pattern_text(rule("Relu(c + r | c)  =>  c")) == "Relu(c + r | c) => c"


# ---- against a matcher ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    op: str
    args: tuple[Term | None, ...] = ()


Bindings = dict[str, object]


def matches(found: Pattern | None, term: Term | None, bound: Bindings) -> Iterator[Bindings]:
    """All ways to match, by search through the alternatives as docs/rules.md describes them."""
    if found is None or term is None:
        if found is None and term is None:
            yield bound
        elif isinstance(found, Optional) and bound.get(found.name, None) is None:
            yield {**bound, found.name: None}
        elif isinstance(found, Alternatives):
            for option in found.options:
                yield from matches(option, None, bound)
        return
    match found:
        case Wildcard():
            yield bound
        case Name() | Optional():
            if found.name not in bound or bound[found.name] == term:
                yield {**bound, found.name: term}
        case Alternatives():
            for option in found.options:
                yield from matches(option, term, bound)
        case Match():
            for op in found.ops:
                if op.name != term.op or bound.get(found.op_name or "", op) != op:
                    continue
                start = bound if found.op_name is None else {**bound, found.op_name: op}
                yield from _operands(list(found.args), list(term.args), start)


def _operands(patterns: list, terms: list, bound: Bindings) -> Iterator[Bindings]:
    size = max(len(patterns), len(terms))
    patterns += [None] * (size - len(patterns))
    terms += [None] * (size - len(terms))
    states = [bound]
    for p, t in zip(patterns, terms, strict=True):
        states = [after for state in states for after in matches(p, t, state)]
    yield from states


PLACE = Place("", 1, 1)
NAMES = ("x", "y", "b")


def random_pattern(rng: random.Random, depth: int, *, optional: bool = False) -> Pattern:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        name = rng.choice(NAMES)
        kind = Optional if optional and rng.random() < 0.6 else Name
        return kind(name, PLACE) if rng.random() < 0.85 else Wildcard(PLACE)
    if kind < 0.5:
        options = (random_pattern(rng, depth - 1, optional=optional) for _ in range(rng.randint(1, 3)))
        return Alternatives(tuple(options), PLACE)
    return random_match(rng, depth)


def random_match(rng: random.Random, depth: int) -> Match:
    ops = rng.sample(("F", "G", "H"), rng.randint(1, 2))
    args = (random_pattern(rng, depth - 1, optional=True) for _ in range(rng.randint(1, 3)))
    name = rng.choice((None, "op")) if len(ops) == 2 else None
    return Match(tuple(OpKey("", o) for o in ops), name, tuple(args), (), None, 0, PLACE)


def random_term(rng: random.Random, depth: int) -> Term:
    if depth == 0 or rng.random() < 0.3:
        return Term(rng.choice("pq"))
    args: list[Term | None] = [
        None if rng.random() < 0.2 else random_term(rng, depth - 1) for _ in range(rng.randint(1, 3))
    ]
    while args and args[-1] is None:
        args.pop()
    return Term(rng.choice("FGH"), tuple(args) or (Term("p"),))


def instance(rng: random.Random, found: Pattern | None, values: dict[str, Term | None]) -> Term | None:
    """A term that the pattern matches, or nearly."""
    match found:
        case None:
            return None
        case Optional() if rng.random() < 0.4:
            return None
        case Name() | Optional():
            return values.setdefault(found.name, random_term(rng, 1))
        case Wildcard():
            return random_term(rng, 1)
        case Alternatives():
            return instance(rng, rng.choice(found.options), values)
        case Match():
            args = [instance(rng, a, values) for a in found.args]
            while args and args[-1] is None:
                args.pop()
            return Term(rng.choice(found.ops).name, tuple(args))
        case _:
            raise AssertionError


def present(bindings: Bindings) -> tuple:
    return tuple(sorted((k, str(v)) for k, v in bindings.items() if v is not None))


@pytest.mark.slow
def test_clauses_match_what_the_pattern_matches() -> None:
    assert sum(map(count_matches, range(300))) > 3000


def count_matches(seed: int) -> int:
    """Compares all matches of a random pattern with those of its clauses, on terms made to match and others."""
    rng = random.Random(seed)
    root = random_match(rng, 3)
    try:
        clauses = expand((root,))
    except RuleError:  # too many
        return 0
    hits = 0
    for _ in range(30):
        term = instance(rng, root, {}) if rng.random() < 0.8 else random_term(rng, 3)
        expected = {present(b) for b in matches(root, term, {})}
        found = set()
        for clause in clauses:
            assert all(len(m.ops) == 1 for m in _all_matches(clause.roots[0]))
            chosen: Bindings = dict(clause.operators)
            for b in matches(clause.roots[0], term, {}):
                assert not set(b) & clause.absent
                found.add(present({**chosen, **b}))
        assert found == expected
        hits += bool(found)
    return hits


def _all_matches(found: Pattern | None) -> list[Match]:
    if not isinstance(found, Match):
        assert found is None or isinstance(found, Name | Wildcard)
        return []
    return [found, *itertools.chain.from_iterable(_all_matches(a) for a in found.args)]


def all_clauses(root: Pattern) -> list[Clause]:
    try:
        return expand((root,))
    except RuleError:
        return []


@pytest.mark.slow
def test_what_a_pattern_needs_is_in_each_of_its_clauses() -> None:
    rng = random.Random(5)
    compared = told = 0
    for _ in range(600):
        root = random_match(rng, 3)
        needs = needed((root,))
        for clause in all_clauses(root):
            assert clause.matched == {op for part in _all_matches(clause.roots[0]) for op in part.ops}
            assert all(clause.matched & ops for ops in needs), (root, needs)
            compared += 1
            told += len(needs) > 1
    assert compared > 1000 and told > 500


def test_a_pattern_needs_the_operators_of_all_its_levels() -> None:
    found = rule("Relu((Add | Mul)(MatMul(x, w) | Gemm(x, w), Exp(y) | y))  =>  0")
    names = {frozenset(op.name for op in ops) for ops in needed(found.left)}
    assert names == {frozenset({"Relu"}), frozenset({"Add", "Mul"}), frozenset({"MatMul", "Gemm"})}


def test_there_are_never_more_clauses_than_counted() -> None:
    rng = random.Random(6)
    for _ in range(400):
        root = random_match(rng, 3)
        with contextlib.suppress(RuleError):
            assert len(expand((root,))) <= most_clauses((root,))
