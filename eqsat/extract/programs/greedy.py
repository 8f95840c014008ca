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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import HOST, copies, needed, program_cost, readers

INF = float("inf")
PENALTIES = (0.0, 0.25, 1.0, 4.0, 16.0)
PRECISE = 2.0**40
"""Limit of labels that count shared work each time it is read, in costs of the most expensive e-node.

They double with each residual connection, and beyond some 2**50 the cost of an e-node vanishes in their rounding.
"""
MOST_ITEMS = 100_000_000
"""Items of all labels that are sets, of 4 bytes each. On a chain of n classes they are n² / 2."""


def greedy(problem: Problem) -> dict[int, Choice] | None:
    """The best of the greedy programs, children first; None if none was found."""
    for guide in _within_budgets(problem):
        best = _best(problem, guide)
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
    return _best(problem, replace(problem, cost=cost))


def _best(problem: Problem, guide: Problem) -> tuple[float, dict[int, Choice]] | None:
    """The best program that the labels of a guide lead to, and its cost; a guide is the problem with other costs."""
    best: tuple[float, dict[int, Choice]] | None = None
    for find_labels in (_tree_labels, _set_labels):
        labels = find_labels(guide)
        if labels is None:
            continue
        for build in (_assemble, _read_off):
            choices = build(guide, labels)
            if choices is None or not _keeps_budgets(problem, choices):
                continue
            cost = program_cost(problem, choices)
            if best is None or cost < best[0]:
                best = cost, choices
    return best


def _keeps_budgets(problem: Problem, choices: dict[int, Choice]) -> bool:
    return all(
        math.fsum(float(budget.weight[choice.node]) for choice in choices.values()) <= budget.limit * (1 + 1e-12)
        for budget in problem.budgets
    )


