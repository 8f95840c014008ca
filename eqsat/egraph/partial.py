"""Complete and partial matches of a pattern in a snapshot.

Saturation finds whole matches, in egglog. To explain why a rule did not apply, partial matches are needed. Each goal is
a pattern that a class should match. A goal that no e-node of the class meets is remembered as the reason, and the
search goes on with the others, so that a match is near where most goals are met.

:mod:`eqsat.rules.turned_rules` matches patterns with patterns. Its places hold sets of operators instead of e-nodes, a
name means a place whatever is there, and a match that fails is of no interest. Only the order of operands is common to
the two, so one matcher with an interface for places, names and failures would be longer than its 30 lines there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.egraph.answer import is_number
from eqsat.egraph.query import trim
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.ops.properties import is_commutative
from eqsat.rules.ast import Match, Name, Number, Pattern, Rest, Wildcard, operands
from eqsat.rules.evaluation import TensorFacts
from eqsat.rules.expand import Clause
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

STEPS = 4_000
"""Goals that are tried at one place."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A goal that is not met.

    Attributes:
        pattern: What was required; None for an operand that must be absent.
        eclass: The class that does not match it; None where there is no operand.
        reader: The e-node that reads the operand, and its position; None for another root.
        bound: The class already bound to the name, if the pattern names a value twice.
        above: Whether the class matches a part of the pattern, but the node that should read it does not.
    """

    pattern: Pattern | None
    eclass: int | None
    reader: tuple[int, int] | None = None
    bound: int | None = None
    above: bool = False


@dataclass(frozen=True, slots=True)
class Partial:
    """A complete or partial match.

    Attributes:
        clause: The plain pattern.
        sites: For each operator that matched the e-node, its operands in the pattern's order, and its value's class.
        names: Class of each name; None for one that is absent.
        missed: The goals that were not met, the first of them first.
        met: Number of goals that were met.
    """

    clause: Clause
    sites: tuple[tuple[Match, int, tuple[int | None, ...], int], ...] = ()
    names: Mapping[str, int | None] | None = None
    missed: tuple[Miss, ...] = ()
    met: int = 0

    @property
    def nearness(self) -> tuple[int, int, int]:
        return len(self.sites), -len(self.missed), self.met


_Goal = tuple[Pattern | None, int | None, tuple[int, int] | None]
_ANY = -1
"""Placeholder for the class of a further root, which may match anywhere."""


class PartialMatcher:
    """Finds partial matches in one snapshot.

    Args:
        snapshot: The e-graph.
        facts: Of each class, with the number that all of its elements equal.
    """

    def __init__(self, snapshot: Snapshot, facts: Sequence[TensorFacts]) -> None:
        self.snapshot = snapshot
        self.facts = facts
        self.by_op: dict[OpKey, list[int]] = {}
        self._parts: dict[int, list[ENode]] = {}
        for n, node in enumerate(snapshot.nodes):
            if node.kind == "op":
                self.by_op.setdefault(node.op, []).append(n)
            elif node.kind == "part" and node.children[0] is not None:
                self._parts.setdefault(node.children[0], []).append(node)

    def occurs(self, clause: Clause) -> bool:
        """Whether each operator of a plain pattern has an e-node."""
        return all(m.ops[0] in self.by_op for m in walk(clause.roots, operands) if isinstance(m, Match))

    def places(self, match: Match) -> list[int]:
        """Classes that may match an operator of a pattern."""
        found: dict[int, None] = {}
        for n in self.by_op.get(match.ops[0], ()):
            node = self.snapshot.nodes[n]
            if not node.outputs:
                found.update({node.eclass: None} if not match.output else {})
            else:
                found.update(
                    (part.eclass, None) for part in self._parts.get(node.eclass, ()) if part.number == match.output
                )
        return list(found)

    def at(self, clause: Clause, eclass: int) -> list[Partial]:
        """The complete matches whose first root is a class; if there are none, the nearest partial match."""
        further: list[_Goal] = [(root, _ANY, None) for root in clause.roots[1:]]
        return self._search(clause, [(clause.roots[0], eclass, None), *further])

    def below(self, clause: Clause, part: Match, eclass: int) -> Partial | None:
        """The nearest match of a part of a pattern, without what reads it there."""
        found = max(self._search(clause, [(part, eclass, None)]), key=lambda p: p.nearness, default=None)
        if found is None or found.missed:
            return found
        above = next(m for m in walk(clause.roots, operands) if isinstance(m, Match) and part in m.args)
        return replace(found, missed=(Miss(above, eclass, above=True),))

    # ---- search -----------------------------------------------------------------------------------

    def _search(self, clause: Clause, goals: list[_Goal]) -> list[Partial]:
        whole: list[Partial] = []
        nearest: Partial | None = None
        waiting: list[tuple[tuple[_Goal, ...], Partial]] = [(tuple(goals), Partial(clause, names={}))]
        steps = 0
        while waiting and steps < STEPS:
            steps += 1
            left, state = waiting.pop()
            if not left:
                if not state.missed:
                    whole.append(state)
                elif nearest is None or state.nearness > nearest.nearness:
                    nearest = state
                continue
            if state.missed and whole:
                continue
            goal, rest = left[0], left[1:]
            met = list(self._meet(goal, state))
            if met:
                waiting += reversed([((*more, *rest), new) for more, new in met])
            else:
                pattern, eclass, reader = goal
                bound = (state.names or {}).get(pattern.name) if isinstance(pattern, Name) else None
                miss = Miss(pattern, None if eclass == _ANY else eclass, reader, bound)
                waiting.append((rest, replace(state, missed=(*state.missed, miss))))
        return whole or ([] if nearest is None else [nearest])

    def _meet(self, goal: _Goal, state: Partial) -> Iterator[tuple[tuple[_Goal, ...], Partial]]:
        pattern, eclass, _ = goal
        if isinstance(pattern, Match):
            for c in self.places(pattern) if eclass == _ANY else () if eclass is None else (eclass,):
                yield from self._operator(pattern, c, state)
        elif pattern is None:
            if eclass is None:
                yield (), replace(state, met=state.met + 1)
        elif isinstance(pattern, Name):
            bound = _bind(state.names or {}, pattern.name, eclass)
            if bound is not None:
                yield (), replace(state, names=bound, met=state.met + 1)
        elif isinstance(pattern, Wildcard) or (
            isinstance(pattern, Number) and eclass is not None and is_number(self.facts[eclass], pattern.value)
        ):
            yield (), replace(state, met=state.met + 1)

    def _operator(self, match: Match, eclass: int, state: Partial) -> Iterator[tuple[tuple[_Goal, ...], Partial]]:
        names = state.names or {}
        if match.bind is not None:
            bound = _bind(names, match.bind, eclass)
            if bound is None:
                return
            names = bound
        args = trim(match.args, state.clause.absent)
        rest = bool(args) and isinstance(args[-1], Rest)
        shared = next((n for m, n, _, _ in state.sites if m.node == match.node), None)
        again = next((c for m, _, _, c in state.sites if m is match), None)
        if again is not None:
            # A `let` that is used twice is one value.
            if again == eclass:
                yield (), replace(state, met=state.met + 1)
            return
        for n in self._candidates(match, eclass):
            node = self.snapshot.nodes[n]
            if shared is not None and shared != n and (node.outputs or self.snapshot.nodes[shared].outputs):
                continue
            if len(node.children) != len(args) and not (rest and len(node.children) >= len(args) - 1):
                continue
            for children in _orders(node):
                more: list[_Goal] = []
                taken: Mapping[str, int | None] | None = names
                for i, arg in enumerate(args):
                    if not isinstance(arg, Rest):
                        more.append((arg, children[i], (n, i)))
                        continue
                    for k, child in enumerate(children[i:]):
                        taken = None if taken is None else _bind(taken, f"{arg.name}...{k}", child)
                if taken is not None:
                    site = (match, n, children, eclass)
                    # Operators first: they say more about a name than the name itself.
                    yield tuple(more), replace(state, sites=(*state.sites, site), names=taken, met=state.met + 1)

    def _candidates(self, match: Match, eclass: int) -> Iterator[int]:
        snapshot = self.snapshot
        for n in snapshot.classes[eclass]:
            node = snapshot.nodes[n]
            if node.kind == "op" and node.op == match.ops[0] and not node.outputs and not match.output:
                yield n
            elif node.kind == "part" and node.number == match.output and node.children[0] is not None:
                holders = snapshot.classes[node.children[0]]
                yield from (
                    h for h in holders if snapshot.nodes[h].op == match.ops[0] and snapshot.nodes[h].kind == "op"
                )


def _bind(names: Mapping[str, int | None], name: str, eclass: int | None) -> Mapping[str, int | None] | None:
    if name in names:
        return names if names[name] == eclass else None
    return {**names, name: eclass}


def _orders(node: ENode) -> Iterator[tuple[int | None, ...]]:
    yield node.children
    if is_commutative(node.op) and len(node.children) == 2 and not node.outputs and len(set(node.children)) == 2:
        yield node.children[::-1]
