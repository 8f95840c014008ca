"""Rows for implications between facts, added where a solution violates them.

The relaxation tends to split a class between ways that meet again further down, and to pay only once, and only for a
part, for the facts below. Four kinds of rows prevent that. For a fact and the ways to derive it:

- *needs*: the ways all of which need another fact are taken only if that fact holds. The rows per (class, child
  class) of ``eqsat.extract.milp.formulation`` are the nearest case;
- *needs within the support*: the same if only columns above zero could be used; columns at zero by which a derivation
  could avoid the other fact are added on the right side. A way without a finite derivation within the support
  needs everything, so this includes acyclicity;
- *cuts*: a set of columns of which every derivation takes at least one, put together from the inputs upwards;
- *landmarks*: such sets found by maximum flow (``eqsat.extract.milp.landmarks``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise

import numpy as np

from eqsat.extract.milp.fact_dominators import NOTHING, AndOrGraph, Fact, union
from eqsat.extract.milp.highs import Rows
from eqsat.extract.milp.landmarks import Landmarks

LEAST_VIOLATION = 1e-5
PER_FACT = 10
WIDEST = 40
NO_FACT = -1

Sets = list[frozenset[int] | None]


class _Sums:
    """Sums of groups of columns."""

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self._count = len(groups)
        self._group = np.repeat(np.arange(len(groups)), np.array([len(group) for group in groups], dtype=np.int64))
        self._columns = np.array([column for group in groups for column in group], dtype=np.int64)

    def of(self, x: np.ndarray) -> list[float]:
        """Per group."""
        sums: list[float] = np.bincount(self._group, x[self._columns], self._count).tolist()
        return sums


class Demands:
    """How much more of a fact the options of another one use than there is of it, for all pairs at once.

    Args:
        graph: The facts.
        below: Per fact and option the facts that it needs.
    """

    def __init__(self, graph: AndOrGraph, below: Callable[[int, int], frozenset[int]]) -> None:
        pairs: list[int] = []
        lengths: list[int] = []
        for number, fact in enumerate(graph.facts):
            for option in range(len(fact.options)):
                others = below(number, option) - {number}
                pairs += [number * len(graph.facts) + other for other in others]
                lengths.append(len(others))
        found, self._pair = np.unique(np.array(pairs, dtype=np.int64), return_inverse=True)
        self._fact, self._other = np.divmod(found, max(1, len(graph.facts)))
        self._option = np.repeat(np.arange(len(lengths)), np.array(lengths, dtype=np.int64))

    def excess(self, activity: np.ndarray, weights: np.ndarray) -> list[tuple[int, dict[int, float]]]:
        """The facts that use more than there is, and of which facts they do, by how much.

        Args:
            activity: Per fact.
            weights: Per option, over all facts.
        """
        used = np.where(weights > LEAST_VIOLATION, weights, 0.0)
        excess = np.bincount(self._pair, used[self._option], len(self._fact)) - activity[self._other]
        violated = np.flatnonzero((excess > LEAST_VIOLATION) & (activity[self._fact] > LEAST_VIOLATION))
        found: dict[int, dict[int, float]] = defaultdict(dict)
        columns = (array[violated].tolist() for array in (self._fact, self._other, excess))
        for fact, other, value in zip(*columns, strict=True):
            found[fact][other] = value
        return list(found.items())


class Implications:
    """Finds violated rows of one graph of facts.

    Args:
        graph: The facts.
        cyclic: Whether facts wait for each other in large groups: then rows within the support, which know of that,
            come first. Elsewhere those rows are many and weak, and landmarks close the gap in a third of the rounds.
    """

    def __init__(self, graph: AndOrGraph, cyclic: bool = False) -> None:
        self.graph = graph
        further = (self._support_rows, self._cut_rows, self._landmark_rows)
        self._further_kinds = further if cyclic else further[::-1]
        self._below_option: dict[tuple[int, int], frozenset[int]] = {}
        options = [option for fact in graph.facts for option in fact.options]
        self._activity = _Sums([fact.columns for fact in graph.facts])
        self._weights = _Sums([option.columns for option in options])
        ends = [0, *accumulate(len(fact.options) for fact in graph.facts)]
        self._own = [slice(first, end) for first, end in pairwise(ends)]
        self._needs: Sets = [fact.needs for fact in graph.facts]
        self._demands = Demands(graph, self._below)
        self._landmarks = Landmarks(graph)

    def rows(self, x: np.ndarray, thorough: bool = False) -> Rows:
        """Rows that a point violates: of the first kind for which there are any, or, if thorough, of all kinds."""
        activity = self._activity.of(x)
        all_weights = self._weights.of(x)
        weights = [all_weights[own] for own in self._own]
        found = Rows()
        self._need_rows(activity, all_weights, found)
        for find in self._further_kinds:
            if found.count and not thorough:
                break
            find(activity, weights, found)
        return found

    def _below(self, fact: int, option: int) -> frozenset[int]:
        """The facts that one way to derive a fact needs."""
        found = self._below_option.get((fact, option))
        if found is None:
            facts = self.graph.facts
            found = NOTHING.union(*(facts[other].needs for other in facts[fact].options[option].reads))
            self._below_option[fact, option] = found
        return found

    def _need_rows(self, activity: list[float], weights: list[float], rows: Rows) -> None:
        facts = self.graph.facts
        for number, excess in self._demands.excess(np.array(activity), np.array(weights)):
            for other in _nearest(excess, self._needs):
                left = [o for o in range(len(facts[number].options)) if other in self._below(number, o)]
                _add(rows, facts[number], left, facts[other].columns)

    def _support_rows(self, activity: list[float], weights: list[list[float]], rows: Rows) -> None:
        facts = self.graph.facts
        needs = self._support_needs(activity, weights)
        for number, fact in enumerate(facts):
            if activity[number] <= LEAST_VIOLATION:
                continue
            below: Sets = []
            demand: dict[int, float] = defaultdict(float)
            groundless = 0.0
            for option, weight in zip(fact.options, weights[number], strict=True):
                found: frozenset[int] | None = NOTHING
                if weight > LEAST_VIOLATION:
                    found = union([needs[other] for other in option.reads])
                    if found is None:
                        groundless += weight
                    else:
                        for other in found:
                            demand[other] += weight
                below.append(found)
            excess = {
                other: wanted + groundless - activity[other] for other, wanted in demand.items() if other != number
            }
            if groundless:
                excess[NO_FACT] = groundless
            for other in _nearest(excess, needs):
                left = [o for o, found in enumerate(below) if found is None or other in found]
                ways = self._other_ways(number, left, other, weights, needs)
                right = [facts[f].options[o].columns for f, o in sorted(ways)]
                if other != NO_FACT:
                    right.append(facts[other].columns)
                gained = sum(weights[number][o] for o in left) - sum(weights[f][o] for f, o in ways)
                if len(ways) <= WIDEST and gained > LEAST_VIOLATION + (activity[other] if other != NO_FACT else 0.0):
                    _add(rows, fact, left, [column for columns in right for column in columns])

    def _support_needs(self, activity: list[float], weights: list[list[float]]) -> Sets:
        """Needs if only columns above zero can be used; without facts that hold anyway, and from those on upwards.

        None marks facts that cannot be derived in this way, because they wait for each other.
        """
        facts = self.graph.facts
        known: Sets = [NOTHING if a <= LEAST_VIOLATION or a >= 1 - LEAST_VIOLATION else None for a in activity]
        heap = [number for number, found in enumerate(known) if found is None]
        open_facts = set(heap)
        queued = set(heap)
        while heap:
            number = heappop(heap)
            queued.discard(number)
            common: frozenset[int] | None = None
            for option, weight in zip(facts[number].options, weights[number], strict=True):
                if weight > LEAST_VIOLATION:
                    below = union([known[other] for other in option.reads])
                    if below is not None:
                        common = below if common is None else common & below
            if common is None:
                continue
            common = common.union(other for other in facts[number].implied if other in open_facts)
            if common != known[number]:
                known[number] = common
                for reader in self.graph.readers[number]:
                    if reader in open_facts and reader not in queued:
                        queued.add(reader)
                        heappush(heap, reader)
        return known

    def _other_ways(
        self, number: int, left: list[int], other: int, weights: list[list[float]], needs: Sets
    ) -> set[tuple[int, int]]:
        """Unused options at which a derivation could leave the used ones before it comes to a fact they all need.

        One input of each used option is followed, one that needs the fact. A derivation that takes none of these
        options would have to be infinite, or reaches the fact.
        """
        facts = self.graph.facts
        ways: set[tuple[int, int]] = set()
        seen = {other}
        todo = [_witness(facts[number].options[o].reads, other, needs) for o in left]
        while todo:
            fact = todo.pop()
            if fact in seen:
                continue
            seen.add(fact)
            if other in facts[fact].implied:
                continue
            for o, option in enumerate(facts[fact].options):
                if weights[fact][o] > LEAST_VIOLATION:
                    todo.append(_witness(option.reads, other, needs))
                elif other not in self._below(fact, o):
                    ways.add((fact, o))
        return ways

    def _cut_rows(self, activity: list[float], weights: list[list[float]], rows: Rows) -> None:
        facts = self.graph.facts
        # A cut of options, by (fact, option), and its weight; (fact, -1) stands for the fact's own columns.
        cuts: list[frozenset[tuple[int, int]]] = [frozenset(((number, -1),)) for number in range(len(facts))]
        weight_of = list(activity)
        for number, fact in enumerate(facts):
            if activity[number] <= LEAST_VIOLATION or not fact.options:
                continue
            parts = []
            for o, option in enumerate(fact.options):
                least = min(option.reads, key=lambda other: (weight_of[other], len(cuts[other])), default=-1)
                # At equal weight the deeper cut, which other ways may share.
                deeper = least >= 0 and weight_of[least] <= weights[number][o] + LEAST_VIOLATION
                parts.append(cuts[least] if deeper else frozenset(((number, o),)))
            cut = frozenset().union(*parts)
            if len(cut) > WIDEST:
                continue
            weight = sum(activity[f] if o < 0 else weights[f][o] for f, o in cut)
            if weight < activity[number] - LEAST_VIOLATION:
                columns = [facts[f].columns if o < 0 else facts[f].options[o].columns for f, o in sorted(cut)]
                rows_of = [column for group in columns for column in group]
                rows.add_implication(fact.columns, rows_of)
            elif weight <= activity[number] + LEAST_VIOLATION:
                cuts[number], weight_of[number] = cut, weight

    def _landmark_rows(self, activity: list[float], weights: list[list[float]], rows: Rows) -> None:
        self._landmarks.add_rows(activity, weights, rows)


def _nearest(excess: dict[int, float], needs: Sets) -> list[int]:
    """The most violated needs, without those that come after another one and are no longer violated."""
    violated = {other: value for other, value in excess.items() if value > LEAST_VIOLATION}

    def follows_nearer(other: int) -> bool:
        for near, value in violated.items():
            if near == other or NO_FACT in (near, other) or value < violated[other] - 1e-9:
                continue
            above, below = needs[near], needs[other]
            mutual = below is not None and near in below
            if above is not None and other in above and not (mutual and near > other):
                return True
        return False

    ranked = sorted(violated, key=lambda other: (-violated[other], other))
    return [other for other in ranked if not follows_nearer(other)][:PER_FACT]


def _witness(reads: list[int], other: int, needs: Sets) -> int:
    """An input that needs the fact, the one with the least below it."""

    def least(fact: int) -> tuple[bool, int]:
        below = needs[fact]
        return below is None, len(below or ())

    return min((f for f in reads if f == other or (below := needs[f]) is None or other in below), key=least)


def _add(rows: Rows, fact: Fact, options: list[int], right: Iterable[int]) -> None:
    """Activity of some options at most the sum of some columns."""
    left = [column for o in options for column in fact.options[o].columns]
    rows.add_implication(left, list(right))
