"""Classes that all parts of a problem read, such as the mask of all attentions of a transformer.

It keeps the problem from falling into parts: no separator encloses what lies below it. So it is computed first, apart
from the rest: for each set of memories in which its results may lie, there is a cheapest program that brings them
there. The rest reads them where they lie, at no cost, and falls into parts (``eqsat.extract.parts``). The cheapest sum
is the cheapest program, up to the launches of the context, which are left out of the bound and counted in the price.

A result that an accelerator can compute may join those that read it there. The rest has a free class for it then, of
which each part has a copy (``eqsat.extract.split``): what a region gains by the result it gains in each part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import HOST
from eqsat.extract.reduce.class_dominators import Dominators, members
from eqsat.extract.split import LEAST_CLASSES, reach_and_enclosed

INF = float("inf")
LARGEST = 60
"""Classes of a context."""
MOST_STATES = 256
"""Sets of memories in which the results of a context may lie."""

MakersState = tuple[tuple[int, ...], ...]
Makers = Mapping[int, int]
"""The targets that compute some of the results; any target may compute the others."""


@dataclass(frozen=True)
class SharedClasses:
    """Classes that parts share.

    Attributes:
        classes: These classes and all classes below them, ascending.
        results: Those of them that other classes read.
        places: For each result the sets of memories in which it may lie, the set of all memories first.
        joining: The results that can be in one region with what reads them.
    """

    classes: list[int]
    results: list[int]
    places: list[list[tuple[int, ...]]]
    joining: list[int]

    def states(self) -> Iterator[MakersState]:
        """The sets of memories in which the results may lie, in the order of the results; the easiest first."""
        yield from product(*self.places)

    def makers(self, problem: Problem) -> Iterator[Makers]:
        """The targets that may compute the results that can join others."""
        able = np.isfinite(problem.cost)
        ways = [np.flatnonzero(able[problem.node_class == c].any(axis=0)).tolist() for c in self.joining]
        for targets in product(*ways):
            yield dict(zip(self.joining, targets, strict=True))


def find_context(problem: Problem, dominators: Dominators) -> SharedClasses | None:
    """The classes that keep most others from being separators; None if no small set does."""
    if problem.budgets or problem.classes < 2 * LEAST_CLASSES:
        return None
    reach, enclosed = reach_and_enclosed(problem, dominators)
    shared = Counter(
        mask & ~own
        for mask, own in zip(reach, enclosed, strict=True)
        if own.bit_count() >= LEAST_CLASSES and 0 < (mask & ~own).bit_count() <= LARGEST
    )
    # In an e-graph with cycles, a shared class may read a part again.
    read = [0] * problem.classes
    for klass, children in zip(problem.node_class.tolist(), problem.children, strict=True):
        for child in children:
            read[klass] |= 1 << child
    closed = [(m, n) for m, n in shared.items() if not any(read[c] & ~m for c in members(m, problem.classes).tolist())]
    if not closed:
        return None
    most = max(closed, key=lambda item: (item[1], -item[0].bit_count(), item[0]))[0]
    classes = members(most, problem.classes).tolist()
    inside = set(classes)
    others: dict[int, list[int]] = {}
    for node, klass in enumerate(problem.node_class.tolist()):
        if klass not in inside:
            for child in problem.children[node]:
                if child in inside:
                    others.setdefault(child, []).append(node)
    results = sorted(others)
    if inside & set(problem.roots):
        return None
    places = [_places(problem, dominators, c, others[c]) for c in results]
    if prod(map(len, places)) > MOST_STATES:
        return None
    joining = [c for c in results if _joins(problem, dominators, c, others[c])]
    return SharedClasses(classes, results, places, joining)


def _joins(problem: Problem, dominators: Dominators, klass: int, readers: list[int]) -> bool:
    """Whether a class can be in one region with e-nodes that read it."""
    able = np.isfinite(problem.cost)
    together = able[dominators.options[klass]].any(axis=0) & able[readers].any(axis=0)
    return bool((together & (problem.dispatch > 0)).any())


def _places(problem: Problem, dominators: Dominators, klass: int, readers: list[int]) -> list[tuple[int, ...]]:
    """The sets of memories in which a class may lie for its readers, without those that are as dear as a larger one."""
    able = np.isfinite(problem.cost)
    read = np.flatnonzero(able[readers].any(axis=0)).tolist()
    made = np.flatnonzero(able[dominators.options[klass]].any(axis=0)).tolist()
    always = dominators.of_roots() >> klass & 1 and set(made) <= set(read)
    found = []
    for bits in range((1 << len(read)) - 1, -1, -1):
        memories = tuple(t for i, t in enumerate(read) if bits >> i & 1)
        # From one accelerator to another, and to one that does not compute it, a value comes through the host's memory.
        through_host = HOST in read and HOST not in memories and (len(memories) > 1 or not set(memories) <= set(made))
        if not (through_host or (always and not memories)):
            found.append(memories)
    return found


def context_problem(
    problem: Problem, context: SharedClasses, state: MakersState, makers: Makers
) -> tuple[Problem, list[int]]:
    """The problem of bringing a context's results into memories, where some of them are computed on given targets.

    Returns:
        The problem, without launches, and its e-nodes as those of the whole, -1 for what reads a result.
    """
    number = {c: i for i, c in enumerate(context.classes)}
    nodes = [n for n, klass in enumerate(problem.node_class.tolist()) if klass in number]
    arrivals = [(c, t) for c, memories in zip(context.results, state, strict=True) for t in memories]
    first, targets = len(number), len(problem.targets)
    cost = np.full((len(nodes) + len(arrivals), targets), INF)
    cost[: len(nodes)] = problem.cost[nodes]
    for row, node in enumerate(nodes):
        maker = makers.get(int(problem.node_class[node]))
        if maker is not None:
            cost[row, [t for t in range(targets) if t != maker]] = INF
    for row, (_, target) in enumerate(arrivals, len(nodes)):
        cost[row, target] = 0.0
    nothing = np.zeros((len(arrivals), targets))
    own = range(first, first + len(arrivals))
    smaller = replace(
        problem,
        classes=first + len(arrivals),
        node_class=np.array([*(number[int(problem.node_class[n])] for n in nodes), *own]),
        children=(
            *(tuple(sorted(number[k] for k in problem.children[n])) for n in nodes),
            *((number[c],) for c, _ in arrivals),
        ),
        cost=cost,
        copy_in=np.concatenate([problem.copy_in[context.classes], nothing]),
        copy_out=np.concatenate([problem.copy_out[context.classes], nothing]),
        dispatch=np.zeros(targets),
        roots=tuple(own),
    )
    return smaller, [*nodes, *[-1] * len(arrivals)]


def rest_problem(
    problem: Problem, context: SharedClasses, state: MakersState, makers: Makers
) -> tuple[Problem, list[int], list[int]]:
    """The problem of all other classes, for given memories of a context's results.

    What the host computes joins nothing.

    Returns:
        The problem; its e-nodes and its classes, as those of the whole, with -1 for the e-node of a result.
    """
    inside = set(context.classes)
    lies = dict(zip(context.results, state, strict=True))
    free = context.joining
    classes = [c for c in range(problem.classes) if c not in inside or c in free]
    number = {c: i for i, c in enumerate(classes)}
    nodes = [n for n, klass in enumerate(problem.node_class.tolist()) if klass not in inside]
    cost = np.full((len(nodes) + len(free), len(problem.targets)), INF)
    cost[: len(nodes)] = problem.cost[nodes]
    for row, node in enumerate(nodes):
        for child in problem.children[node]:
            if child in inside:
                cost[row, [t for t in range(len(problem.targets)) if t not in lies[child]]] = INF
    copy_in, copy_out = problem.copy_in[classes], problem.copy_out[classes]
    for row, c in enumerate(free, len(nodes)):
        cost[row, [HOST] if makers.get(c) == HOST else list(lies[c])] = 0.0
        copy_in[number[c]] = copy_out[number[c]] = 0.0
    smaller = replace(
        problem,
        classes=len(classes),
        node_class=np.array([*(number[int(problem.node_class[n])] for n in nodes), *(number[c] for c in free)]),
        children=(*(tuple(number[k] for k in problem.children[n] if k in number) for n in nodes), *(() for _ in free)),
        cost=cost,
        copy_in=copy_in,
        copy_out=copy_out,
        roots=tuple(number[r] for r in problem.roots),
    )
    return smaller, [*nodes, *(-1 for _ in free)], classes


def chosen_of(problem: Problem, nodes: list[int], choices: dict[int, Choice]) -> dict[int, Choice]:
    """Choices of a smaller problem as choices of the whole; e-nodes outside of it are left out."""
    found = [(nodes[choice.node], choice.target) for choice in choices.values()]
    return {int(problem.node_class[n]): Choice(n, t) for n, t in found if n >= 0}
