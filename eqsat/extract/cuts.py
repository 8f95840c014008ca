"""Rows of the extraction program that are added only where a solution violates them.

*Needs*: the ways to derive a fact all of which need another fact are taken only if that other fact holds. The rows per
(class, child class) are the nearest case; where alternatives part and meet again below, only the general row stops
the relaxation from halving what lies below.

*Unfounded sets*: a class of a set U is computed only if some e-node of U reads nothing in U (the loop formulas of answer set
programming, Lin and Zhao 2004). For 0/1 points this is acyclicity; for fractional ones sets are guessed by
looking only at e-nodes above a threshold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush

import numpy as np

from eqsat.extract.formulation import Formulation
from eqsat.extract.highs import Rows
from eqsat.extract.needs import Needs

LEAST_VIOLATION = 1e-5
THRESHOLDS = (1e-6, 0.1, 0.25, 0.5, 0.7)
PER_FACT = 10
WIDEST = 40
NOTHING: frozenset[int] = frozenset()
NO_FACT = -1


def _union(sets: list[frozenset[int] | None]) -> frozenset[int] | None:
    """Union; None stands for everything."""
    known = [found for found in sets if found is not None]
    return NOTHING.union(*known) if len(known) == len(sets) else None


class Separator:
    """Finds violated rows for points of one formulation, each row at most once."""

    def __init__(self, formulation: Formulation) -> None:
        self.formulation = formulation
        self.needs = Needs(formulation)
        self._option_needs: dict[tuple[int, int], frozenset[int]] = {}
        self._seen: set[tuple[int, tuple[int, ...]]] = set()

    def _below(self, fact: int, option: int) -> frozenset[int]:
        """What one way to derive a fact needs."""
        found = self._option_needs.get((fact, option))
        if found is None:
            facts = self.needs.facts
            found = frozenset().union(*(facts[other].needs for other in facts[fact].options[option][1]))
            self._option_needs[fact, option] = found
        return found

    def need_rows(self, x: np.ndarray) -> Rows:
        """Rows of the first kind that a point violates, the nearest needs first."""
        facts = self.needs.facts
        values = x.tolist()
        activity = [sum(values[column] for column in fact.columns) for fact in facts]
        rows = Rows()
        for number, fact in enumerate(facts):
            if activity[number] <= LEAST_VIOLATION:
                continue
            demand: dict[int, float] = defaultdict(float)
            for option, (column, _) in enumerate(fact.options):
                if values[column] > LEAST_VIOLATION:
                    for other in self._below(number, option):
                        demand[other] += values[column]
            excess = {
                other: wanted - activity[other] for other, wanted in demand.items()
                if wanted - activity[other] > LEAST_VIOLATION and other != number
            }
            found = 0
            for other in sorted(excess, key=lambda other: (-excess[other], other)):
                # A violated need that itself needs this one gives a row that is no weaker.
                if any(other in facts[near].needs and near != other and excess[near] >= excess[other] - 1e-9
                       and not (near in facts[other].needs and near > other) for near in excess):
                    continue
                columns = [c for o, (c, _) in enumerate(fact.options) if other in self._below(number, o)]
                rows.add(columns + facts[other].columns,
                         np.concatenate([np.ones(len(columns)), -np.ones(len(facts[other].columns))]), -np.inf, 0.0)
                found += 1
                if found == PER_FACT:
                    break
        return rows

    def support_rows(self, x: np.ndarray) -> Rows:
        """Rows of the second kind that a point violates: needs among the derivations that the point uses."""
        facts = self.needs.facts
        values = x.tolist()
        activity = [sum(values[column] for column in fact.columns) for fact in facts]
        needs = self._support_needs(values, activity)
        rows = Rows()
        for number, fact in enumerate(facts):
            if activity[number] <= LEAST_VIOLATION:
                continue
            below: list[frozenset[int] | None] = []
            demand: dict[int, float] = defaultdict(float)
            groundless = 0.0
            for column, needed in fact.options:
                found: frozenset[int] | None = NOTHING
                if values[column] > LEAST_VIOLATION:
                    found = _union([needs[other] for other in needed])
                    if found is None:
                        groundless += values[column]
                    else:
                        for other in found:
                            demand[other] += values[column]
                below.append(found)
            excess = {
                other: wanted + groundless - activity[other] for other, wanted in demand.items()
                if wanted + groundless - activity[other] > LEAST_VIOLATION and other != number
            }
            if groundless > LEAST_VIOLATION:
                excess[NO_FACT] = groundless
            found_rows = 0
            for other in sorted(excess, key=lambda other: (-excess[other], other)):
                if any(self._nearer(near, other, excess, needs) for near in excess):
                    continue
                options = [o for o, found in enumerate(below) if found is None or other in found]
                ways = self._other_ways(number, options, other, values, needs)
                if len(ways) > WIDEST:
                    continue
                left = [fact.options[o][0] for o in options]
                right = sorted(ways.union(facts[other].columns if other != NO_FACT else ()))
                if sum(values[c] for c in left) - sum(values[c] for c in right) <= LEAST_VIOLATION:
                    continue
                rows.add(left + right, np.concatenate([np.ones(len(left)), -np.ones(len(right))]), -np.inf, 0.0)
                found_rows += 1
                if found_rows == PER_FACT:
                    break
        return rows

    def _nearer(self, near: int, other: int, excess: dict[int, float], needs: list[frozenset[int] | None]) -> bool:
        """Whether a violated need that itself needs another one gives a row that is no weaker."""
        if NO_FACT in (near, other) or near == other or excess[near] < excess[other] - 1e-9:
            return False
        above, below = needs[near], needs[other]
        if above is None or other not in above:
            return False
        return not (below is not None and near in below and near > other)

    def _support_needs(self, values: list[float], activity: list[float]) -> list[frozenset[int] | None]:
        """Needs if only columns above zero can be used; without facts that hold anyway, and from those on upwards.

        None marks facts that cannot be derived so at all, since they wait for each other.
        """
        facts = self.needs.facts
        known: list[frozenset[int] | None] = [
            NOTHING if a <= LEAST_VIOLATION or a >= 1 - LEAST_VIOLATION else None for a in activity
        ]
        heap = [number for number, found in enumerate(known) if found is None]
        open_facts = set(heap)
        queued = set(heap)
        while heap:
            number = heappop(heap)
            queued.discard(number)
            common: frozenset[int] | None = None
            for column, needed in facts[number].options:
                if values[column] > LEAST_VIOLATION:
                    below = _union([known[other] for other in needed])
                    if below is not None:
                        common = below if common is None else common & below
            if common is None:
                continue
            common = common.union(other for other in facts[number].implied if other in open_facts)
            if common != known[number]:
                known[number] = common
                for reader in self.needs.readers[number]:
                    if reader in open_facts and reader not in queued:
                        queued.add(reader)
                        heappush(heap, reader)
        return known

    def _other_ways(self, number: int, options: list[int], other: int, values: list[float],
                    needs: list[frozenset[int] | None]) -> set[int]:
        """Unused columns at which a derivation could leave the used ones before it comes to a fact they all need.

        One input of each used option is followed, one that needs the fact. A derivation that takes none of these
        columns goes on for ever, which it cannot, or comes to the fact.
        """
        facts = self.needs.facts
        ways: set[int] = set()
        seen = {other}
        todo = [self._witness(facts[number].options[o][1], other, needs) for o in options]
        while todo:
            fact = todo.pop()
            if fact in seen:
                continue
            seen.add(fact)
            if other in facts[fact].implied:
                continue
            for option, (column, needed) in enumerate(facts[fact].options):
                if values[column] > LEAST_VIOLATION:
                    todo.append(self._witness(needed, other, needs))
                elif other not in self._below(fact, option):
                    ways.add(column)
        return ways

    def _witness(self, needed: list[int], other: int, needs: list[frozenset[int] | None]) -> int:
        """An input that needs the fact, the one with the least below it."""

        def least(fact: int) -> tuple[bool, int]:
            below = needs[fact]
            return below is None, len(below or ())

        return min((f for f in needed if f == other or (below := needs[f]) is None or other in below), key=least)

    def shared_rows(self, x: np.ndarray) -> Rows:
        """Rows of the second kind that a point violates, found from the inputs upwards."""
        facts = self.needs.facts
        values = x.tolist()
        cuts: list[frozenset[int]] = [frozenset(fact.columns) for fact in facts]
        weights = [sum(values[column] for column in fact.columns) for fact in facts]
        rows = Rows()
        for number, fact in enumerate(facts):
            if weights[number] <= LEAST_VIOLATION or not fact.options:
                continue
            parts = []
            for column, needed in fact.options:
                least = min(needed, key=lambda other: (weights[other], len(cuts[other])), default=-1)
                # At equal weight the deeper cut, which other ways may share.
                deeper = least >= 0 and weights[least] <= values[column] + LEAST_VIOLATION
                parts.append(cuts[least] if deeper else frozenset((column,)))
            cut = frozenset().union(*parts)
            if len(cut) > WIDEST:
                continue
            weight = sum(values[column] for column in cut)
            if weight < weights[number] - LEAST_VIOLATION:
                columns = sorted(cut)
                rows.add(fact.columns + columns,
                         np.concatenate([np.ones(len(fact.columns)), -np.ones(len(columns))]), -np.inf, 0.0)
            elif weight <= weights[number] + LEAST_VIOLATION:
                cuts[number], weights[number] = cut, weight
        return rows

    def unfounded_rows(self, x: np.ndarray) -> Rows:
        """Rows of the second kind that a point violates."""
        formulation = self.formulation
        dominators = formulation.dominators
        rows = Rows()
        if not dominators.rings:
            return rows
        padded = np.append(x, 0.0)
        nodes = padded[formulation.x].sum(axis=1)
        activity = padded[formulation.made].sum(axis=1)
        children = formulation.problem.children
        for threshold in THRESHOLDS:
            for ring in dominators.rings:
                supported = self._supported(ring, nodes, threshold)
                orphans = {c for c in ring if activity[c] > max(threshold, LEAST_VIOLATION) and c not in supported}
                for c in sorted(orphans):
                    group = [c]
                    inside = {c}
                    for k in group:
                        for n in dominators.options[k]:
                            if nodes[n] > threshold:
                                new = [j for j in children[n] if j in orphans and j not in inside]
                                inside.update(new)
                                group += new
                    self._add_unfounded_row(rows, c, inside, nodes, activity)
        return rows

    def unread_rows(self, classes: Iterable[int]) -> Rows:
        """Rows that let classes be computed only for an e-node that reads them.

        A relaxation that pays nothing for a class may compute it to no end, and pretend that it holds a region together.
        """
        formulation = self.formulation
        rows = Rows()
        for c in classes:
            readers = formulation.edge_node[formulation.edge_child == c]
            right = formulation.x[readers].ravel()
            left = formulation.made[c]
            left, right = left[left >= 0], right[right >= 0]
            rows.add(np.concatenate([left, right]), np.concatenate([np.ones(len(left)), -np.ones(len(right))]),
                     -np.inf, 0.0)
        return rows

    def _supported(self, ring: list[int], nodes: np.ndarray, threshold: float) -> set[int]:
        """Classes of a component that can be derived from e-nodes above the threshold, given all outside it."""
        formulation = self.formulation
        children = formulation.problem.children
        members = set(ring)
        waiting: dict[int, int] = {}
        readers: dict[int, list[int]] = defaultdict(list)
        supported: set[int] = set()
        todo = []
        for c in ring:
            for n in formulation.dominators.options[c]:
                if nodes[n] > threshold:
                    inner = [k for k in children[n] if k in members]
                    waiting[n] = len(inner)
                    for k in inner:
                        readers[k].append(n)
                    if not inner and c not in supported:
                        supported.add(c)
                        todo.append(c)
        klass = formulation.klass
        while todo:
            for n in readers[todo.pop()]:
                waiting[n] -= 1
                c = int(klass[n])
                if not waiting[n] and c not in supported:
                    supported.add(c)
                    todo.append(c)
        return supported

    def _add_unfounded_row(self, rows: Rows, c: int, inside: set[int], nodes: np.ndarray, activity: np.ndarray) -> None:
        formulation = self.formulation
        children = formulation.problem.children
        support = [n for k in sorted(inside) for n in formulation.dominators.options[k]
                   if inside.isdisjoint(children[n])]
        key = (c, tuple(sorted(inside)))
        if activity[c] - nodes[support].sum() <= LEAST_VIOLATION or key in self._seen:
            return
        self._seen.add(key)
        left = formulation.made[c]
        right = formulation.x[support].ravel() if support else np.zeros(0, dtype=np.int64)
        left, right = left[left >= 0], right[right >= 0]
        rows.add(np.concatenate([left, right]), np.concatenate([np.ones(len(left)), -np.ones(len(right))]),
                 -np.inf, 0.0)
