"""Launch costs of regions inside the integer program.

The number of regions that a program needs is a problem of its own (``eqsat.extract.regions.stages``), but rows can
bound it from below. A region lies within one zone (``eqsat.extract.milp.zones``), and each zone has a column that
counts its regions:

- it is at least 1 if any class of the zone is on d;
- a zone whose classes are divided by classes off d has cells, whose columns it adds up (``eqsat.extract.milp.cells``,
  ``cell_counts``). A region that is launched is a fact that e-nodes on d need, so that rows over facts speak of it
  (``eqsat.extract.milp.fact_dominators``): however a step mixes its ways to compute something, it pays for one launch;
- take classes u1, w1, u2, w2, … such that every program contains each of them above the last: classes w off d keep
  regions on d apart, so the count is at least ``Σ made[u,d] − Σ made[w,d]``. In a chain that is exact. The best
  sequence for a given point is found by dynamic programming;
- pieces of a solution that do not touch are different regions, unless a class between them moves to d;
- the remainder is charged to the choices that cause it.

So the objective is a lower bound of the true cost, and equal to it for the programs found so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eqsat.extract.graph import DisjointSets
from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.highs import Rows
from eqsat.extract.milp.zones import Zone, Zones
from eqsat.extract.problem import Choice
from eqsat.extract.program_cost import HOST
from eqsat.extract.regions.stages import Staging, stages

LEAST_VIOLATION = 1e-5


@dataclass(frozen=True)
class _Row:
    """``Σ values · x[columns] >= least``."""

    columns: list[int]
    values: list[float]
    least: float

    def excludes(self, x: np.ndarray) -> bool:
        return float(x[self.columns] @ np.array(self.values)) < self.least - LEAST_VIOLATION


class Launches:
    """Rows for the launch costs of one formulation."""

    def __init__(self, formulation: Formulation) -> None:
        self.formulation = formulation
        self.zones = Zones(formulation)

    def chain_rows(self, x: np.ndarray) -> Rows:
        """Rows over sequences of classes that a point violates, the most violated of each zone."""
        formulation = self.formulation
        padded = np.append(x, 0.0)
        rows = Rows()
        for zone in self.zones.all:
            if not zone.chains:
                continue
            on = padded[formulation.made[:, zone.target]]
            value, ups, downs = self.zones.best_chain(zone, on, on)
            if value > x[zone.column] + LEAST_VIOLATION:
                plus = [int(formulation.made[u, zone.target]) for u in ups]
                minus = [int(c) for c in (formulation.made[w, zone.target] for w in downs) if c >= 0]
                rows.add([zone.column, *plus, *minus], [1.0] + [-1.0] * len(plus) + [1.0] * len(minus), 0.0, np.inf)
        return rows

    def counts(self, choices: Mapping[int, Choice], staging: Staging) -> dict[int, int]:
        """The columns of zones and of their cells for a program and its cut, whose nodes are the choices in order."""
        classes = list(choices)
        found: dict[int, int] = {}
        for zone in self.zones.all:
            links = (link.column for link in zone.cells.links.values())
            found.update(dict.fromkeys((zone.column, *zone.cells.columns, *links), 0))
        for region in staging.regions:
            inside = [classes[i] for i in region]
            target = choices[inside[0]].target
            number = int(self.zones.of[inside[0], target]) if target != HOST else -1
            if number >= 0:
                zone = self.zones.all[number]
                for column in (zone.column, *zone.cells.of_region(inside, choices, self.formulation)):
                    found[column] += 1
        return found

    def program_rows(self, x: np.ndarray, choices: Mapping[int, Choice], staging: Staging) -> Rows:
        """Rows that make a point which underestimates its program's launches infeasible."""
        rows = self.chain_rows(x)
        if rows.count:
            return rows
        counts = self.counts(choices, staging)
        short = [zone for zone in self.zones.all if counts[zone.column] > x[zone.column] + 0.5]
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
        """Per class of the zone on its target the connected piece to which it belongs."""
        on = [c for c in zone.classes if c in choices and choices[c].target == zone.target]
        place = {c: i for i, c in enumerate(on)}
        sets = DisjointSets(len(on))
        for c in on:
            for k in self.zones.touching(zone.target, choices[c].node):
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
                for k in self.zones.touching(zone.target, node):
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
        columns = [zone.column for zone in self.zones.all]
        values = [float(formulation.problem.dispatch[zone.target]) / staging.cost for zone in self.zones.all]
        columns += [int(formulation.x[choice.node, choice.target]) for choice in choices.values()]
        values += [-1.0] * len(choices)
        return _Row(columns, values, 1.0 - len(choices))
