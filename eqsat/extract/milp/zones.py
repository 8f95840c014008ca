"""Finds classes that can share a region, and classes that never can.

The e-nodes of a region read each other on its target, so a region lies within one *zone*: a connected component of the
classes under "some e-node on d reads it, and no class off d must come between". Along classes of which every program
contains each above the last, a zone is entered anew after each class off its target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.extract.graph import DisjointSets
from eqsat.extract.milp.cell_counts import CellCounts
from eqsat.extract.milp.cells import find_cells, find_walls, mask_of
from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.reduce.class_dominators import members


@dataclass
class Zone:
    """Classes that can share a region.

    Attributes:
        target: An accelerator.
        classes: Ascending.
        column: Counts the regions.
        cells: The counts by cell.
        chains: Whether one path can enter the zone more than once.
    """

    target: int
    classes: list[int]
    column: int
    cells: CellCounts
    chains: bool = False


class Zones:
    """The zones of one formulation, each with a column that counts its regions.

    Attributes:
        all: The zones.
        of: Shape (classes, targets), the index of a class's zone on a target, or -1.
    """

    def __init__(self, formulation: Formulation) -> None:
        self.formulation = formulation
        self.all: list[Zone] = []
        problem = formulation.problem
        self.of = np.full(formulation.made.shape, -1)
        self._must = np.zeros(0, dtype=np.int64)
        self._below = np.zeros((0, 0), dtype=bool)
        self._apart: dict[int, np.ndarray] = {}
        self._beyond: dict[int, list[int]] = {}
        charged = [d for d in range(1, len(problem.targets)) if problem.dispatch[d] > 0]
        if not charged:
            return
        self._find_must()
        for target in charged:
            self._beyond[target] = formulation.dominators.beyond(target)
            self._find_zones(target)
        for zone in self.all:
            able = (formulation.made[:, zone.target] >= 0).astype(float)
            movable = (formulation.made[:, [d for d in range(len(problem.targets)) if d != zone.target]] >= 0).any(
                axis=1
            )
            value, _, _ = self.best_chain(zone, able, np.where(movable, 0.0, np.inf))
            zone.chains = value > 1.5

    def _find_must(self) -> None:
        """The classes of every program, inputs first, and which of them is below which."""
        formulation = self.formulation
        sets = formulation.dominators.of_class
        must = sorted(formulation.must.tolist(), key=lambda klass: (sets[klass].bit_count(), klass))
        self._must = np.array(must, dtype=np.int64)
        self._below = self._among_must([sets[klass] for klass in must])
        np.fill_diagonal(self._below, False)

    def _among_must(self, masks: list[int]) -> np.ndarray:
        found = np.zeros((len(self._must), len(self._must)), dtype=bool)
        place = np.full(self.formulation.problem.classes, -1)
        place[self._must] = np.arange(len(self._must))
        for row, mask in enumerate(masks):
            columns = place[members(mask, len(place))]
            found[row, columns[columns >= 0]] = True
        return found

    def touching(self, target: int, node: int) -> list[int]:
        """The inputs with which an e-node on a target can share a region."""
        formulation = self.formulation
        beyond = self._beyond[target]
        children = formulation.problem.children[node]
        made = formulation.made
        return [
            k
            for k in children
            if made[k, target] >= 0 and not any(beyond[other] >> k & 1 for other in children if other != k)
        ]

    def _find_zones(self, target: int) -> None:
        formulation = self.formulation
        problem = formulation.problem
        sets = DisjointSets(problem.classes)
        readings: dict[tuple[int, int], list[int]] = {}
        apart = []
        for klass in range(problem.classes):
            beyond: int | None = None
            for node in formulation.dominators.options[klass]:
                if formulation.x[node, target] >= 0:
                    for child in self.touching(target, node):
                        sets.union(klass, child)
                        readings.setdefault((klass, child), []).append(node)
                    mask = 0
                    for child in problem.children[node]:
                        mask |= self._beyond[target][child]
                    beyond = mask if beyond is None else beyond & mask
            apart.append(beyond or 0)
        self._apart[target] = self._among_must([apart[klass] for klass in self._must.tolist()])
        groups: dict[int, list[int]] = {}
        for klass in np.flatnonzero(formulation.made[:, target] >= 0).tolist():
            groups.setdefault(sets.find(klass), []).append(klass)
        inside: dict[int, dict[tuple[int, int], list[int]]] = {group: {} for group in groups}
        near: list[list[int]] = [[] for _ in range(problem.classes)]
        for (klass, child), nodes in readings.items():
            inside[sets.find(klass)][klass, child] = nodes
            near[klass].append(child)
            near[child].append(klass)
        columns = formulation.new(np.full(len(groups), problem.dispatch[target]), True, np.inf).tolist()
        walls = find_walls(formulation, target)
        for (group, classes), column in zip(groups.items(), columns, strict=True):
            self.of[classes, target] = len(self.all)
            masks = find_cells(mask_of(classes), walls, near)
            cells = CellCounts(formulation, target, classes, column, masks, inside[group])
            self.all.append(Zone(target, classes, column, cells))
            here = np.arange(len(classes))
            formulation.rows.add_block(
                np.concatenate([here, here]),
                np.concatenate([np.full(len(classes), column), formulation.made[classes, target]]),
                np.concatenate([np.ones(len(classes)), -np.ones(len(classes))]),
                len(classes),
                0.0,
                np.inf,
            )

    def best_chain(self, zone: Zone, on: np.ndarray, off: np.ndarray) -> tuple[float, list[int], list[int]]:
        """The sequence u1, w1, u2, … of largest ``Σ on[u] − Σ off[w]``, as the u and the w.

        Args:
            zone: The u are of this zone.
            on: Shape (classes,).
            off: Shape (classes,).
        """
        must = self._must
        count = len(must)
        if not count:
            return 0.0, [], []
        inside = self.of[must, zone.target] == self.of[zone.classes[0], zone.target]
        gain = np.where(inside, on[must], -np.inf)
        price = off[must]
        enter, leave = np.full(count, -np.inf), np.full(count, -np.inf)
        entered_from, left_from = np.full(count, -1), np.full(count, -1)
        from_apart = np.zeros(count, dtype=bool)
        apart = self._apart[zone.target]
        for i in range(count):
            below = self._below[i, :i]
            if inside[i]:
                best = 0.0
                if i:
                    left = np.where(below, leave[:i], -np.inf)
                    at = int(left.argmax())
                    if left[at] > best:
                        best, entered_from[i] = left[at], at
                    switched = np.where(apart[i, :i], enter[:i], -np.inf)
                    at = int(switched.argmax())
                    if switched[at] > best:
                        best, entered_from[i], from_apart[i] = switched[at], at, True
                enter[i] = gain[i] + best
            if i and price[i] < np.inf:
                entered = np.where(below, enter[:i], -np.inf)
                at = int(entered.argmax())
                if entered[at] > -np.inf:
                    leave[i], left_from[i] = entered[at] - price[i], at
        at = int(enter.argmax())
        value = float(enter[at])
        ups, downs = [], []
        while at >= 0 and value > -np.inf:
            ups.append(int(must[at]))
            before = int(entered_from[at])
            if before >= 0 and not from_apart[at]:
                downs.append(int(must[before]))
                before = int(left_from[before])
            at = before
        return value, ups, downs
