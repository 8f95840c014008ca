"""An extraction problem during reduction: e-nodes as options by class, edited in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import HOST, needed

INF = float("inf")

Origin: TypeAlias = "int | tuple[Origin, Origin]"
"""The original e-nodes for which an option stands: one, or those of two others. A long chain is folded link by link;
copying the whole list at each link would take the square of its length."""


def nodes_of(origin: Origin | None) -> tuple[int, ...]:
    """The e-nodes of an origin, in order; empty without an origin."""
    found: list[int] = []
    todo = [] if origin is None else [origin]
    while todo:
        part = todo.pop()
        if isinstance(part, int):
            found.append(part)
        else:
            todo += (part[1], part[0])
    return tuple(found)


@dataclass(frozen=True)
class Reduced:
    """A smaller problem with the same optimal value, and its mapping back.

    Attributes:
        problem: The smaller problem; its e-nodes are sorted by class.
        origin: Per e-node and target the e-nodes of the original problem that it represents, all on that target; None
            where it cannot run.
        free: Class -> e-node of the original problem for classes that were left out because they cost nothing.
        original: The problem this is a reduction of.
        feasible: False if some root cannot be derived.
    """

    problem: Problem
    origin: list[tuple[tuple[int, ...] | None, ...]]
    free: dict[int, int]
    original: Problem
    feasible: bool = True

    def expand(self, choices: Mapping[int, Choice]) -> dict[int, Choice]:
        """A program of the original problem, children first, from one of the smaller."""
        full = {klass: Choice(node, HOST) for klass, node in self.free.items()}
        for choice in choices.values():
            for node in self.origin[choice.node][choice.target] or ():
                full[int(self.original.node_class[node])] = Choice(node, choice.target)
        ordered = needed(self.original, full)
        assert ordered is not None, "a reduction lost a class"
        return ordered


@dataclass(eq=False, slots=True)
class Option:
    """An e-node, or several e-nodes that were merged.

    Attributes:
        reads: Classes.
        cost: Per target.
        origin: Per target the original e-nodes, None where it cannot run.
        weight: Per budget.
        dropped: No longer an option.
    """

    reads: frozenset[int]
    cost: list[float]
    origin: list[Origin | None]
    weight: tuple[float, ...]
    dropped: bool = False

    @property
    def targets(self) -> list[int]:
        return [target for target, cost in enumerate(self.cost) if cost < INF]


class ClassOptions:
    """The options of each class.

    Attributes:
        of: Class -> its options.
        roots: Classes, each once.
        free: Class -> e-node of the original for classes that were removed because they cost nothing.
        launch: Per target whether its regions cost anything.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.roots = sorted(set(problem.roots))
        self.free: dict[int, int] = {}
        self.launch = [d > 0 for d in problem.dispatch.tolist()]
        self.copy_in = problem.copy_in.tolist()
        self.copy_out = problem.copy_out.tolist()
        self.of: dict[int, list[Option]] = {}
        weights = [budget.weight.tolist() for budget in problem.budgets]
        rows = zip(problem.node_class.tolist(), problem.children, problem.cost.tolist(), strict=True)
        for node, (klass, reads, cost) in enumerate(rows):
            weight = tuple(w[node] for w in weights)
            origin: list[Origin | None] = [node] * len(cost)
            self.of.setdefault(klass, []).append(Option(frozenset(reads), cost, origin, weight))

    def readers(self) -> dict[int, list[tuple[int, Option]]]:
        """Per class its readers: class and option."""
        found: dict[int, list[tuple[int, Option]]] = {klass: [] for klass in self.of}
        for klass, options in self.of.items():
            for option in options:
                entry = klass, option
                for child in option.reads:
                    if child in found:
                        found[child].append(entry)
        return found

    def feasible(self) -> bool:
        """Whether all roots have options."""
        return all(self.of.get(root) for root in self.roots)

    def size(self) -> tuple[int, int]:
        """Classes and options."""
        return len(self.of), sum(map(len, self.of.values()))

    def result(self) -> Reduced:
        """The problem in its present state."""
        problem = self.problem
        if not self.feasible():
            return Reduced(problem, [], self.free, problem, False)
        classes = sorted(self.of)
        number = {klass: position for position, klass in enumerate(classes)}
        flat = [(number[klass], option) for klass in classes for option in self.of[klass]]
        shape = (len(flat), len(problem.targets))
        smaller = replace(
            problem,
            classes=len(classes),
            node_class=np.array([klass for klass, _ in flat], dtype=np.int64),
            children=tuple(tuple(sorted(number[k] for k in option.reads)) for _, option in flat),
            cost=np.array([option.cost for _, option in flat], dtype=np.float64).reshape(shape),
            copy_in=problem.copy_in[classes].reshape(len(classes), shape[1]),
            copy_out=problem.copy_out[classes].reshape(len(classes), shape[1]),
            roots=tuple(number[root] for root in self.roots),
            budgets=tuple(
                replace(budget, weight=np.array([option.weight[i] for _, option in flat], dtype=np.float64))
                for i, budget in enumerate(problem.budgets)
            ),
        )
        origin = [
            tuple(
                nodes_of(o) if cost < INF and o is not None else None
                for o, cost in zip(option.origin, option.cost, strict=True)
            )
            for _, option in flat
        ]
        return Reduced(smaller, origin, self.free, problem)
