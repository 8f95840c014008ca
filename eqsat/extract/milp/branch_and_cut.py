"""Branch and cut whose rows are found at each node: for relaxations that are close, with rows that come as needed.

HiGHS starts over, presolve and cuts of its own included, whenever a point needs a row that the program lacks. Where
launches have a price, that is most points. Here the rows of :mod:`eqsat.extract.milp.extraction_search` are added at
the nodes, where the last basis is a start, and mostly a few nodes are enough. The column to branch on is the one whose
two sides raise the bound most (strong branching, Applegate et al. 1995); columns that count regions come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from eqsat.extract.effort import Effort
from eqsat.extract.milp.highs import IntegerProgram, SolverResult

MOST_NODES = 1000
LEAST_GAIN = 0.02
"""Least gain of a round of cutting planes, as a share of the distance to the cutoff; with less, a node is branched."""
FIRST, OTHERS, SPREAD = 2, 6, 3
"""Columns that are tried at a node: those that count regions, and every third one of the others that are least whole,
because columns next to each other in that order are mostly alike."""
HASTY = 50
"""Nodes after which fewer columns are tried."""
WHOLE = 1e-5

Fixed = tuple[int, float, float]
"""A column, and its bounds at a node and below."""


@dataclass(order=True)
class _Node:
    bound: float
    number: int
    fixed: list[Fixed] = field(compare=False)


class Tree:
    """Search for points that cost less than a cutoff.

    Args:
        program: The relaxation; afterwards its columns have the bounds that they had.
        effort: What may be done.
        upper: Shape (columns,), upper bounds, which may fall during the search; lower bounds are 0.
        first: Columns to branch on before others.
        others: Columns to branch on.
        cutoff: What a point must cost less than; it may fall during the search.
        cut: Adds the rows that a point violates; their number. It may find programs.
        tell: Called with bounds of all points.
    """

    def __init__(
        self,
        program: IntegerProgram,
        effort: Effort,
        upper: np.ndarray,
        first: np.ndarray,
        others: np.ndarray,
        cutoff: Callable[[], float],
        cut: Callable[[np.ndarray], int],
        tell: Callable[[float], None],
    ) -> None:
        self.program = program
        self.effort = effort
        self.upper = upper
        self.first = first
        self.others = others
        self.cutoff = cutoff
        self.cut = cut
        self.tell = tell
        self._lowest = np.zeros(len(upper))
        self._highest = upper.copy()
        self._left = np.inf
        self._nodes = 0

    def run(self) -> float:
        """Search until nothing is left or the limits are reached; a bound of all points, at most the cutoff."""
        heap = [_Node(-np.inf, 0, [])]
        number = 0
        while heap and heap[0].bound < self.cutoff() and self._nodes < MOST_NODES and not self.effort.is_over:
            node = heappop(heap)
            self.tell(min(node.bound, self._left))
            self._nodes += 1
            outcome = self._solved(node) if self._go_to(node) else None
            if outcome is None:
                continue
            sides = None if outcome.x is None else self._sides(outcome.x, outcome.value)
            if outcome.x is None or self.effort.is_over:
                heappush(heap, node)
            elif sides is None:
                # A program that costs more than its point, and no row says so.
                self._left = min(self._left, node.bound)
            else:
                for side, bound in sides:
                    number += 1
                    heappush(heap, _Node(max(node.bound, bound), number, [*node.fixed, side]))
        self._go_to(_Node(-np.inf, 0, []))
        return min(self.cutoff(), self._left, heap[0].bound if heap else np.inf)

    def _go_to(self, node: _Node) -> bool:
        """Set the bounds of a node; False if they exclude all values, because columns have been dropped since."""
        lowest, highest = np.zeros(len(self.upper)), self.upper.copy()
        for column, lower, upper in node.fixed:
            lowest[column] = max(lowest[column], lower)
            highest[column] = min(highest[column], upper)
        if (lowest > highest).any():
            return False
        changed = np.flatnonzero((lowest != self._lowest) | (highest != self._highest))
        self.program.bound_columns(changed, lowest[changed], highest[changed])
        self._lowest, self._highest = lowest, highest
        return True

    def _solved(self, node: _Node) -> SolverResult | None:
        """Cutting planes at a node; None if no point of it is below the cutoff, a result without point if the limit is
        reached.
        """
        value = -np.inf
        while True:
            outcome = self.program.relaxation(self.effort)
            if outcome.status == "infeasible":
                return None
            if outcome.x is None or outcome.status != "optimal":
                return SolverResult(None, np.inf, -np.inf, "limit")
            node.bound = max(node.bound, outcome.bound)
            rows = self.cut(outcome.x) if node.bound < self.cutoff() else 0
            if node.bound >= self.cutoff():
                return None
            fractional = self._fractional(outcome.x)
            if not rows or (fractional and outcome.value - value < LEAST_GAIN * (self.cutoff() - outcome.value)):
                return outcome
            value = outcome.value

    def _fractional(self, x: np.ndarray) -> bool:
        return any(bool((np.abs(x[c] - np.round(x[c])) > WHOLE).any()) for c in (self.first, self.others))

    def _sides(self, x: np.ndarray, value: float) -> list[tuple[Fixed, float]] | None:
        """The two sides of the best column, with their bounds, without those that are infeasible or too dear; None if
        the point is whole.
        """
        best: tuple[float, list[tuple[Fixed, float]]] | None = None
        for column in self._candidates(x):
            floor = float(np.floor(x[column]))
            sides: list[tuple[Fixed, float]] = []
            gain = 1.0
            for lower, upper in ((self._lowest[column], floor), (floor + 1.0, self._highest[column])):
                self.program.bound_columns(np.array([column]), np.array([lower]), np.array([upper]))
                outcome = self.program.relaxation(self.effort)
                bound = np.inf if outcome.status == "infeasible" else outcome.bound
                gain *= max(1e-6, min(bound, self.cutoff()) - value)
                if bound < self.cutoff():
                    sides.append(((column, lower, upper), bound))
            own = np.array([column])
            self.program.bound_columns(own, self._lowest[own], self._highest[own])
            if best is None or gain > best[0]:
                best = gain, sides
            if self.effort.is_over:
                break
        return None if best is None else best[1]

    def _candidates(self, x: np.ndarray) -> list[int]:
        def least_whole(columns: np.ndarray) -> list[int]:
            part = np.abs(x[columns] - np.round(x[columns]))
            order = np.argsort(-part, kind="stable")
            return columns[order[part[order] > WHOLE]].tolist()

        counts, others = least_whole(self.first), least_whole(self.others)
        if self._nodes > HASTY:
            return [*counts, *others][:FIRST]
        return counts[:FIRST] + others[: SPREAD * OTHERS : SPREAD]
