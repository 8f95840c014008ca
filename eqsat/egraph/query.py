"""The left side of a clause as an egglog query: atoms, bound variables, and the facts that its conditions read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.egraph.language import ABSENT, Constructor
from eqsat.rules.ast import Match, Name, Number, Pattern, Rest, Wildcard
from eqsat.schema.types import OpKey


@dataclass(frozen=True, slots=True)
class MatchedOperator:
    """One matched operator: its constructor, the egglog variables of its value and attributes, its operands."""

    match: Match
    constructor: Constructor
    value: str
    attrs: str
    operands: tuple[str, ...]


@dataclass
class Query:
    """A conjunctive query.

    Attributes:
        atoms: egglog facts.
        sites: Matched operators, roots after their operands (topological).
        roots: egglog variables of the roots' values.
        tensors: Name in the rule -> egglog variable; nodes bound by ``c:`` included.
        rests: Name of a ``xs...`` -> egglog variables.
        leaves: egglog variables that no pattern operator produces, in order of first occurrence.
        numbers: (egglog variable, required value) of number patterns.
        names_of: egglog variable -> name in the rule, for leaves that have one.
    """

    atoms: list[str] = field(default_factory=list)
    sites: list[MatchedOperator] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    tensors: dict[str, str] = field(default_factory=dict)
    rests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    leaves: dict[str, None] = field(default_factory=dict)
    numbers: list[tuple[str, int | float]] = field(default_factory=list)
    names_of: dict[str, str] = field(default_factory=dict)

    def leaves_of(self, variable: str) -> frozenset[str]:
        """The leaves that an egglog variable is computed from: itself if it is one."""
        site = next((s for s in self.sites if s.value == variable), None)
        if site is None:
            return frozenset({variable} & self.leaves.keys())
        return frozenset().union(*(self.leaves_of(v) for v in site.operands))


class QueryBuilder:
    """Builds the queries of one clause, one for each choice of arities and tuple sizes.

    Args:
        constructors: By operator, those that occur.
        absent: Names that are absent in this clause.
    """

    def __init__(self, constructors: Mapping[OpKey, Sequence[Constructor]], absent: frozenset[str]) -> None:
        self.constructors = constructors
        self.absent = absent

    def options(self, roots: Sequence[Match]) -> tuple[tuple[Constructor, ...], ...]:
        """The possible constructors of each operator of the patterns; empty if one of them does not occur."""
        matches = _distinct(roots).values()
        tuples = {m.node for m in matches if m.output}
        options: list[list[Constructor]] = []
        for match in matches:
            options.append(self._options(match, plain=match.node not in tuples))
            if not options[-1]:
                return ()
        _limit(options)
        return tuple(map(tuple, options))

    def queries(self, roots: Sequence[Match], options: Sequence[Sequence[Constructor]]) -> Iterator[Query]:
        """The queries of all choices among the :meth:`options` of the same patterns."""
        if not options:
            return
        matches = _distinct(roots)
        nodes = [m.node for m in matches.values()]
        for choice in itertools.product(*options):
            if len(set(zip(nodes, choice, strict=True))) > len(set(nodes)):
                continue
            builder = _Builder(dict(zip(matches, choice, strict=True)), self.absent)
            for root in roots:
                builder.query.roots.append(builder.value(root))
            _sort(builder.query)
            yield builder.query

    def _options(self, match: Match, *, plain: bool) -> list[Constructor]:
        args = self._trimmed(match)
        rest = bool(args) and isinstance(args[-1], Rest)
        least = len(args) - 1 if rest else len(args)
        found = []
        for c in self.constructors.get(match.ops[0], ()):
            arity_fits = c.inputs >= least if rest else c.inputs == least
            if not arity_fits or c.composite:
                continue
            if (c.outputs == 0 and match.output == 0) or match.output < c.outputs:
                found.append(c)
        alone = [c for c in found if c.outputs == 0]
        # A tuple's first output also exists as a plain e-node, so the plain form finds both.
        return (alone if plain else [c for c in found if c.outputs]) or found

    def _trimmed(self, match: Match) -> list[Pattern | None]:
        return trim(match.args, self.absent)


MOST_CHOICES = 512
"""Choices of constructors for one clause; several ``xs...`` in a pattern multiply theirs."""


def _limit(options: list[list[Constructor]]) -> None:
    """Leaves out the largest arities until the choices are few enough; only patterns of many ``xs...`` lose some."""
    while math.prod(map(len, options)) > MOST_CHOICES:
        widest = max(options, key=len)
        widest.remove(max(widest, key=lambda c: c.inputs))


def trim(args: Sequence[Pattern | None], absent: frozenset[str]) -> list[Pattern | None]:
    """Operands with None for those that are absent in this clause, without trailing None."""
    kept: list[Pattern | None] = [None if isinstance(a, Name) and a.name in absent else a for a in args]
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _distinct(roots: Sequence[Match]) -> dict[int, Match]:
    """The operators of patterns by identity, those below others first."""
    return {id(m): m for root in roots for m in _matches(root)}


def _matches(pattern: Pattern | None) -> Iterator[Match]:
    if isinstance(pattern, Match):
        for arg in pattern.args:
            yield from _matches(arg)
        yield pattern


def _sort(query: Query) -> None:
    """Puts operators after their operands: a name may be read before the node that it names."""
    position = {site.value: i for i, site in enumerate(query.sites)}
    placed: dict[int, MatchedOperator] = {}

    def place(i: int, above: tuple[int, ...]) -> None:
        if i in placed or i in above:
            return
        for operand in query.sites[i].operands:
            if operand in position:
                place(position[operand], (*above, i))
        placed[i] = query.sites[i]

    for i in range(len(query.sites)):
        place(i, ())
    query.sites[:] = placed.values()


class _Builder:
    def __init__(self, chosen: Mapping[int, Constructor], absent: frozenset[str]) -> None:
        self.chosen = chosen
        self.absent = absent
        self.query = Query()
        self._done: dict[int, str] = {}
        self._nodes: dict[Match, tuple[str, tuple[str, ...]]] = {}

    def value(self, pattern: Pattern | None) -> str:
        """The egglog variable (or absent constant) of a pattern's value."""
        query = self.query
        if pattern is None:
            return ABSENT
        if isinstance(pattern, Name):
            name = f"x_{pattern.name}"
            query.tensors[pattern.name] = name
            if all(site.value != name for site in query.sites):
                query.leaves.setdefault(name)
                query.names_of[name] = pattern.name
            return name
        if isinstance(pattern, Wildcard):
            name = f"w{len(query.leaves)}_{len(query.atoms)}"
            query.leaves.setdefault(name)
            return name
        if isinstance(pattern, Number):
            name = f"n{len(query.numbers)}"
            query.numbers.append((name, pattern.value))
            return name
        assert isinstance(pattern, Match), f"{pattern} is not expanded"
        if id(pattern) not in self._done:
            self._done[id(pattern)] = self._site(pattern)
        return self._done[id(pattern)]

    def _site(self, match: Match) -> str:
        query = self.query
        constructor = self.chosen[id(match)]
        node = match.node
        known = self._nodes.get(node)
        if known is None or not constructor.outputs:
            operands = self._operands(match, constructor)
            known = self._nodes[node] = (f"a{len(query.sites)}", operands)
            if constructor.outputs:
                query.atoms.append(f"(= m_{known[0]} {constructor.call(*known)})")
        attrs, operands = known
        value = f"x_{match.bind}" if match.bind else f"e{len(query.sites)}"
        if match.bind:
            query.tensors[match.bind] = value
            query.leaves.pop(value, None)
        if constructor.outputs:
            query.atoms.append(f"(= {value} (out m_{attrs} {match.output}))")
        else:
            query.atoms.append(f"(= {value} {constructor.call(attrs, operands)})")
        query.sites.append(MatchedOperator(match, constructor, value, attrs, operands))
        return value

    def _operands(self, match: Match, constructor: Constructor) -> tuple[str, ...]:
        args = trim(match.args, self.absent)
        operands: list[str] = []
        for arg in args:
            if isinstance(arg, Rest):
                names = tuple(f"r_{arg.name}_{i}" for i in range(constructor.inputs - len(args) + 1))
                self.query.rests[arg.name] = names
                for name in names:
                    self.query.leaves.setdefault(name)
                operands += names
            else:
                operands.append(self.value(arg))
        return tuple(operands)
