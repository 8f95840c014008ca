"""Columns that count the regions of a zone by its cells (``eqsat.extract.milp.cells``), and the rows between them.

The cells have an order, and a region is counted in the first cell that contains it. The first cell that contains a
class is its *home*. A region with the class is either counted there, or it leaves the home through a *link*: a reading
inside the region between a class of the home and one of another cell. Each link has a column, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.problem import Choice
from eqsat.extract.reduce.class_dominators import members

MOST_LINKS = 40
"""Links between the home of a class and its other cells; with more, a region may be counted in any of them."""

Pair = tuple[int, int]
"""A class, and a class that it reads."""


@dataclass(frozen=True)
class Link:
    """A reading through which a region can leave a cell.

    Attributes:
        column: Whether both classes are in one region.
        cells: The columns of the cells that contain both.
    """

    column: int
    cells: tuple[int, ...]


class CellCounts:
    """The cells of one zone.

    Args:
        formulation: Gets the columns and rows.
        target: Of the zone.
        classes: Of the zone.
        column: Counts the regions of the zone.
        cells: Masks of the cells.
        readings: The e-nodes that read inside regions of the zone, by their class and the one they read.

    Attributes:
        cells: Sets of classes, in the order in which they count regions.
        columns: For each cell the column that counts its regions: that of the zone if there is only one cell.
        links: By the class that reads, and the one that is read.
        ways: Per class columns one of which is positive if the class is on the target: of its home and of links.
    """

    def __init__(
        self,
        formulation: Formulation,
        target: int,
        classes: Sequence[int],
        column: int,
        cells: Sequence[int],
        readings: Mapping[Pair, Sequence[int]],
    ) -> None:
        self.links: dict[Pair, Link] = {}
        # What joins many others is large: so the home of a class that could also be joined is the small cell.
        ordered = sorted(cells, key=lambda mask: (mask.bit_count(), mask))
        self.cells = [frozenset(members(mask, mask.bit_length()).tolist()) for mask in ordered]
        if len(cells) == 1:
            self.columns = [column]
            self.ways: dict[int, tuple[int, ...]] = dict.fromkeys(classes, (column,))
            return
        self.columns = formulation.new(np.zeros(len(cells)), True, np.inf).tolist()
        formulation.rows.add([column, *self.columns], [1.0] + [-1.0] * len(cells), 0.0, np.inf)
        around: dict[int, list[int]] = {klass: [] for klass in classes}
        for i, cell in enumerate(self.cells):
            for klass in cell:
                around[klass].append(i)
        homes = sorted({found[0] for found in around.values() if len(found) > 1})
        crossing = {i: [p for p in readings if (p[0] in self.cells[i]) != (p[1] in self.cells[i])] for i in homes}
        leaving = {tuple(found): self._leaving(found, crossing.get(found[0], ())) for found in around.values()}
        for pair in sorted({pair for pairs in leaving.values() for pair in pairs or ()}):
            both = tuple(self.columns[i] for i in around[pair[0]] if i in around[pair[1]])
            self.links[pair] = Link(int(formulation.new(np.zeros(1))[0]), both)
            for most in (formulation.x[list(readings[pair]), target], formulation.made[[pair[1]], target], both):
                formulation.rows.add_implication([self.links[pair].column], [int(c) for c in most])
        self.ways = {}
        for klass in classes:
            pairs = leaving[tuple(around[klass])]
            if pairs is None:
                self.ways[klass] = tuple(self.columns[i] for i in around[klass])
            else:
                self.ways[klass] = (self.columns[around[klass][0]], *(self.links[pair].column for pair in pairs))
            formulation.rows.add_implication([int(formulation.made[klass, target])], self.ways[klass])

    def _leaving(self, around: Sequence[int], crossing: Sequence[Pair]) -> list[Pair] | None:
        """The readings through which a region leaves the first of some cells for another one, of those that cross its
        border; None if they are many.
        """
        others = [self.cells[i] for i in around[1:]]
        found = [pair for pair in crossing if any(pair[0] in cell and pair[1] in cell for cell in others)]
        return sorted(found) if len(found) <= MOST_LINKS else None

    def of_region(self, region: Sequence[int], choices: Mapping[int, Choice], formulation: Formulation) -> list[int]:
        """The columns that a region of a program raises by one, without that of the zone."""
        if len(self.cells) == 1:
            return []
        inside = frozenset(region)
        found = [next(column for column, cell in zip(self.columns, self.cells, strict=True) if inside <= cell)]
        for klass in region:
            for child in formulation.problem.children[choices[klass].node]:
                if child in inside and (klass, child) in self.links:
                    found.append(self.links[klass, child].column)
        return found
