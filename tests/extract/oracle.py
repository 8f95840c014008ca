"""Random small extraction problems, and their optimum by enumeration."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import numpy as np

from eqsat.extract.problem import Budget, Choice, Problem

INF = float("inf")


def programs(problem: Problem) -> Iterator[dict[int, Choice]]:
    """All feasible programs, each once."""
    options: list[list[Choice]] = [[] for _ in range(problem.classes)]
    for node, klass in enumerate(problem.node_class.tolist()):
        for target in range(len(problem.targets)):
            if math.isfinite(problem.cost[node, target]):
                options[klass].append(Choice(node, target))

    def extend(chosen: dict[int, Choice], todo: list[int]) -> Iterator[dict[int, Choice]]:
        todo = [klass for klass in todo if klass not in chosen]
        if not todo:
            if ordered(problem, chosen) and affordable(problem, chosen) and math.isfinite(cost(problem, chosen)):
                yield dict(chosen)
            return
        klass, *rest = todo
        for choice in options[klass]:
            chosen[klass] = choice
            yield from extend(chosen, rest + list(problem.children[choice.node]))
            del chosen[klass]

    yield from extend({}, sorted(set(problem.roots)))


def ordered(problem: Problem, chosen: dict[int, Choice]) -> bool:
    left = dict(chosen)
    done: set[int] = set()
    while left:
        ready = [c for c, choice in left.items() if done.issuperset(problem.children[choice.node])]
        if not ready:
            return False
        done.update(ready)
        for c in ready:
            del left[c]
    return True


def affordable(problem: Problem, chosen: dict[int, Choice]) -> bool:
    return all(
        sum(budget.weight[choice.node] for choice in chosen.values()) <= budget.limit + 1e-9
        for budget in problem.budgets
    )


def cost(problem: Problem, chosen: dict[int, Choice]) -> float:
    """The definition, word for word: e-nodes, copies through the host, cheapest cut into regions."""
    total = sum(problem.cost[choice.node, choice.target] for choice in chosen.values())
    for klass, choice in chosen.items():
        where = {c.target for c in chosen.values() if klass in problem.children[c.node]}
        if klass in problem.roots:
            where.add(0)
        for target in where - {choice.target}:
            if target != 0:
                total += problem.copy_in[klass, target]
        if where - {choice.target} and choice.target != 0:
            total += problem.copy_out[klass, choice.target]
    classes = sorted(chosen)
    reads = [[classes.index(k) for k in problem.children[chosen[c].node]] for c in classes]
    return float(total + regions(reads, [chosen[c].target for c in classes], problem.dispatch))


def regions(reads: Sequence[Sequence[int]], target: Sequence[int], dispatch: Sequence[float]) -> float:
    """Cheapest partition into connected one-target parts that can be executed one after the other."""
    count = len(reads)
    if not any(dispatch[t] > 0 for t in target):
        return 0.0
    near: list[set[int]] = [set() for _ in range(count)]
    for v, before in enumerate(reads):
        for u in before:
            if target[u] == target[v]:
                near[u].add(v)
                near[v].add(u)
    best = INF
    part = [-1] * count

    def connected(nodes: list[int]) -> bool:
        seen = {nodes[0]}
        todo = [nodes[0]]
        while todo:
            for w in near[todo.pop()] & set(nodes):
                if w not in seen:
                    seen.add(w)
                    todo.append(w)
        return len(seen) == len(nodes)

    def acyclic(parts: int) -> bool:
        after = {(part[u], part[v]) for v in range(count) for u in reads[v] if part[u] != part[v]}
        left = set(range(parts))
        while left:
            free = {p for p in left if not any((q, p) in after for q in left)}
            if not free:
                return False
            left -= free
        return True

    def assign(v: int, parts: list[list[int]]) -> None:
        nonlocal best
        if v == count:
            price = sum(dispatch[target[nodes[0]]] for nodes in parts)
            if price < best and all(map(connected, parts)) and acyclic(len(parts)):
                best = price
            return
        for number, nodes in enumerate(parts):
            if target[nodes[0]] == target[v] and dispatch[target[v]] > 0:
                nodes.append(v)
                part[v] = number
                assign(v + 1, parts)
                nodes.pop()
        part[v] = len(parts)
        assign(v + 1, [*parts, [v]])

    assign(0, [])
    return best


def optimum(problem: Problem) -> float:
    """Cost of the best program, ``inf`` without one."""
    return min((cost(problem, chosen) for chosen in programs(problem)), default=INF)


def random_problem(seed: int, *, targets: int | None = None, cyclic: bool = True, most: int = 3000) -> Problem:
    """A small problem with everything in it: sharing, cycles, impossible places, copies, launches, budgets."""
    rng = random.Random(seed)
    while True:
        count = rng.randint(2, 7)
        width = rng.choice([1, 2, 2, 3]) if targets is None else targets
        order = list(range(count))
        rng.shuffle(order)
        rows: list[tuple[int, tuple[int, ...]]] = []
        for place, klass in enumerate(order):
            for _ in range(rng.choice([1, 1, 2, 2, 3])):
                pool = order if cyclic and rng.random() < 0.25 else order[:place]
                reads = rng.sample(pool, min(len(pool), rng.choice([0, 1, 1, 2, 2, 3]) if place else 0))
                rows.append((klass, tuple(sorted(set(reads)))))
        rng.shuffle(rows)
        nodes = len(rows)
        unit = rng.choice([1.0, 1e-5])
        price = np.array([[rng.choice([0, 1, 2, 3, 5, 8]) for _ in range(width)] for _ in range(nodes)], dtype=float)
        for node, target in itertools.product(range(nodes), range(width)):
            if rng.random() < (0.05 if target == 0 else 0.25):
                price[node, target] = INF
        copies = [
            np.array(
                [
                    [0.0 if t == 0 else rng.choice([0, 1, 2, 4] + [INF] * (rng.random() < 0.1)) for t in range(width)]
                    for _ in range(count)
                ]
            )
            for _ in range(2)
        ]
        launch = np.array([0.0] + [rng.choice([0, 1, 3, 6]) for _ in range(width - 1)])
        budgets = ()
        if rng.random() < 0.25:
            weight = np.array([rng.choice([0, 0, 1, 2]) for _ in range(nodes)], dtype=float)
            budgets = (Budget("noise", weight, float(rng.randint(0, 5))),)
        roots = tuple(sorted(rng.sample(order[count // 2 :], rng.choice([1, 1, 2]) if count - count // 2 > 1 else 1)))
        if math.prod(1 + np.isfinite(price[[c == k for c, _ in rows]]).sum() for k in range(count)) > 40 * most:
            continue
        return Problem(
            targets=tuple(f"t{i}" for i in range(width)),
            classes=count,
            node_class=np.array([c for c, _ in rows]),
            children=tuple(reads for _, reads in rows),
            cost=price * unit,
            copy_in=copies[0] * unit,
            copy_out=copies[1] * unit,
            dispatch=launch * unit,
            roots=roots,
            budgets=budgets,
        )


def launch_problem(seed: int) -> Problem:
    """A small problem in which launches decide: few spellings, many ways to cut."""
    rng = random.Random(seed)
    count = rng.randint(5, 8)
    width = rng.choice([2, 2, 3])
    rows: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for klass in range(1, count):
        reads = {rng.randrange(max(0, klass - 3), klass) for _ in range(rng.choice([1, 2, 2, 3]))}
        rows.append((klass, tuple(sorted(reads))))
        if rng.random() < 0.2:
            rows.append((klass, tuple(sorted({rng.randrange(klass) for _ in range(2)}))))
    price = np.array([[float(rng.randint(0, 4)) for _ in range(width)] for _ in rows])
    for node in range(len(rows)):
        kind = rng.random()
        if kind < 0.3:
            price[node, 1:] = INF
        elif kind < 0.55:
            price[node, [t for t in range(width) if t != rng.randrange(1, width)]] = INF
    copies = np.array([[0.0 if t == 0 else float(rng.choice([0, 0, 1])) for t in range(width)] for _ in range(count)])
    return Problem(
        targets=tuple(f"t{i}" for i in range(width)),
        classes=count,
        node_class=np.array([c for c, _ in rows]),
        children=tuple(reads for _, reads in rows),
        cost=price,
        copy_in=copies,
        copy_out=copies[::-1].copy(),
        dispatch=np.array([0.0] + [float(rng.choice([2, 5, 9])) for _ in range(width - 1)]),
        roots=tuple(sorted({count - 1, rng.randrange(count)})),
    )


def recurrent_problem(steps: int, rng: random.Random | None = None) -> Problem:
    """A recurrent network: each step adds a product with an input and one with the state, and then runs on the host.

    The sum can be computed on its own or by either product. In the end, the states of all steps are joined.

    Args:
        steps: Their number.
        rng: Draws the costs, and what cannot be computed where; by default the accelerator pays a little.
    """
    rows: list[tuple[int, tuple[int, ...], float, float]] = [(0, (), 0.0, INF), (1, (), 0.0, INF)]
    state, joined = 1, []
    for _ in range(steps):
        product, other, sum_, gate, following, side = range(rows[-1][0] + 1, rows[-1][0] + 7)
        rows.append((product, (0,), 60.0, 50.0))
        rows.append((other, (state,), 30.0, 25.0))
        rows += [(sum_, (product, other), 1.0, 2.0), (sum_, (0, other), INF, 50.5), (sum_, (product, state), INF, 25.5)]
        rows.append((gate, (sum_,), 1.0, INF))
        rows += [(following, (gate,), 1.0, 2.0), (side, (following,), 1.0, 2.0)]
        state = following
        joined.append(side)
    top = rows[-1][0] + 1
    rows.append((top, tuple(joined), 1.0, 2.0))
    cost = np.array([row[2:] for row in rows])
    copies = np.tile([0.0, 1.0], (top + 1, 1))
    launch = 5.0
    if rng is not None:
        cost = np.where(np.isfinite(cost), [[float(rng.randint(0, 9)) for _ in line] for line in cost], INF)
        for klass in range(2, top + 1):
            own = [n for n, row in enumerate(rows) if row[0] == klass]
            if len(own) == 1 and rng.random() < 0.4:
                cost[own[0], 0 if math.isfinite(cost[own[0], 1]) and rng.random() < 0.4 else 1] = INF
        copies[:, 1] = [float(rng.choice([0, 0, 1])) for _ in copies]
        launch = float(rng.choice([2, 5, 9]))
    return Problem(
        targets=("t0", "t1"),
        classes=top + 1,
        node_class=np.array([row[0] for row in rows]),
        children=tuple(row[1] for row in rows),
        cost=cost,
        copy_in=copies,
        copy_out=copies.copy(),
        dispatch=np.array([0.0, launch]),
        roots=(top,),
    )
