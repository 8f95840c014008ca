"""Launch costs of regions inside the integer program.

How many regions a program needs is a problem of its own (``eqsat.extract.stages``), but it can be bounded from below by
rows. A region hangs together through e-nodes that read each other on its target, so it lies within one *zone*: a
connected component of the classes under "some e-node on d reads it, and nothing off d must come between". Each
zone has a column that counts its regions:

- it is at least 1 if any class of the zone is on d;
- along classes u1, w1, u2, w2, … of which every program contains each above the last, regions that w's off d keep apart are
  different ones: the count is at least ``Σ made[u,d] − Σ made[w,d]``. In a chain that is exact. The best
  sequence for a given point is found by dynamic programming;
- pieces of a solution that do not touch are different regions, unless a class between them moves to d;
- what remains is charged to the very choices that cause it.

So the objective is a lower bound of the true cost, and equal to it for the programs found so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eqsat.extract.cost import HOST
from eqsat.extract.dominators import members
from eqsat.extract.formulation import Formulation
from eqsat.extract.graph import DisjointSets
from eqsat.extract.highs import Rows
from eqsat.extract.problem import Choice
from eqsat.extract.stages import Staging, stages

LEAST_VIOLATION = 1e-5


@dataclass
class Zone:
    """Classes that can share a region.

    Attributes:
        target: An accelerator.
        classes: Ascending.
        column: Counts the regions.
        chains: Whether one path can enter the zone more than once.
    """

    target: int
    classes: list[int]
    column: int
    chains: bool = False


@dataclass(frozen=True)
class _Row:
    """``Σ values · x[columns] >= least``."""

    columns: list[int]
    values: list[float]
    least: float

    def excludes(self, x: np.ndarray) -> bool:
        return float(x[self.columns] @ np.array(self.values)) < self.least - LEAST_VIOLATION


class Launches:
    """Columns and rows for the launch costs of one formulation."""

    def __init__(self, formulation: Formulation) -> None:
        self.formulation = formulation
        self.zones: list[Zone] = []
        problem = formulation.problem
        self._zone_of = np.full(formulation.made.shape, -1)
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
        for zone in self.zones:
            able = (formulation.made[:, zone.target] >= 0).astype(float)
            movable = (formulation.made[:, [d for d in range(len(problem.targets)) if d != zone.target]] >= 0).any(axis=1)
            value, _, _ = self._best_chain(zone, able, np.where(movable, 0.0, np.inf))
            zone.chains = value > 1.5

    def _find_must(self) -> None:
        """The classes of every program, inputs first, and which of them lies below which."""
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
            k for k in children
            if made[k, target] >= 0 and not any(beyond[other] >> k & 1 for other in children if other != k)
        ]

    def _find_zones(self, target: int) -> None:
        formulation = self.formulation
        problem = formulation.problem
        sets = DisjointSets(problem.classes)
        apart = []
        for klass in range(problem.classes):
            behind: int | None = None
            for node in formulation.dominators.options[klass]:
                if formulation.x[node, target] >= 0:
                    for child in self.touching(target, node):
                        sets.union(klass, child)
                    mask = 0
                    for child in problem.children[node]:
                        mask |= self._beyond[target][child]
                    behind = mask if behind is None else behind & mask
            apart.append(behind or 0)
        self._apart[target] = self._among_must([apart[klass] for klass in self._must.tolist()])
        groups: dict[int, list[int]] = {}
        for klass in np.flatnonzero(formulation.made[:, target] >= 0).tolist():
            groups.setdefault(sets.find(klass), []).append(klass)
        columns = formulation.new(np.full(len(groups), problem.dispatch[target]), upper=np.inf).tolist()
        for classes, column in zip(groups.values(), columns, strict=True):
            self._zone_of[classes, target] = len(self.zones)
            self.zones.append(Zone(target, classes, column))
            here = np.arange(len(classes))
            formulation.rows.add_block(
                np.concatenate([here, here]),
                np.concatenate([np.full(len(classes), column), formulation.made[classes, target]]),
                np.concatenate([np.ones(len(classes)), -np.ones(len(classes))]), len(classes), 0.0, np.inf)

    def _best_chain(self, zone: Zone, on: np.ndarray, off: np.ndarray) -> tuple[float, list[int], list[int]]:
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
        inside = self._zone_of[must, zone.target] == self._zone_of[zone.classes[0], zone.target]
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
                    behind = np.where(apart[i, :i], enter[:i], -np.inf)
                    at = int(behind.argmax())
                    if behind[at] > best:
                        best, entered_from[i], from_apart[i] = behind[at], at, True
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

    def chain_rows(self, x: np.ndarray) -> Rows:
        """Rows over sequences of classes that a point violates, the most violated of each zone."""
        formulation = self.formulation
        padded = np.append(x, 0.0)
        rows = Rows()
        for zone in self.zones:
            if not zone.chains:
                continue
            on = padded[formulation.made[:, zone.target]]
            value, ups, downs = self._best_chain(zone, on, on)
            if value > x[zone.column] + LEAST_VIOLATION:
                plus = [int(formulation.made[u, zone.target]) for u in ups]
                minus = [int(c) for c in (formulation.made[w, zone.target] for w in downs) if c >= 0]
                rows.add([zone.column, *plus, *minus], [1.0] + [-1.0] * len(plus) + [1.0] * len(minus), 0.0, np.inf)
        return rows

    def counts(self, choices: Mapping[int, Choice], staging: Staging) -> dict[int, int]:
        """Regions by zone column, of a program and its cut; the choices in the order of the staging's nodes."""
        classes = list(choices)
        found = {zone.column: 0 for zone in self.zones}
        for region in staging.regions:
            klass = classes[region[0]]
            zone = self._zone_of[klass, choices[klass].target] if choices[klass].target != HOST else -1
            if zone >= 0:
                found[self.zones[zone].column] += 1
        return found

    def program_rows(self, x: np.ndarray, choices: Mapping[int, Choice], staging: Staging) -> Rows:
        """Rows that make a point which underestimates its program's launches infeasible."""
        rows = self.chain_rows(x)
        if rows.count:
            return rows
        counts = self.counts(choices, staging)
        short = [zone for zone in self.zones if counts[zone.column] > x[zone.column] + 0.5]
        for find in (self._piece_row, self._local_row):
            for zone in short:
                row = find(zone, choices)
                if row is not None and row.excludes(x):
                    rows.add(row.columns, row.values, row.least, np.inf)
            if rows.count:
                return rows
        if short:
            row = self._global_row(choices, staging)
            if row.excludes(x):
                rows.add(row.columns, row.values, row.least, np.inf)
        return rows

    def _pieces(self, zone: Zone, choices: Mapping[int, Choice]) -> dict[int, int]:
        """Per class of the zone on its target the piece it hangs together with."""
        on = [c for c in zone.classes if c in choices and choices[c].target == zone.target]
        place = {c: i for i, c in enumerate(on)}
        sets = DisjointSets(len(on))
        for c in on:
            for k in self.touching(zone.target, choices[c].node):
                if k in place:
                    sets.union(place[c], place[k])
        return {c: sets.find(place[c]) for c in on}

    def _piece_row(self, zone: Zone, choices: Mapping[int, Choice]) -> _Row | None:
        """Pieces that do not touch are regions of their own, unless other classes or e-nodes join them."""
        formulation = self.formulation
        piece = self._pieces(zone, choices)
        names = sorted(set(piece.values()))
        if len(names) < 2:
            return None
        must = set(formulation.must.tolist())
        chosen = [min((c for c in piece if piece[c] == name), key=lambda c: (c not in must, c)) for name in names]
        touches: dict[int, set[int]] = {c: set() for c in zone.classes if c not in piece}
        loose: set[int] = set()
        joins: dict[int, set[int]] = {}
        for c in zone.classes:
            for node in formulation.dominators.options[c]:
                if formulation.x[node, zone.target] < 0:
                    continue
                for k in self.touching(zone.target, node):
                    if c in piece and k in piece:
                        if piece[c] != piece[k]:
                            joins.setdefault(node, set()).add(piece[k])
                    elif c in piece:
                        touches[k].add(piece[c])
                    elif k in piece:
                        touches[c].add(piece[k])
                    else:
                        loose.update((c, k))
        most = len(names) - 1
        columns, values = [zone.column], [1.0]
        columns += [int(formulation.made[c, zone.target]) for c in chosen]
        values += [-1.0] * len(chosen)
        for c, near in touches.items():
            merged = min(most, len(near) - (c not in loose))
            if merged > 0:
                columns.append(int(formulation.made[c, zone.target]))
                values.append(float(merged))
        for node, near in joins.items():
            columns.append(int(formulation.x[node, zone.target]))
            values.append(float(min(most, len(near))))
        return _Row(columns, values, 0.0)

    def _local_row(self, zone: Zone, choices: Mapping[int, Choice]) -> _Row | None:
        """The order of execution keeps regions of one zone apart: charge it to all choices between them."""
        formulation = self.formulation
        problem = formulation.problem
        on = {c for c in zone.classes if c in choices and choices[c].target == zone.target}
        above: set[int] = set()
        for c in choices:
            if c in on or any(k in above for k in problem.children[choices[c].node]):
                above.add(c)
        below: set[int] = set()
        for c in reversed(list(choices)):
            if c in on or c in below:
                below.add(c)
                below.update(problem.children[choices[c].node])
        between = [c for c in choices if c in above and c in below]
        place = {c: i for i, c in enumerate(between)}
        reads = [[place[k] for k in problem.children[choices[c].node] if k in place] for c in between]
        least = round(stages(reads, [int(c in on) for c in between], [0.0, 1.0]).cost)
        if least < 2:
            return None
        columns, values, same = [zone.column], [1.0], 0
        for c in between:
            same += 1
            for target, column in enumerate(formulation.x[choices[c].node].tolist()):
                if column >= 0 and (target == zone.target) == (c in on):
                    columns.append(int(column))
                    values.append(-(least - 1.0))
        for c in zone.classes:
            if c not in on:
                columns.append(int(formulation.made[c, zone.target]))
                values.append(least - 1.0)
        return _Row(columns, values, least - (least - 1.0) * same)

    def _global_row(self, choices: Mapping[int, Choice], staging: Staging) -> _Row:
        """This very program has these launches."""
        formulation = self.formulation
        columns = [zone.column for zone in self.zones]
        values = [float(formulation.problem.dispatch[zone.target]) / staging.cost for zone in self.zones]
        columns += [int(formulation.x[choice.node, choice.target]) for choice in choices.values()]
        values += [-1.0] * len(choices)
        return _Row(columns, values, 1.0 - len(choices))
