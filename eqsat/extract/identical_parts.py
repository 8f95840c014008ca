"""Parts of a problem that are alike are solved once: the layers of a network cost one solution, however many there are.

The classes of a part are numbered in an order that follows from its structure and costs alone, so that two parts with
the same numbers have the same programs. What lies below a leaf is a constant where each program contains the leaf, and
is left out. Costs count as equal up to roundings; the program is priced anew in each part, and bounds make up for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import needed, program_cost
from eqsat.extract.reduce.class_dominators import Dominators, members

ROUNDS = 4
"""In which classes are told apart by their neighbours before they are numbered."""
ROUNDING = 1e-12
"""The unit of costs, of the largest."""
COARSE = 100
"""Units up to which costs count as equal."""


@dataclass(frozen=True)
class CanonicalProblem:
    """A problem with its classes and e-nodes in an order of its own.

    Attributes:
        key: Equal for problems that are alike.
        nodes: The problem's e-nodes in that order.
        base: What each program costs beyond its program in a problem that is alike.
        error: What costs that count as equal can make of two bounds.
    """

    key: tuple[object, ...]
    nodes: list[int]
    base: float
    error: float


@dataclass
class Known:
    """Solutions of problems by their forms: the choices, as places of e-nodes and targets, the bound and the gap."""

    _of: dict[tuple[object, ...], tuple[list[tuple[int, int]] | None, float, float]] = field(default_factory=dict)

    def keep(self, form: CanonicalProblem, choices: Mapping[int, Choice] | None, bound: float, gap: float) -> None:
        """Keeps a solution, which was searched up to a gap."""
        place = {node: i for i, node in enumerate(form.nodes)}
        program = None if choices is None else [(place[c.node], c.target) for c in choices.values()]
        self._of[form.key] = program, bound - form.base, gap

    def find(
        self, problem: Problem, form: CanonicalProblem, gap: float
    ) -> tuple[dict[int, Choice] | None, float, float] | None:
        """The program, its cost here and the bound, if a problem that is alike has been searched up to this gap."""
        program, bound, reached = self._of.get(form.key, (None, 0.0, np.inf))
        if reached > gap:
            return None
        bound += form.base - form.error
        if program is None:
            return None, np.inf, bound
        chosen = [Choice(form.nodes[place], target) for place, target in program]
        choices = needed(problem, {int(problem.node_class[c.node]): c for c in chosen})
        assert choices is not None, "programs of problems that are alike are the same"
        return choices, program_cost(problem, choices), bound


def form_of(problem: Problem, leaves: set[int]) -> CanonicalProblem:
    """The form of a problem.

    Args:
        problem: The problem, without budgets.
        leaves: Classes with one e-node, which represents everything below.
    """
    problem, base = _without_base(problem, leaves)
    finite = [array[np.isfinite(array)] for array in (problem.cost, problem.copy_in, problem.copy_out)]
    scale = max((float(array.max(initial=0.0)) for array in finite), default=0.0) or 1.0
    unit = scale * ROUNDING
    cost, copy_in, copy_out = (_rounded(a, unit) for a in (problem.cost, problem.copy_in, problem.copy_out))
    options: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        options[klass].append(node)
    color = _colors(problem, options, cost, copy_in, copy_out)

    def rank(node: int) -> tuple[object, ...]:
        return (cost[node], sorted(color[k] for k in problem.children[node]))

    # Numbers in the order in which classes are reached from the roots.
    number: dict[int, int] = {}
    nodes: list[int] = []
    todo = sorted(problem.roots, key=lambda c: (color[c], c), reverse=True)
    while todo:
        klass = todo.pop()
        if klass in number:
            continue
        number[klass] = len(number)
        own = sorted(options[klass], key=rank)
        nodes += own
        below = [k for node in own for k in sorted(problem.children[node], key=lambda k: (color[k], number.get(k, k)))]
        todo += reversed([k for k in dict.fromkeys(below) if k not in number])
    klass_of = problem.node_class.tolist()
    key = (
        tuple((number[klass_of[n]], tuple(sorted(number[k] for k in problem.children[n]))) for n in nodes),
        tuple(cost[n] for n in nodes),
        tuple((copy_in[c], copy_out[c]) for c in number),
        tuple(sorted(number[r] for r in problem.roots)),
        tuple(problem.dispatch.tolist()),
        round(float(np.log2(scale)) * 1e11),
    )
    return CanonicalProblem(key, nodes, base, COARSE * unit * (len(nodes) + 2 * problem.classes))


def _without_base(problem: Problem, leaves: set[int]) -> tuple[Problem, float]:
    """Makes leaves that each program contains free on their cheapest target, and returns their cost there."""
    if not leaves:
        return problem, 0.0
    always = set(members(Dominators(problem).of_roots(), problem.classes).tolist())
    cost, base = problem.cost.copy(), 0.0
    for node, klass in enumerate(problem.node_class.tolist()):
        if klass in leaves and klass in always and np.isfinite(cost[node]).any():
            least = float(cost[node].min())
            cost[node] -= least
            base += least
    return replace(problem, cost=cost), base


def _rounded(values: np.ndarray, unit: float) -> list[tuple[float, ...]]:
    """Multiples of a unit by row; infinite where the value is."""
    return [tuple(row) for row in np.round(values / (COARSE * unit)).tolist()]


def _colors(
    problem: Problem,
    options: list[list[int]],
    cost: list[tuple[float, ...]],
    copy_in: list[tuple[float, ...]],
    copy_out: list[tuple[float, ...]],
) -> list[int]:
    """A number by class, the same for classes that look the same within some steps (Weisfeiler and Leman 1968)."""
    roots = set(problem.roots)
    readers: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        for child in problem.children[node]:
            readers[child].append(klass)
    color = [
        hash((copy_in[c], copy_out[c], c in roots, tuple(sorted(cost[n] for n in options[c]))))
        for c in range(problem.classes)
    ]
    for _ in range(ROUNDS):
        color = [
            hash(
                (
                    color[c],
                    tuple(sorted((cost[n], tuple(sorted(color[k] for k in problem.children[n]))) for n in options[c])),
                    tuple(sorted(color[r] for r in readers[c])),
                )
            )
            for c in range(problem.classes)
        ]
    return color
