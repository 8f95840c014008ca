"""Finds good programs fast, with placement: the exact search starts from them.

Labels give the cost of having a class in a target's memory, and are found in the order of increasing cost. A label is
either a tree, in which shared work counts each time (Knuth 1977), or a set, in which it counts once (greedy DAG
extraction, which keeps for each class the set that its best program consists of). Either can be the better guide. From
the labels a program is built from the roots downwards. A class is reached only after all of its readers: then it is
known where its value is needed and which inputs other classes compute anyway. Classes read only classes that got their
first label earlier, which keeps the program acyclic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from eqsat.extract.cost import HOST, copies, needed, program_cost
from eqsat.extract.problem import Choice, Problem

INF = float("inf")
PENALTIES = (0.0, 0.25, 1.0, 4.0, 16.0)
PRECISE = 2.0**40
"""Limit of labels that count shared work each time it is read, in costs of the most expensive e-node.

They double with each residual connection, and beyond some 2**50 the cost of an e-node vanishes in their rounding.
"""
MOST_ITEMS = 5_000_000
"""Items of all labels that are sets. On a chain of n classes they are n² / 2."""


def greedy(problem: Problem) -> dict[int, Choice] | None:
    """The best of the greedy programs, children first; None if none was found."""
    best: tuple[float, dict[int, Choice]] | None = None
    for guide in _within_budgets(problem):
        for labels in (_tree_labels, _set_labels):
            choices = _assemble(guide, labels)
            if choices is None or not _keeps_budgets(problem, choices):
                continue
            cost = program_cost(problem, choices)
            if best is None or cost < best[0]:
                best = cost, choices
        if best is not None:
            return best[1]
    return None


def guided(problem: Problem, share: np.ndarray) -> tuple[float, dict[int, Choice]] | None:
    """The best program, and its cost, if e-nodes are the cheaper the more a solution uses them.

    Args:
        problem: The problem.
        share: Shape (nodes, targets), from 0 to 1: use in a solution that need not be a program.
    """
    cost = np.where(np.isfinite(problem.cost), problem.cost * (1.0 - np.clip(share, 0.0, 1.0)), INF)
    best: tuple[float, dict[int, Choice]] | None = None
    for labels in (_tree_labels, _set_labels):
        choices = _assemble(replace(problem, cost=cost), labels)
        if choices is not None and _keeps_budgets(problem, choices):
            price = program_cost(problem, choices)
            if best is None or price < best[0]:
                best = price, choices
    return best


def _keeps_budgets(problem: Problem, choices: dict[int, Choice]) -> bool:
    return all(
        math.fsum(float(budget.weight[choice.node]) for choice in choices.values()) <= budget.limit * (1 + 1e-12)
        for budget in problem.budgets
    )


def _within_budgets(problem: Problem) -> Iterator[Problem]:
    """The problem with ever higher prices on what the budgets limit."""
    yield problem
    if not problem.budgets:
        return
    usual = float(problem.cost[np.isfinite(problem.cost)].mean())
    share = np.zeros(problem.nodes)
    for budget in problem.budgets:
        heaviest = float(budget.weight.max(initial=0.0))
        if heaviest > 0:
            share += budget.weight / heaviest
    for penalty in PENALTIES[1:]:
        yield replace(problem, cost=problem.cost + (penalty * usual * share)[:, None])


class Labels:
    """Costs by (class, target's memory), and the order in which classes got their first.

    Attributes:
        held: ``held[c][d]``: to have class c in the memory of d, ``inf`` if impossible.
        rank: Per class its place in the order, -1 without label.
        paid: What a label consists of, by (class, target), if it is a set: costs by key, of which ``key // width`` is
            the class.
        width: Keys per class.
    """

    def __init__(self, problem: Problem) -> None:
        targets = len(problem.targets)
        self.held = [[INF] * targets for _ in range(problem.classes)]
        self.rank = [-1] * problem.classes
        self.paid: dict[tuple[int, int], dict[int, float]] | None = None
        self.width = 3 * targets


class Queue:
    """E-nodes on targets, offered when the last of their inputs is available."""

    def __init__(self, problem: Problem) -> None:
        self.cost = problem.cost.tolist()
        self.klass = problem.node_class.tolist()
        self.copy_in = problem.copy_in.tolist()
        self.copy_out = problem.copy_out.tolist()
        self.targets = len(problem.targets)
        self.readers: list[list[int]] = [[] for _ in range(problem.classes)]
        for node, children in enumerate(problem.children):
            for child in children:
                self.readers[child].append(node)
        self.missing = [[len(children)] * self.targets for children in problem.children]

    def arrivals(self, klass: int, target: int) -> Iterator[tuple[int, float]]:
        """The memories to which a value can be copied from a memory, with the costs: to the host, and from the host
        onwards.
        """
        if target != HOST:
            yield HOST, self.copy_out[klass][target]
        else:
            for other in range(1, self.targets):
                yield other, self.copy_in[klass][other]

    def completed(self, klass: int, target: int) -> Iterator[int]:
        """E-nodes that can run on the target now that the class is in its memory."""
        for node in self.readers[klass]:
            self.missing[node][target] -= 1
            if not self.missing[node][target] and self.cost[node][target] < INF:
                yield node


def _tree_labels(problem: Problem) -> Labels | None:
    """The cost of a class as a tree; on networks too deep for that, the cost of its most expensive path."""
    limit = PRECISE * float(problem.cost.max(initial=0.0, where=np.isfinite(problem.cost)))
    return _added_labels(problem, math.fsum, limit) or _added_labels(
        problem, lambda costs: max(costs, default=0.0), INF
    )


def _added_labels(problem: Problem, together: Callable[[Iterable[float]], float], limit: float) -> Labels | None:
    """Labels of the own cost of an e-node and that of its inputs together; None if one exceeds the limit."""
    labels = Labels(problem)
    queue = Queue(problem)
    heap: list[tuple[float, int, int]] = []
    for node, children in enumerate(problem.children):
        if not children:
            for target, cost in enumerate(queue.cost[node]):
                if cost < INF:
                    heappush(heap, (cost, queue.klass[node], target))
    order = 0
    while heap:
        value, klass, target = heappop(heap)
        held = labels.held[klass]
        if held[target] < INF:
            continue
        held[target] = value
        if labels.rank[klass] < 0:
            labels.rank[klass] = order
            order += 1
        for other, cost in queue.arrivals(klass, target):
            if value + cost < held[other]:
                heappush(heap, (value + cost, klass, other))
        for node in queue.completed(klass, target):
            reader = queue.klass[node]
            if labels.held[reader][target] == INF:
                below = together([labels.held[k][target] for k in problem.children[node]])
                if below > limit:
                    return None
                heappush(heap, (queue.cost[node][target] + below, reader, target))
    return labels


def _set_labels(problem: Problem) -> Labels | None:
    """The cost of a class if everything below it counts once; None if the sets would take too much memory."""
    labels = Labels(problem)
    left = MOST_ITEMS
    queue = Queue(problem)
    targets = queue.targets
    # Computing class c on d has a key, and so have copies from and to d.
    width = labels.width
    paid = labels.paid = {}
    heap: list[tuple[float, int, int, int]] = []
    waiting: list[dict[int, float]] = []

    def offer(klass: int, target: int, items: dict[int, float]) -> None:
        if labels.held[klass][target] == INF:
            heappush(heap, (sum(items.values()), klass, target, len(waiting)))
            waiting.append(items)

    for node, children in enumerate(problem.children):
        if not children:
            for target, cost in enumerate(queue.cost[node]):
                if cost < INF:
                    klass = queue.klass[node]
                    offer(klass, target, {klass * width + target: cost})
    order = 0
    while heap:
        value, klass, target, which = heappop(heap)
        items, waiting[which] = waiting[which], {}
        if labels.held[klass][target] < INF:
            continue
        labels.held[klass][target] = value
        paid[klass, target] = items
        left -= len(items)
        if left < 0:
            return None
        if labels.rank[klass] < 0:
            labels.rank[klass] = order
            order += 1
        for other, cost in queue.arrivals(klass, target):
            if cost < INF:
                key = klass * width + targets + (targets + target if other == HOST else other)
                offer(klass, other, {**items, key: cost})
        for node in queue.completed(klass, target):
            reader = queue.klass[node]
            if labels.held[reader][target] < INF:
                continue
            merged: dict[int, float] = {}
            for child in problem.children[node]:
                merged.update(paid[child, target])
            merged[reader * width + target] = queue.cost[node][target]
            offer(reader, target, merged)
    return labels


def _assemble(problem: Problem, find_labels: Callable[[Problem], Labels | None]) -> dict[int, Choice] | None:
    labels = find_labels(problem)
    if labels is None:
        return None
    rank = labels.rank
    options: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        options[klass].append(node)
    cost = problem.cost.tolist()
    copy_in = problem.copy_in.tolist()
    wanted: dict[int, set[int]] = {}
    heap: list[tuple[int, int]] = []

    def want(klass: int, target: int) -> None:
        if klass not in wanted:
            wanted[klass] = set()
            heappush(heap, (-rank[klass], klass))
        wanted[klass].add(target)

    for root in problem.roots:
        if rank[root] < 0:
            return None
        want(root, HOST)
    choices: dict[int, Choice] = {}
    while heap:
        _, klass = heappop(heap)
        best: tuple[float, Choice] | None = None
        moved = [copies(problem, klass, target, wanted[klass]) for target in range(len(problem.targets))]
        for node in options[klass]:
            children = problem.children[node]
            if any(rank[k] < 0 or rank[k] >= rank[klass] for k in children):
                continue
            for target, own in enumerate(cost[node]):
                total = own + moved[target]
                if total == INF or (best is not None and total >= best[0]):
                    continue
                total += _of_inputs(labels, children, target, wanted, copy_in)
                if total < INF and (best is None or total < best[0]):
                    best = total, Choice(node, target)
        if best is None:
            return None
        choices[klass] = best[1]
        for k in problem.children[best[1].node]:
            want(k, best[1].target)
    return needed(problem, choices)


def _of_inputs(
    labels: Labels, children: tuple[int, ...], target: int, wanted: dict[int, set[int]], copy_in: list[list[float]]
) -> float:
    """The cost of the inputs of an e-node, if inputs that others compute anyway cost at most their copy."""
    total = 0.0
    merged: dict[int, float] = {}
    for k in children:
        if k in wanted:
            if target not in wanted[k]:
                total += min(labels.held[k][target], copy_in[k][target])
        elif labels.held[k][target] == INF or labels.paid is None:
            total += labels.held[k][target]
        else:
            merged.update(labels.paid[k, target])
    return total + sum(value for key, value in merged.items() if key // labels.width not in wanted)
