"""The cheapest program in which a target runs an operator of the input: a few more extractions of one problem.

In such a program each kernel that stands for the operator runs on the target, so that nothing else may compute its
value. If the cheapest program under this condition avoids the operator, one value after the other is asked for where a
kernel of the target computes it: that of the operator, and those of later operators with which it may be fused. The
bounds of these extractions say whether the best program among them is the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat.errors import OptimizationError
from eqsat.extract.problem import Choice, Problem, Solution
from eqsat.extract.program_cost import needed
from eqsat.extract.solve import solve

MOST_VALUES = 6
"""The most values that are examined, with one or two extractions each."""
MOST_FUSED = 64
"""Most operators of the input that one kernel is assumed to replace."""
_TOLERANCE = 1e-6
"""Relative tolerance of a proof."""


@dataclass(frozen=True)
class Forced:
    """A program in which the target runs the operator, and whether no such program is cheaper."""

    choices: Mapping[int, Choice]
    proven: bool


@dataclass(frozen=True)
class Forcing:
    """Finds that program.

    Attributes:
        problem: The problem of the whole model.
        own: The input as a program.
        positions: Classes that the operator computes; the last one is that of its e-node.
        target: Number of the target.
        contains: Whether an e-node of the problem is the operator, alone or in a composite.
        is_there: Whether the target runs the operator in a program.
        seconds: For all extractions together.
    """

    problem: Problem
    own: Mapping[int, Choice]
    positions: Sequence[int]
    target: int
    contains: Callable[[int], bool]
    is_there: Callable[[Mapping[int, Choice]], bool]
    seconds: float

    def cheapest(self) -> Forced | None:
        """The program; None if there is none."""
        problem = self._only_there(self.problem, self.positions, range(self.problem.nodes))
        first = _solved(problem, self.seconds / 2)
        if first is None:
            return None
        if self.is_there(first.choices):
            return Forced(first.choices, first.stop_reason == "optimal")
        values = list(self._values())
        bound = np.inf if len(values) <= MOST_VALUES else first.bound
        found: list[Solution] = []
        seconds = self.seconds / 4 / MOST_VALUES
        for value, nodes in values[:MOST_VALUES]:
            asked = self._asked(self._only_there(problem, [value], nodes), value, seconds)
            if asked is None:
                continue
            bound = min(bound, asked.bound)
            if not self._is_answer(asked):
                # Such as a program that computes the value and does not need it.
                strict = self._only_there(problem, [value], self._plain(nodes))
                asked = self._asked(self._as_written_after(strict, value), value, seconds)
            if asked is not None and self._is_answer(asked):
                found.append(asked)
        if not found:
            return None
        best = min(found, key=lambda solution: solution.cost)
        return Forced(best.choices, bool(best.cost <= bound * (1 + _TOLERANCE)))

    def _is_answer(self, found: Solution) -> bool:
        return needed(self.problem, found.choices) == found.choices and self.is_there(found.choices)

    def _only_there(self, problem: Problem, values: Sequence[int], nodes: Sequence[int]) -> Problem:
        """With some values computed by some e-nodes only, and on the target."""
        members = np.flatnonzero(np.isin(problem.node_class, values))
        allowed = np.zeros_like(problem.cost, dtype=bool)
        allowed[list(nodes), self.target] = True
        cost = problem.cost.copy()
        cost[members] = np.where(allowed[members], cost[members], np.inf)
        return replace(problem, cost=cost)

    def _as_written_after(self, problem: Problem, value: int) -> Problem:
        """With what reads a value, directly or not, computed by the operators of the input."""
        later = self._after(value) - {value, *self.positions}
        cost = problem.cost.copy()
        others = np.isin(problem.node_class, list(later))
        others[[self.own[k].node for k in later]] = False
        cost[others] = np.inf
        return replace(problem, cost=cost)

    def _asked(self, problem: Problem, value: int, seconds: float) -> Solution | None:
        """The cheapest program that computes a value, which need not leave the target's memory.

        A further output reads it there, at no cost.
        """
        row = np.full((1, len(problem.targets)), np.inf)
        free = row.copy()
        free[0, self.target] = 0.0
        copy_in = row.copy()
        copy_in[0, 0] = 0.0
        asked = replace(
            problem,
            classes=problem.classes + 1,
            node_class=np.append(problem.node_class, problem.classes),
            children=(*problem.children, (value,)),
            cost=np.concatenate([problem.cost, free]),
            copy_in=np.concatenate([problem.copy_in, copy_in]),
            copy_out=np.concatenate([problem.copy_out, np.zeros_like(row)]),
            roots=(*problem.roots, problem.classes),
            budgets=tuple(replace(b, weight=np.append(b.weight, 0.0)) for b in problem.budgets),
        )
        found = _solved(asked, seconds)
        if found is None:
            return None
        return replace(found, choices={k: c for k, c in found.choices.items() if k != problem.classes})

    def _values(self) -> Iterator[tuple[int, list[int]]]:
        """Values of the input, and the e-nodes on the target that may compute them and stand for the operator."""
        operator = self.positions[-1]
        after = self._after(operator)
        for value in (k for k in self.own if k in after):
            members = np.flatnonzero(
                (self.problem.node_class == value) & np.isfinite(self.problem.cost[:, self.target])
            )
            nodes = [n for n in members.tolist() if self._stands_for(n, value, operator, after)]
            if nodes:
                yield value, nodes

    def _plain(self, nodes: Sequence[int]) -> list[int]:
        """The e-nodes that are the operator with any program for its operands; else those that resemble it."""
        plain = [n for n in nodes if self.own.keys() >= set(self.problem.children[n])]
        return plain or list(filter(self.contains, nodes))

    def _after(self, value: int) -> set[int]:
        """A value of the input, and those that are computed from it."""
        found = {value}
        for k, choice in self.own.items():
            if not found.isdisjoint(self.problem.children[choice.node]):
                found.add(k)
        return found

    def _stands_for(self, node: int, value: int, operator: int, after: set[int]) -> bool:
        """Whether the input computes a value by an operator from what an e-node of that value reads."""
        reads = self.problem.children[node]
        waiting, seen = [value], {value}
        while waiting and len(seen) <= MOST_FUSED:
            k = waiting.pop()
            if k == operator:
                return True
            more = set(self.problem.children[self.own[k].node]) & after - set(reads) - seen
            seen |= more
            waiting += sorted(more)
        return False


def _solved(problem: Problem, seconds: float) -> Solution | None:
    try:
        return solve(problem, time_limit=seconds)
    except OptimizationError:
        return None