def _within_budgets(problem: Problem) -> Iterator[Problem]:
    """The problem with increasing prices on the weights that budgets limit."""
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
        source: ``source[c][d]``: the e-node that computes it there, or ``-1 - e`` if it is copied from the memory of e.
        paid: What a label consists of, by (class, target), if it is a set: keys; ``key // width`` is the class.
        price: Per key its cost.
        width: Keys per class.
    """

    def __init__(self, problem: Problem) -> None:
        targets = len(problem.targets)
        self.held = [[INF] * targets for _ in range(problem.classes)]
        self.rank = [-1] * problem.classes
        self.source = [[0] * targets for _ in range(problem.classes)]
        self.paid: dict[tuple[int, int], np.ndarray] | None = None
        self.width = 3 * targets
        self.price = np.zeros(0)
        self._last = np.zeros(0, dtype=np.int32)

    def set_up(self, classes: int) -> dict[tuple[int, int], np.ndarray]:
        """Let the labels be sets."""
        self.price = np.zeros(classes * self.width)
        self._last = np.zeros(classes * self.width, dtype=np.int32)
        self.paid = {}
        return self.paid

    def union(self, sets: Sequence[np.ndarray]) -> np.ndarray:
        """The keys of some sets, each once."""
        if len(sets) < 2:
            return sets[0] if sets else np.zeros(0, dtype=np.int32)
        keys = np.concatenate(sets)
        places = np.arange(len(keys), dtype=np.int32)
        self._last[keys] = places
        return keys[self._last[keys] == places]


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
    heap: list[tuple[float, int, int, int]] = []
    for node, children in enumerate(problem.children):
        if not children:
            for target, cost in enumerate(queue.cost[node]):
                if cost < INF:
                    heappush(heap, (cost, queue.klass[node], target, node))
    order = 0
    while heap:
        value, klass, target, source = heappop(heap)
        held = labels.held[klass]
        if held[target] < INF:
            continue
        held[target] = value
        labels.source[klass][target] = source
        if labels.rank[klass] < 0:
            labels.rank[klass] = order
            order += 1
        for other, cost in queue.arrivals(klass, target):
            if value + cost < held[other]:
                heappush(heap, (value + cost, klass, other, -1 - target))
        for node in queue.completed(klass, target):
            reader = queue.klass[node]
            if labels.held[reader][target] == INF:
                below = together([labels.held[k][target] for k in problem.children[node]])
                if below > limit:
                    return None
                heappush(heap, (queue.cost[node][target] + below, reader, target, node))
    return labels


def _set_labels(problem: Problem) -> Labels | None:
    """The cost of a class if everything below it counts once; None if the sets would take too much memory."""
    labels = Labels(problem)
    left = MOST_ITEMS
    queue = Queue(problem)
    targets = queue.targets
    # Computing class c on d has a key, and so have copies from and to d.
    width = labels.width
    paid = labels.set_up(problem.classes)
    heap: list[tuple[float, int, int, int]] = []
    waiting: list[tuple[np.ndarray, int, float, int]] = []

    def offer(klass: int, target: int, below: np.ndarray, key: int, cost: float, source: int) -> None:
        if labels.held[klass][target] == INF:
            heappush(heap, (float(labels.price[below].sum()) + cost, klass, target, len(waiting)))
            waiting.append((below, key, cost, source))

    nothing = np.zeros(0, dtype=np.int32)
    for node, children in enumerate(problem.children):
        if not children:
            for target, cost in enumerate(queue.cost[node]):
                if cost < INF:
                    klass = queue.klass[node]
                    offer(klass, target, nothing, klass * width + target, cost, node)
    order = 0
    while heap:
        value, klass, target, which = heappop(heap)
        (below, key, cost, source), waiting[which] = waiting[which], (nothing, 0, 0.0, 0)
        if labels.held[klass][target] < INF:
            continue
        labels.held[klass][target] = value
        labels.source[klass][target] = source
        labels.price[key] = cost
        paid[klass, target] = np.append(below, np.int32(key))
        left -= len(below) + 1
        if left < 0:
            return None
        if labels.rank[klass] < 0:
            labels.rank[klass] = order
            order += 1
        for other, cost in queue.arrivals(klass, target):
            if cost < INF:
                key = klass * width + targets + (targets + target if other == HOST else other)
                offer(klass, other, paid[klass, target], key, cost, -1 - target)
        for node in queue.completed(klass, target):
            reader = queue.klass[node]
            if labels.held[reader][target] == INF:
                merged = labels.union([paid[child, target] for child in problem.children[node]])
                offer(reader, target, merged, reader * width + target, queue.cost[node][target], node)
    return labels


def _read_off(problem: Problem, labels: Labels) -> dict[int, Choice] | None:
    """The program that the labels of the roots represent; a class is computed where its first reader has it from."""
    choices: dict[int, Choice] = {}
    waiting = [(root, HOST) for root in problem.roots]
    for klass, target in waiting:
        if klass in choices:
            continue
        if labels.held[klass][target] == INF:
            return None
        while (source := labels.source[klass][target]) < 0:
            target = -1 - source
        choices[klass] = Choice(source, target)
        waiting += [(child, target) for child in problem.children[source]]
    choices = needed(problem, choices) or {}
    return choices if choices and _can_copy(problem, choices) else None


def _can_copy(problem: Problem, choices: Mapping[int, Choice]) -> bool:
    read = readers(problem, choices)
    return all(copies(problem, c, choice.target, read[c]) < INF for c, choice in choices.items())


def _assemble(problem: Problem, labels: Labels) -> dict[int, Choice] | None:
    """A program from the roots downwards: for each class the e-node that adds least to what is computed already."""
    rank = labels.rank
    options: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        options[klass].append(node)
    cost = problem.cost.tolist()
    copy_in = problem.copy_in.tolist()
    wanted: dict[int, set[int]] = {}
    is_open = np.ones(problem.classes, dtype=bool)
    heap: list[tuple[int, int]] = []

    def want(klass: int, target: int) -> None:
        if klass not in wanted:
            wanted[klass] = set()
            is_open[klass] = False
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
                total += _of_inputs(labels, children, target, wanted, is_open, copy_in)
                if total < INF and (best is None or total < best[0]):
                    best = total, Choice(node, target)
        if best is None:
            return None
        choices[klass] = best[1]
        for k in problem.children[best[1].node]:
            want(k, best[1].target)
    return needed(problem, choices)


def _of_inputs(
    labels: Labels,
    children: tuple[int, ...],
    target: int,
    wanted: dict[int, set[int]],
    is_open: np.ndarray,
    copy_in: list[list[float]],
) -> float:
    """The cost of the inputs of an e-node, if inputs that others compute anyway cost at most their copy."""
    total = 0.0
    sets = []
    for k in children:
        if k in wanted:
            if target not in wanted[k]:
                total += min(labels.held[k][target], copy_in[k][target])
        elif labels.held[k][target] == INF or labels.paid is None:
            total += labels.held[k][target]
        else:
            sets.append(labels.paid[k, target])
    if sets:
        keys = labels.union(sets)
        total += float(labels.price[keys[is_open[keys // labels.width]]].sum())
    return total
