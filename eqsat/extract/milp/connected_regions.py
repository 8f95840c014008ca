"""Rows that count connected pieces: a region is launched once for all e-nodes that read each other inside of it.

A region is connected by readings, so the regions of a zone number at least its classes on the target less the readings
of a spanning forest of the regions. Each reading that can lie inside a region has a column: whether the forest uses it.
Two families of rows, added where a solution violates them, say what a forest is (Magnanti and Wolsey 1995) and that
its trees are convex (Chopra and Rao 1993, as in ``eqsat.extract.regions.multicut``):

- among the classes of a set that are on the target, there are fewer forest edges than classes;
- if v reads u through a class w in every program, and w is off the target, then no tree contains both u and v.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import numpy as np

from eqsat.extract.graph import DisjointSets, components
from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.highs import Rows
from eqsat.extract.milp.zones import Zones
from eqsat.extract.problem import Choice
from eqsat.extract.program_cost import HOST
from eqsat.extract.reduce.class_dominators import members
from eqsat.extract.regions.stages import Staging

LEAST_VIOLATION = 1e-3
PRESENT = 1e-6

Move = tuple[int, float, tuple[int, ...]]
"""The end of a way, its length, and the columns whose sum is 1 less than the length."""


class Joins:
    """The readings inside regions, for one formulation and its zones.

    Attributes:
        active: Whether the rows that connect the columns to the counts of regions are part of the program.
    """

    def __init__(self, formulation: Formulation, zones: Zones) -> None:
        self.formulation = formulation
        self.zones = zones
        self.active = False
        self._nodes: list[list[int]] = []
        self._ends: list[tuple[int, int]] = []
        self._zone: list[int] = []
        index: dict[tuple[int, int, int], int] = {}
        for number, zone in enumerate(zones.all):
            for klass in zone.classes:
                for node in formulation.dominators.options[klass]:
                    if formulation.x[node, zone.target] < 0:
                        continue
                    for child in zones.touching(zone.target, node):
                        if child == klass:
                            continue
                        key = number, klass, child
                        if key not in index:
                            index[key] = len(self._ends)
                            self._ends.append((klass, child))
                            self._zone.append(number)
                            self._nodes.append([])
                        self._nodes[index[key]].append(node)
        self._index = index
        self.column = formulation.new(np.zeros(len(self._ends)))
        self._edges: list[list[int]] = [[] for _ in zones.all]
        for edge, number in enumerate(self._zone):
            self._edges[number].append(edge)
        self._above: list[list[int]] | None = None
        self._reading: dict[tuple[int, int], list[int]] | None = None

    def first_rows(self) -> Rows:
        """The rows that each solution needs; from now on the columns count."""
        self.active = True
        formulation = self.formulation
        rows = Rows()
        for edge, (_, child) in enumerate(self._ends):
            target = self.zones.all[self._zone[edge]].target
            column = int(self.column[edge])
            reading = [int(formulation.x[node, target]) for node in self._nodes[edge]]
            rows.add_implication([column], reading)
            rows.add_implication([column], [int(formulation.made[child, target])])
        for zone, edges in zip(self.zones.all, self._edges, strict=True):
            made = formulation.made[zone.classes, zone.target].tolist()
            columns = [zone.column, *self.column[edges].tolist(), *made]
            rows.add(columns, [1.0] * (1 + len(edges)) + [-1.0] * len(made), 0.0, np.inf)
        return rows

    def rows(self, x: np.ndarray) -> Rows:
        """Rows that a point violates."""
        rows = Rows()
        if self.active:
            for number in range(len(self.zones.all)):
                self._add_cycle_rows(number, x, rows)
            self._add_convexity_rows(x, rows)
        return rows

    def _add_cycle_rows(self, number: int, x: np.ndarray, rows: Rows) -> None:
        """Sets of classes with more forest edges than a tree has: knots of the support, and what peeling leaves."""
        made = self.formulation.made[:, self.zones.all[number].target]
        edges = [edge for edge in self._edges[number] if x[self.column[edge]] > PRESENT]
        for group in _blocks([self._ends[edge] for edge in edges]):
            kept = {c for i in group for c in self._ends[edges[i]]}
            inner = {edges[i] for i in group}
            while len(kept) > 2:
                weight = dict.fromkeys(kept, 0.0)
                total = 0.0
                for edge in inner:
                    value = float(x[self.column[edge]])
                    total += value
                    for end in self._ends[edge]:
                        weight[end] += value
                top = max(sorted(kept), key=lambda c: x[made[c]])
                excess = total - sum(float(x[made[c]]) for c in kept) + float(x[made[top]])
                if excess > LEAST_VIOLATION:
                    others = sorted(kept - {top})
                    columns = [int(self.column[edge]) for edge in sorted(inner)]
                    rows.add_implication(columns, [int(made[c]) for c in others])
                    break
                loosest = min(sorted(kept), key=lambda c: weight[c] - float(x[made[c]]))
                if weight[loosest] >= float(x[made[loosest]]):
                    break
                kept.discard(loosest)
                inner = {edge for edge in inner if loosest not in self._ends[edge]}

    def _add_convexity_rows(self, x: np.ndarray, rows: Rows) -> None:
        """For each class off a target the cheapest way back to it, along readings upwards and along the forest."""
        formulation = self.formulation
        padded = np.append(x, 0.0)
        made = padded[formulation.made]
        total = made.sum(axis=1)
        for target in sorted({zone.target for zone in self.zones.all}):
            off = total - made[:, target]
            near = self._moves(target, padded)
            others = [d for d in range(made.shape[1]) if d != target]
            for group in components([[to for to, _, _ in moves] for moves in near]):
                inside = frozenset(group)
                for w in group if len(group) > 2 else ():
                    room = float(off[w]) - LEAST_VIOLATION
                    cycle = _cycle(near, inside, w, room) if room > 0.0 else []
                    if not cycle:
                        continue
                    columns = [column for move in cycle for column in move]
                    away = [int(c) for c in formulation.made[w, others] if c >= 0]
                    rows.add(columns + away, [1.0] * (len(columns) + len(away)), -np.inf, float(len(cycle)))

    def _moves(self, target: int, padded: np.ndarray) -> list[list[Move]]:
        """Per class where a way can go on: to a class that needs it, to one that reads it, or along the forest."""
        formulation = self.formulation
        moves: list[list[Move]] = [[(to, 0.0, ()) for to in above] for above in self._needing()]
        summed = padded[formulation.x].sum(axis=1)
        for (klass, child), nodes in self._readings().items():
            share = float(summed[nodes].sum())
            if share > PRESENT:
                columns = tuple(int(c) for c in formulation.x[nodes].ravel() if c >= 0)
                moves[child].append((klass, max(0.0, 1.0 - share), columns))
        for edge, (klass, child) in enumerate(self._ends):
            column = int(self.column[edge])
            if self.zones.all[self._zone[edge]].target == target and padded[column] > PRESENT:
                # Upwards, the step to the reader is as good.
                moves[klass].append((child, max(0.0, 1.0 - float(padded[column])), (column,)))
                moves[child].append((klass, max(0.0, 1.0 - float(padded[column])), (column,)))
        return moves

    def _needing(self) -> list[list[int]]:
        """Per class those that need it in every program, without those that need another one of them."""
        if self._above is None:
            sets = self.formulation.dominators.of_class
            self._above = [[] for _ in sets]
            for klass, mask in enumerate(sets):
                below = members(mask & ~(1 << klass), len(sets)).tolist()
                further = 0
                for k in below:
                    further |= sets[k] & ~(1 << k)
                for k in below:
                    if not further >> k & 1:
                        self._above[k].append(klass)
        return self._above

    def _readings(self) -> dict[tuple[int, int], list[int]]:
        """Per class and input that it need not have the e-nodes that read it."""
        if self._reading is None:
            self._reading = {}
            formulation = self.formulation
            sets = formulation.dominators.of_class
            for node, children in enumerate(formulation.problem.children):
                klass = int(formulation.klass[node])
                for child in children:
                    if not sets[klass] >> child & 1:
                        self._reading.setdefault((klass, child), []).append(node)
        return self._reading

    def encode(self, point: np.ndarray, choices: Mapping[int, Choice], staging: Staging) -> None:
        """Set the columns of a program: a spanning tree of each region."""
        classes = list(choices)
        for region in staging.regions:
            here = {classes[i] for i in region}
            target = choices[next(iter(here))].target
            if target == HOST:
                continue
            place = {c: i for i, c in enumerate(sorted(here))}
            sets = DisjointSets(len(place))
            for klass in sorted(here):
                number = int(self.zones.of[klass, target])
                if number < 0:
                    continue
                for child in self.zones.touching(target, choices[klass].node):
                    edge = self._index.get((number, klass, child))
                    if edge is not None and child in here and sets.union(place[klass], place[child]):
                        point[self.column[edge]] = 1.0


def _blocks(edges: list[tuple[int, int]]) -> list[list[int]]:
    """The edges of a graph by biconnected component, those of one edge left out (Hopcroft and Tarjan 1973)."""
    import networkx

    graph = networkx.Graph()
    number: dict[frozenset[int], list[int]] = {}
    for i, (a, b) in enumerate(edges):
        graph.add_edge(a, b)
        number.setdefault(frozenset((a, b)), []).append(i)
    found = []
    for component in networkx.biconnected_component_edges(graph):
        group = sorted(i for a, b in component for i in number[frozenset((a, b))])
        if len(group) > 1:
            found.append(group)
    return sorted(found)


def _cycle(near: Sequence[Sequence[Move]], inside: frozenset[int], start: int, room: float) -> list[tuple[int, ...]]:
    """The columns of the moves, free ones left out, of a shortest way from a class back to it, if it is shorter than
    the room; else none.
    """
    distance: dict[int, float] = {}
    come: dict[int, tuple[int, tuple[int, ...]]] = {}
    heap = [(0.0, start)]
    while heap:
        passed, klass = heappop(heap)
        if passed > distance.get(klass, np.inf):
            continue
        for other, length, columns in near[klass]:
            further = passed + length
            if other in inside and further < room and further < distance.get(other, np.inf):
                distance[other] = further
                come[other] = klass, columns
                heappush(heap, (further, other))
        if start in distance:
            break
    if start not in distance:
        return []
    found: list[tuple[int, ...]] = []
    klass = start
    while True:
        klass, columns = come[klass]
        if columns:
            found.append(columns)
        if klass == start:
            return found
