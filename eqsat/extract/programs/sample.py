"""Programs that are not meant to be good: an expensive one that is easy to find, and random ones.

Both test the rules that filled the e-graph. All programs must compute the same, so a program that an ordinary
extraction would never choose can reveal a wrong rule (as PolyJuice does with compilers, Zhou et al. 2024).

Classes are ranked by the order in which they become derivable, and an e-node is taken only if its inputs rank
lower. With a random order every acyclic program can be drawn: its order of execution is one of the possible orders.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from heapq import heappop, heappush

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import HOST, check, copies, needed, program_cost
from eqsat.extract.programs.greedy import INF, Queue

ATTEMPTS = 50
ENOUGH = 15
LARGE = 1e250

Pick = Callable[[list[Choice], list[float]], Choice]
"""Picks one of the possible choices for a class, given the cost per target of bringing the value to its readers."""


def random_program(problem: Problem, seed: int) -> dict[int, Choice] | None:
    """A random program, children first; None if none was found within the attempts."""
    rng = random.Random(seed)
    for _ in range(ATTEMPTS):
        rank, _ = _ranks(problem, rng)
        choices = _grow(problem, rank, lambda options, _: rng.choice(options))
        if choices is not None:
            return choices
    return None


def costly_program(problem: Problem, seed: int) -> dict[int, Choice] | None:
    """The most expensive of some programs that choose costly e-nodes wherever they can, children first."""
    rng = random.Random(seed)
    cost = problem.cost.tolist()
    best: tuple[float, dict[int, Choice]] | None = None
    for attempt in range(ATTEMPTS):
        rank, order = _ranks(problem, rng)
        values = _costliest(problem, rank, order) if attempt % 3 == 0 else [0.0] * problem.classes

        def costliest(options: list[Choice], moved: list[float], values: list[float] = values) -> Choice:
            def worth(choice: Choice) -> float:
                below = math.fsum(values[k] for k in problem.children[choice.node])
                return cost[choice.node][choice.target] + moved[choice.target] + below

            return max(options, key=worth)

        def anything(options: list[Choice], moved: list[float]) -> Choice:
            return rng.choice(options)

        choices = _grow(problem, rank, anything if attempt % 3 == 2 else costliest)
        if choices is not None:
            total = program_cost(problem, choices)
            if best is None or total > best[0]:
                best = total, choices
        if best is not None and attempt >= ENOUGH:
            break
    return None if best is None else best[1]


def _ranks(problem: Problem, rng: random.Random) -> tuple[list[int], list[int]]:
    """A random order of derivation: per class its rank (-1: underivable), and the classes in this order."""
    queue = Queue(problem)
    rank = [-1] * problem.classes
    order: list[int] = []
    arrived: set[tuple[int, int]] = set()
    heap: list[tuple[float, int, int]] = []
    for node, children in enumerate(problem.children):
        if not children:
            for target, cost in enumerate(queue.cost[node]):
                if cost < INF:
                    heappush(heap, (rng.random(), queue.klass[node], target))
    while heap:
        _, klass, target = heappop(heap)
        if (klass, target) in arrived:
            continue
        arrived.add((klass, target))
        if rank[klass] < 0:
            rank[klass] = len(order)
            order.append(klass)
        for other, cost in queue.arrivals(klass, target):
            if cost < INF and (klass, other) not in arrived:
                heappush(heap, (rng.random(), klass, other))
        for node in queue.completed(klass, target):
            if (queue.klass[node], target) not in arrived:
                heappush(heap, (rng.random(), queue.klass[node], target))
    return rank, order


def _costliest(problem: Problem, rank: list[int], order: list[int]) -> list[float]:
    """Per class the largest cost of a program seen as a tree."""
    options: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        options[klass].append(node)
    cost = problem.cost.tolist()
    values = [0.0] * problem.classes
    for klass in order:
        for node in options[klass]:
            children = problem.children[node]
            if all(0 <= rank[k] < rank[klass] for k in children):
                own = max((c for c in cost[node] if c < INF), default=0.0)
                values[klass] = min(LARGE, max(values[klass], own + math.fsum(values[k] for k in children)))
    return values


def _grow(problem: Problem, rank: list[int], pick: Pick) -> dict[int, Choice] | None:
    """A program from the roots downwards, with a free choice at each class; None if it ended in a dead end."""
    options: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        options[klass].append(node)
    cost = problem.cost.tolist()
    wanted: dict[int, set[int]] = {}
    heap: list[tuple[int, int]] = []

    def want(klass: int, target: int) -> None:
        if klass not in wanted:
            wanted[klass] = set()
            heappush(heap, (-rank[klass], klass))
        wanted[klass].add(target)

    for root in problem.roots:
        want(root, HOST)
    choices: dict[int, Choice] = {}
    while heap:
        _, klass = heappop(heap)
        if rank[klass] < 0:
            return None
        moved = [copies(problem, klass, target, wanted[klass]) for target in range(len(problem.targets))]
        possible = [
            Choice(node, target)
            for node in options[klass]
            if all(0 <= rank[k] < rank[klass] for k in problem.children[node])
            for target, own in enumerate(cost[node])
            if own < INF and moved[target] < INF
        ]
        if not possible:
            return None
        choices[klass] = pick(possible, moved)
        for child in problem.children[choices[klass].node]:
            want(child, choices[klass].target)
    program = needed(problem, choices)
    try:
        check(problem, program or {})
    except ValueError:
        # A budget: the next attempt may be lucky.
        return None
    return program
