"""Expands a pattern with alternatives into plain patterns, its clauses.

Each clause is one choice: of the alternatives of ``A | B``, of the operator of ``(op: Add | Mul)(x, c)``, and whether
an optional operand ``b?`` is present. Operand order of commutative operators is not expanded here: the e-graph holds
both orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from eqsat.errors import RuleError
from eqsat.ops.properties import is_commutative
from eqsat.rules.ast import Alternatives, Match, Name, Optional, Pattern, Rest, TemplateTerm, Wildcard, operands
from eqsat.rules.tree import walk, without_places
from eqsat.schema.types import OpKey

MOST_CLAUSES = 1024
"""Most plain patterns of a pattern; one with more is refused."""


MOST_SWAPS = 18
"""Commutative operators of a pattern: where it matches it does so in ``2 ** swaps`` ways."""


@dataclass(frozen=True)
class Clause:
    """A plain pattern: trees of one operator each, without alternatives and optional operands.

    Attributes:
        roots: One tree for each root.
        absent: Names of the pattern that are not bound in this clause: tensors, nodes and attributes.
        operators: Chosen operator by the name of ``(op: A | B)``.
        aliases: Further names of values: name -> name of the variable or node that it stands for here
            (``let xp = Pad(x, w) | x`` where x matched).
    """

    roots: tuple[Match, ...]
    absent: frozenset[str]
    operators: Mapping[str, OpKey] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def matched(self) -> frozenset[OpKey]:
        """The operators in the clause; it can only match if all of them occur."""
        return frozenset(operators(*self.roots))


def expand(roots: Sequence[Pattern]) -> list[Clause]:
    """All clauses of a pattern, in textual order: the first alternative first, present before absent.

    Raises:
        RuleError: There are too many, or a root can be a bare variable.
    """
    names = _names(*roots)
    most_clauses(roots)
    clauses: list[Clause] = []
    for plain, state in _all(list(roots), _State()):
        clause = _clause(plain, state, names)
        if clause is not None:
            clauses.append(clause)
    if len(clauses) < 2:
        return clauses
    found: dict[Any, Clause] = {}
    for clause in clauses:
        found.setdefault(_key(clause), clause)
    return list(found.values())


def most_clauses(roots: Sequence[Pattern]) -> int:
    """Upper bound of the number of clauses, including contradictory and equal ones, without making them.

    Raises:
        RuleError: There are too many.
    """
    ways = _ways(roots, {})
    if ways > MOST_CLAUSES:
        raise RuleError(
            f"a pattern that stands for at most {MOST_CLAUSES} plain ones is required",
            place=str(roots[0].place),
            hint="each alternative and each optional operand doubles their number: split the rule",
        )
    if _swaps(roots, {}) > MOST_SWAPS:
        raise RuleError(
            f"a pattern of at most {MOST_SWAPS} commutative operators is required",
            place=str(roots[0].place),
            hint="each of them matches in both orders, which doubles the matches: split the rule",
        )
    return ways


def _ways(patterns: Sequence[Pattern | None], seen: dict[object, int]) -> int:
    """How many choices there are at most, contradictory ones included. ``seen`` has terms that are chosen once."""
    total = 1
    for pattern in patterns:
        if isinstance(pattern, Optional):
            total *= 1 if pattern.name in seen else 2
            seen[pattern.name] = 2
        elif isinstance(pattern, Match | Alternatives):
            if id(pattern) in seen:
                continue
            seen[id(pattern)] = 1
            if isinstance(pattern, Match):
                total *= len(pattern.ops) * _ways(pattern.args, seen)
            else:
                total *= sum(_ways([option], dict(seen)) for option in pattern.options)
    return total


def _swaps(patterns: Sequence[Pattern | None], seen: dict[int, int]) -> int:
    """How many operators there are, at most, whose two operands may be exchanged."""
    total = 0
    for pattern in patterns:
        if isinstance(pattern, Match | Alternatives) and id(pattern) not in seen:
            if isinstance(pattern, Match):
                own = len(pattern.args) == 2 and any(is_commutative(op) for op in pattern.ops)
                seen[id(pattern)] = own + _swaps(pattern.args, seen)
            else:
                seen[id(pattern)] = max((_swaps([option], seen) for option in pattern.options), default=0)
            total += seen[id(pattern)]
    return total


@dataclass(frozen=True)
class _State:
    """Choices made so far.

    Attributes:
        options: The plain pattern chosen, by identity of an ``Alternatives``: a ``let`` used twice is one object.
        matches: The plain pattern that a ``Match`` became, by its identity.
        present: By name of an optional operand: whether it is there.
    """

    options: Mapping[int, Pattern | None] = field(default_factory=dict)
    matches: Mapping[int, Match] = field(default_factory=dict)
    present: Mapping[str, bool] = field(default_factory=dict)
    operators: Mapping[str, OpKey] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


_Options = Iterator[tuple[Pattern | None, _State]]


def _all(patterns: Sequence[Pattern | None], state: _State) -> Iterator[tuple[list[Pattern | None], _State]]:
    """All expansions of patterns side by side; the first varies slowest."""
    if not patterns:
        yield [], state
        return
    for first, after in _expansions(patterns[0], state):
        for rest, final in _all(patterns[1:], after):
            yield [first, *rest], final


def _expansions(pattern: Pattern | None, state: _State) -> _Options:
    match pattern:
        case Optional():
            yield from _optional(pattern, state)
        case Match():
            yield from _match(pattern, state)
        case Alternatives():
            yield from _alternatives(pattern, state)
        case _:
            yield pattern, state


def _optional(pattern: Optional, state: _State) -> _Options:
    for present in (True, False):
        if state.present.get(pattern.name, present) is present:
            chosen = replace(state, present={**state.present, pattern.name: present})
            yield (Name(pattern.name, pattern.place) if present else None), chosen


def _match(pattern: Match, state: _State) -> _Options:
    if id(pattern) in state.matches:
        yield state.matches[id(pattern)], state
        return
    for op in pattern.ops:
        after = state
        if pattern.op_name is not None:
            if state.operators.get(pattern.op_name, op) != op:
                continue
            after = replace(state, operators={**state.operators, pattern.op_name: op})
        for args, final in _all(pattern.args, after):
            while args and args[-1] is None:
                args.pop()
            unchanged = pattern.ops == (op,) and len(args) == len(pattern.args)
            same = unchanged and all(a is b for a, b in zip(args, pattern.args, strict=True))
            plain = pattern if same else replace(pattern, ops=(op,), args=tuple(args))
            yield plain, replace(final, matches={**final.matches, id(pattern): plain})


def _alternatives(pattern: Alternatives, state: _State) -> _Options:
    if id(pattern) in state.options:
        yield state.options[id(pattern)], state
        return
    for option in pattern.options:
        for plain, after in _expansions(option, state):
            named, alias = _named(plain, pattern.bind)
            aliases = after.aliases
            if alias is not None and pattern.bind is not None:
                if aliases.get(pattern.bind, alias) != alias:
                    continue
                aliases = {**aliases, pattern.bind: alias}
            yield named, replace(after, options={**after.options, id(pattern): named}, aliases=aliases)


def _named(plain: Pattern | None, bind: str | None) -> tuple[Pattern | None, str | None]:
    """The chosen alternative under the name of all: the pattern that carries it, and whether it is an alias."""
    if bind is None or plain is None:
        return plain, None
    if isinstance(plain, Match):
        if plain.bind is None:
            return replace(plain, bind=bind), None
        return plain, None if plain.bind == bind else plain.bind
    if isinstance(plain, Wildcard):
        return Name(bind, plain.place), None
    return plain, plain.name if isinstance(plain, Name) and plain.name != bind else None


def _clause(plain: list[Pattern | None], state: _State, names: set[str]) -> Clause | None:
    """The clause of one choice; None if the choices contradict each other."""
    roots = []
    for root in plain:
        if not isinstance(root, Match):
            assert root is not None
            raise RuleError(
                "an operator is required as the root of a pattern", place=str(root.place), actual="a bare value"
            )
        roots.append(root)
    bound = _names(*roots) | set(state.operators) | set(state.aliases)
    if any(not present and name in bound for name, present in state.present.items()):
        return None
    operators = {name: op for name, op in state.operators.items() if name in bound}
    return Clause(tuple(roots), frozenset(names - bound), operators, dict(state.aliases))


def _names(*roots: Pattern) -> set[str]:
    """All names that patterns bind."""
    found: set[str | None] = set()
    for part in walk(roots, operands, once=True):
        match part:
            case Name() | Optional() | Rest():
                found.add(part.name)
            case Match():
                found |= {part.bind, part.op_name, *(bind.name for bind in part.attrs)}
            case Alternatives():
                found.add(part.bind)
    return {name for name in found if name is not None}


def extent(pattern: Pattern | TemplateTerm | None, seen: dict[int, tuple[int, int]] | None = None) -> tuple[int, int]:
    """The number of operators of a pattern and its depth, with every ``let`` written out.

    A ``let`` that is used twice is one object, so that this takes no longer than the text; a walk over all operators
    takes twice as long for each ``let`` that is made of two of the one before.
    """
    seen = {} if seen is None else seen
    if not isinstance(pattern, Match | Alternatives):
        return 0, 0
    if id(pattern) not in seen:
        below = [extent(part, seen) for part in operands(pattern)]
        depth = max((d for _, d in below), default=0)
        seen[id(pattern)] = isinstance(pattern, Match) + sum(count for count, _ in below), depth + 1
    return seen[id(pattern)]


@lru_cache(maxsize=4096)
def operators(*patterns: Pattern) -> tuple[OpKey, ...]:
    """All operators in patterns, each once; cached, because many models use the same rules."""
    matches = (part for part in walk(patterns, operands, once=True) if isinstance(part, Match))
    return tuple(dict.fromkeys(op for match in matches for op in match.ops))


@lru_cache(maxsize=4096)
def needed(patterns: tuple[Pattern, ...]) -> tuple[frozenset[OpKey], ...]:
    """Sets of operators; wherever the patterns match, at least one operator of each set occurs. Cached as
    :func:`operators`.

    This is weaker than what each clause needs, but known without making the clauses.
    """
    found: dict[frozenset[OpKey], None] = {}
    seen: set[int] = set()
    left: list[Pattern | None] = list(patterns)
    while left:
        pattern = left.pop()
        if pattern is None or id(pattern) in seen:
            continue
        seen.add(id(pattern))
        one_of = _one_of(pattern)
        if one_of:
            found[one_of] = None
        if isinstance(pattern, Match):
            left += pattern.args
    return tuple(found)


def _one_of(pattern: Pattern | None) -> frozenset[OpKey]:
    """Operators, one of which is the root of a pattern; empty if the root can be something else."""
    if isinstance(pattern, Match):
        return frozenset(pattern.ops)
    if not isinstance(pattern, Alternatives):
        return frozenset()
    tops = [_one_of(option) for option in pattern.options]
    return frozenset().union(*tops) if all(tops) else frozenset()


def _key(clause: Clause) -> Any:
    roots = without_places(clause.roots)
    return (roots, clause.absent, tuple(sorted(clause.operators.items())), tuple(sorted(clause.aliases.items())))
