"""Rows that keep programs acyclic, inside strongly connected components of classes.

A class of a set C is computed only if some e-node of C reads nothing in C (loop formulas of answer set programming, Lin
and Zhao 2004). Here C is a cycle of classes. The cycles of two classes are rows from the start, unless they are too
many: in e-graphs with x = f(g(x)) they tighten the relaxation most. Longer cycles are added when a point violates them.
Give each arc from a class to a class that its e-nodes read the share of the class that does *not* read it as its
length: a cycle that is shorter than the activity of one of its classes is violated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import numpy as np

from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.highs import Rows

LEAST_VIOLATION = 1e-5
MOST_PAIRS = 20_000
PER_CYCLE = 2

Arcs = dict[int, list[tuple[int, float]]]


class Acyclicity:
    """Rows of one formulation."""

    def __init__(self, formulation: Formulation) -> None:
        self.formulation = formulation

    def pair_rows(self) -> Rows:
        """For all pairs of classes that can read each other."""
        formulation = self.formulation
        children = formulation.problem.children
        options = formulation.dominators.options
        rows = Rows()
        for ring in formulation.dominators.rings:
            inside = set(ring)
            reads = {c: {k for n in options[c] for k in children[n] if k in inside} for c in ring}
            for c in ring:
                for k in sorted(reads[c]):
                    if c < k and c in reads[k]:
                        for klass in (c, k):
                            self._add(rows, klass, {c, k})
                if rows.count > 2 * MOST_PAIRS:
                    return rows
        return rows

    def cycle_rows(self, x: np.ndarray) -> Rows:
        """Cutting planes for cycles that a point violates; a 0/1 point without any is acyclic."""
        formulation = self.formulation
        dominators = formulation.dominators
        rows = Rows()
        if not dominators.rings:
            return rows
        padded = np.append(x, 0.0)
        nodes = padded[formulation.x].sum(axis=1)
        activity = padded[formulation.made].sum(axis=1)
        found: dict[frozenset[int], None] = {}
        for number, ring in enumerate(dominators.rings):
            arcs = self._arcs(number, ring, nodes, activity)
            for start in arcs:
                cycle = _shortest_cycle(arcs, start, activity[start] - LEAST_VIOLATION)
                if cycle is not None:
                    found[cycle] = None
        children = formulation.problem.children
        for cycle in found:
            support = sum(nodes[n] for c in cycle for n in dominators.options[c] if cycle.isdisjoint(children[n]))
            for c in sorted(cycle, key=lambda c: (-activity[c], c))[:PER_CYCLE]:
                if activity[c] > support + LEAST_VIOLATION:
                    self._add(rows, c, cycle)
        return rows

    def _arcs(self, number: int, ring: list[int], nodes: np.ndarray, activity: np.ndarray) -> Arcs:
        dominators = self.formulation.dominators
        children = self.formulation.problem.children
        arcs: Arcs = {}
        for c in ring:
            if activity[c] <= LEAST_VIOLATION:
                continue
            share: dict[int, float] = defaultdict(float)
            for n in dominators.options[c]:
                if nodes[n] > LEAST_VIOLATION:
                    for k in children[n]:
                        if dominators.ring_of[k] == number:
                            share[k] += float(nodes[n])
            if share:
                arcs[c] = [(k, max(0.0, float(activity[c]) - value)) for k, value in share.items()]
        return arcs

    def unread_rows(self, classes: Iterable[int]) -> Rows:
        """Rows that let classes be computed only for an e-node that reads them.

        A relaxation in which a class costs nothing may compute the class without need, and pretend that it connects the
        parts of a region.
        """
        formulation = self.formulation
        rows = Rows()
        for c in classes:
            if c in formulation.problem.roots:
                continue
            readers = formulation.edge_node[formulation.edge_child == c]
            _at_most(rows, formulation.made[c], formulation.x[readers].ravel())
        return rows

    def _add(self, rows: Rows, klass: int, cycle: Iterable[int]) -> None:
        formulation = self.formulation
        children = formulation.problem.children
        inside = frozenset(cycle)
        support = [
            n for c in sorted(inside) for n in formulation.dominators.options[c] if inside.isdisjoint(children[n])
        ]
        _at_most(rows, formulation.made[klass], formulation.x[np.array(support, dtype=np.int64)].ravel())


def _at_most(rows: Rows, left: np.ndarray, right: np.ndarray) -> None:
    rows.add_implication(left[left >= 0].tolist(), right[right >= 0].tolist())


def _shortest_cycle(arcs: Arcs, start: int, limit: float) -> frozenset[int] | None:
    """The classes of the shortest cycle through one, if it is shorter than the limit (Dijkstra).

    networkx finds shortest paths between two nodes, in a graph that would have to be built from each solution.
    """
    heap = [(length, k, start) for k, length in arcs[start] if length < limit]
    heapify(heap)
    came: dict[int, int] = {}
    while heap:
        length, here, before = heappop(heap)
        if here in came:
            continue
        came[here] = before
        if here == start:
            cycle = {start}
            while before != start:
                cycle.add(before)
                before = came[before]
            return frozenset(cycle)
        for k, more in arcs.get(here, ()):
            if k not in came and length + more < limit:
                heappush(heap, (length + more, k, here))
    return None
