"""How e-nodes were derived from those of the input, found after the search.

A search stores only the parts of a match that rules read, because most matches never matter. The patterns of the rules
that made the wanted e-nodes are therefore found once more in the finished e-graph, this time with all of their
operators. Joined with the answers of the search, they give matches. A derivation is a set of matches in which each
starts from e-nodes of the input or from what the others make; the one with the fewest matches on its longest way is
taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.egraph.combinations import MOST_COMBINATIONS, most_matches
from eqsat.egraph.compile_rules import CompiledClause
from eqsat.egraph.language import COMMUTED, ORIGINAL
from eqsat.egraph.matched import MatchedNodes
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.egraph.template import Answer
from eqsat.egraph.union_steps import fewest_steps

MOST_PRUNED = 200
"""Matches of a derivation in which those that are not needed are looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class RuleApplication:
    """One application of a rule; e-nodes by their numbers in the snapshot.

    Attributes:
        clause: Clause of the rule; None for the step from an operator to one of its outputs.
        sites: E-nodes of the pattern.
        built: E-nodes of the right side.
        left, right: The matched e-node of each root, and the one equal to it.
        leaves: Classes that the pattern reads.
    """

    clause: CompiledClause | None
    sites: tuple[int, ...]
    built: tuple[int, ...]
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()


class Derivations:
    """The derivations of one e-graph.

    Args:
        saturation: A finished saturation.
        snapshot: The snapshot of it.
    """

    def __init__(self, saturation: Saturation, snapshot: Snapshot) -> None:
        self.saturation = saturation
        self.snapshot = snapshot
        to_int = saturation.engine.egraph.value_to_i64
        rows = saturation.engine.tables()["Const"].rows
        absent = next((row.output for row in rows if to_int(row.inputs[0]) == 0), None)
        self.nodes = MatchedNodes(snapshot, None if absent is None else snapshot.ids.get(absent))
        self.makers: dict[int, list[RuleApplication]] = {}
        self._clauses: dict[int, list[CompiledClause]] = {}
        for clause, _ in saturation.answered():
            self._clauses.setdefault(clause.number, []).append(clause)
        self._answers = {clause.key: served for clause, served in saturation.answered()}
        self._loaded: set[int] = set()
        self._unions: dict[int, list[tuple[int, RuleApplication]]] = {}

    # ---- derivations ------------------------------------------------------------------------------

    def of(self, wanted: Iterable[int]) -> dict[int, list[RuleApplication]]:
        """The matches that lead to each of these e-nodes, in an order in which they can be applied."""
        wanted = list(dict.fromkeys(wanted))
        best = self._best(self._reach(wanted))
        return {n: needed(_in_order(n, best), best) for n in wanted}

    def chain(self, start: int, goal: int) -> list[RuleApplication]:
        """The fewest matches that unite two e-nodes of one class; empty if none do."""
        self._load(n for n, s in enumerate(self.saturation.statistics, 2) if s.applied)
        return fewest_steps(start, lambda n: n == goal, lambda n: self._unions.get(n, ()))

    def _reach(self, wanted: Sequence[int]) -> dict[int, list[RuleApplication]]:
        """All e-nodes from which the wanted ones may have been made, with the matches that made them."""
        reach: dict[int, list[RuleApplication]] = {}
        todo = wanted
        while todo:
            self._load({self.snapshot.nodes[n].rule for n in todo})
            further: dict[int, None] = {}
            for n in todo:
                reach[n] = list(self._made_by(n))
                further.update((s, None) for match in reach[n] for s in match.sites)
            todo = [n for n in further if n not in reach]
        return reach

    def _made_by(self, n: int) -> Iterator[RuleApplication]:
        node = self.snapshot.nodes[n]
        if node.kind == "part" and node.children[0] is not None:
            for holder in self.snapshot.classes[node.children[0]]:
                yield RuleApplication(None, (holder,), (n,))
        elif node.rule not in (ORIGINAL, COMMUTED):
            yield from (m for m in self.makers.get(n, ()) if m.clause is not None and m.clause.number == node.rule)

    def _best(self, reach: dict[int, list[RuleApplication]]) -> dict[int, RuleApplication]:
        """For each e-node the match that makes it with the least height of its derivation."""
        height: dict[int, int] = {}
        best: dict[int, RuleApplication] = {}
        readers: dict[int, list[tuple[int, RuleApplication]]] = {}
        missing: dict[tuple[int, int], int] = {}
        waiting = [(0, n) for n, matches in reach.items() if not matches]
        for n, matches in reach.items():
            for match in matches:
                missing[n, id(match)] = len(match.sites)
                for site in match.sites:
                    readers.setdefault(site, []).append((n, match))
        by: dict[tuple[int, int], RuleApplication] = {}
        heapq.heapify(waiting)
        while waiting:
            level, n = heapq.heappop(waiting)
            if n in height:
                continue
            height[n] = level
            if (level, n) in by:
                best[n] = by[level, n]
            for made, match in readers.get(n, ()):
                missing[made, id(match)] -= 1
                if not missing[made, id(match)] and made not in height:
                    above = level + (match.clause is not None)
                    by.setdefault((above, made), match)
                    heapq.heappush(waiting, (above, made))
        return best

    # ---- matches ----------------------------------------------------------------------------------

    def _load(self, rules: Iterable[int]) -> None:
        """Finds all matches of rules by their numbers."""
        new = [n for n in dict.fromkeys(rules) if n in self._clauses and n not in self._loaded]
        self._loaded.update(new)
        engine = self.saturation.engine
        tables = engine.tables() if new else {}
        pairs = [(c, _recorded(c)) for n in new for c in self._clauses[n] if any(self._answers[c.key].values())]
        pairs = [
            (clause, past)
            for clause, past in pairs
            if len(clause.query.roots) == 1 or most_matches(clause.query.sites, tables) <= MOST_COMBINATIONS
        ]
        for _, past in pairs:
            # Several programs of one e-graph are explained each.
            if f"match_{past.key}" not in tables:
                engine.run_text(past.commands())
                engine.step(f"find_{past.key}")
        tables = engine.tables() if pairs else {}
        for clause, past in pairs:
            for match in self._matches(clause, past, tables[f"match_{past.key}"].rows):
                for n in match.built:
                    self.makers.setdefault(n, []).append(match)
                for left, right in zip(match.left, match.right, strict=False):
                    if left != right:
                        self._unions.setdefault(left, []).append((right, match))
                        self._unions.setdefault(right, []).append((left, match))

    def _matches(self, clause: CompiledClause, past: CompiledClause, rows: Iterable[Any]) -> Iterator[RuleApplication]:
        to_int, ids = self.saturation.engine.egraph.value_to_i64, self.snapshot.ids
        answers, values = self._answers[clause.key], past.variables
        names = [c.name for c in past.columns]
        for row in rows:
            inputs = row.inputs
            classes = {v: ids.get(c) for v, c in zip(values, inputs, strict=False)}
            numbers = dict(zip(names, map(to_int, inputs[len(values) :]), strict=True))
            answer = answers.get(tuple(numbers[c.name] for c in clause.columns))
            if answer is None:
                continue
            match = self._match(past, classes, numbers, answer)
            if match is not None:
                yield match

    def _match(
        self, clause: CompiledClause, classes: dict[str, int | None], numbers: dict[str, int], answer: Answer
    ) -> RuleApplication | None:
        found = {site.value: self.nodes.left(site, classes, numbers) for site in clause.query.sites}
        sites = [n for n in found.values() if n is not None]
        if len(sites) < len(found):
            return None
        left = [found.get(root) for root in clause.query.roots]
        if clause.layout is None:
            right = [self.nodes.composite(clause, classes, answer, k) for k in range(len(left))]
            built = [self._whole(n) for n in right]
        else:
            built = self.nodes.built(clause.layout, classes, answer)
            right = [
                self.nodes.right(clause.layout, operand, built, classes, n)
                for operand, n in zip(clause.layout.roots, left, strict=True)
            ]
        leaves = (classes.get(v) for v in clause.query.leaves)
        return RuleApplication(
            clause,
            tuple(dict.fromkeys(sites)),
            tuple(dict.fromkeys(n for n in built if n is not None)),
            tuple(-1 if n is None else n for n in left),
            tuple(-1 if n is None else n for n in right),
            tuple(c for c in leaves if c is not None and c != self.nodes.absent),
        )

    def _whole(self, n: int | None) -> int | None:
        """The composite of which an e-node is a result."""
        if n is None or self.snapshot.nodes[n].kind != "part":
            return n
        holder = self.snapshot.nodes[n].children[0]
        members = () if holder is None else self.snapshot.classes[holder]
        return next((m for m in members if self.snapshot.nodes[m].kind == "composite"), None)


