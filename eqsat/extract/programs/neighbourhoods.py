"""Improves a program by solving small parts of the problem around it exactly (large neighbourhood search, Shaw 1998).

On large e-graphs whose relaxation takes long, greedy programs are all that the exact search would have. A
neighbourhood frees some classes that lie together; all others keep their e-node and target. What is left is a small
extraction problem, which is mostly solved at once, and its program is one of the whole. Neighbourhoods grow while they
do not help.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from eqsat.extract.effort import Effort
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import program_cost

SMALLEST, LARGEST = 250, 4000
"""Classes of a neighbourhood."""
PATIENCE = 12
"""Neighbourhoods of one size without a better program, after which they grow."""
LEAST_GAIN = 1e-9
"""Relative; less is rounding."""

Solve = Callable[[Problem, float, Effort], dict[int, Choice] | None]
"""Solves a small problem: returns a program that costs less than the given number, None if none was found."""


def is_worthwhile(problem: Problem) -> bool:
    """Whether a problem is so large that its neighbourhoods are much smaller."""
    return problem.classes > 4 * SMALLEST


def improve(problem: Problem, best: Incumbent, effort: Effort, seed: int, solve: Solve) -> None:
    """Offer better programs until neighbourhoods of no size help any more.

    Args:
        problem: The problem.
        best: Its program is where the search starts; without one there is nothing to do.
        effort: What may be done.
        seed: Of the order in which places are tried.
        solve: Solves the small problems.
    """
    if best.choices is None:
        return
    around = Neighbourhoods(problem)
    rng = random.Random(seed)
    size, failed = SMALLEST, 0
    while size <= min(LARGEST, problem.classes // 2) and not effort.is_over:
        program = best.choices
        free = around.free(rng.choice(list(program)), program, size)
        small, nodes, classes = around.restricted(program, free)
        found = solve(small, best.cost, effort)
        failed += 1
        if found is not None:
            choices = {classes[c]: replace(choice, node=nodes[choice.node]) for c, choice in found.items()}
            cost = program_cost(problem, choices)
            if cost < best.cost * (1 - LEAST_GAIN):
                best.offer("neighbourhood", choices, cost)
                failed = 0
        if failed >= PATIENCE:
            size, failed = 2 * size, 0


class Neighbourhoods:
    """The problems around programs of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.options: list[list[int]] = [[] for _ in range(problem.classes)]
        for node, klass in enumerate(problem.node_class.tolist()):
            self.options[klass].append(node)

    def free(self, start: int, program: Mapping[int, Choice], size: int) -> set[int]:
        """This many classes nearest to a class of the program: inputs of all its e-nodes, and its readers."""
        readers: dict[int, list[int]] = {}
        for klass, choice in program.items():
            for child in self.problem.children[choice.node]:
                readers.setdefault(child, []).append(klass)
        found = {start: None}
        for klass in (waiting := [start]):
            near = [child for node in self.options[klass] for child in self.problem.children[node]]
            for other in (*readers.get(klass, ()), *near):
                if len(found) < size and other not in found:
                    found[other] = None
                    waiting.append(other)
        return set(found)

    def restricted(self, program: Mapping[int, Choice], free: set[int]) -> tuple[Problem, list[int], list[int]]:
        """The problem in which only free classes may be computed in another way than in the program.

        Returns:
            The problem; its e-nodes and its classes, as those of the whole.
        """
        whole = self.problem
        known = free | program.keys()
        nodes = [n for c in sorted(free) for n in self.options[c] if known.issuperset(whole.children[n])]
        fixed = [program[c] for c in sorted(program.keys() - free)]
        cost = np.full((len(nodes) + len(fixed), len(whole.targets)), np.inf)
        cost[: len(nodes)] = whole.cost[nodes]
        for row, choice in enumerate(fixed, len(nodes)):
            cost[row, choice.target] = whole.cost[choice.node, choice.target]
        nodes += [choice.node for choice in fixed]
        classes = sorted(known)
        place = {klass: position for position, klass in enumerate(classes)}
        small = replace(
            whole,
            classes=len(classes),
            node_class=np.array([place[c] for c in whole.node_class[nodes].tolist()]),
            children=tuple(tuple(place[k] for k in whole.children[n]) for n in nodes),
            cost=cost,
            copy_in=whole.copy_in[classes],
            copy_out=whole.copy_out[classes],
            roots=tuple(place[root] for root in whole.roots),
            budgets=tuple(replace(budget, weight=budget.weight[nodes]) for budget in whole.budgets),
        )
        return small, nodes, classes