def _recorded(clause: CompiledClause) -> CompiledClause:
    past = replace(clause, key=f"{clause.key}past_")
    past.record()
    return past


def _in_order(wanted: int, best: dict[int, RuleApplication]) -> list[RuleApplication]:
    done: dict[int, RuleApplication] = {}
    todo = [(wanted, False)]
    seen: set[int] = set()
    while todo:
        n, ready = todo.pop()
        match = best.get(n)
        if match is None or id(match) in done:
            continue
        if ready:
            done[id(match)] = match
        elif n not in seen:
            seen.add(n)
            todo += [(n, True), *((site, False) for site in match.sites)]
    return list(done.values())


def needed(matches: Sequence[RuleApplication], made: Collection[int]) -> list[RuleApplication]:
    """A derivation without redundant matches, whose e-nodes other matches also make.

    Args:
        matches: In an order in which they can be applied; the last one makes what is derived, and stays.
        made: E-nodes that matches have to make; all others are those of the input.
    """
    if not 1 < len(matches) <= MOST_PRUNED:
        return list(matches)
    given = {site for match in matches for site in match.sites if site not in made}
    *kept, last = matches
    for match in matches[-2::-1]:
        order = _applied([m for m in kept if m is not match], given, last.sites)
        if order is not None:
            kept = order
    return [*kept, last]


def _applied(
    matches: Sequence[RuleApplication], given: set[int], wanted: Collection[int]
) -> list[RuleApplication] | None:
    """Matches in an order in which they can be applied, until they have made some e-nodes; None if they cannot."""
    there, order, waiting = set(given), [], list(matches)
    while not there.issuperset(wanted):
        ready = [m for m in waiting if there.issuperset(m.sites)]
        if not ready:
            return None
        for match in ready:
            there.update(match.built)
        order += ready
        waiting = [m for m in waiting if m not in ready]
    return order
