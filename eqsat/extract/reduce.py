"""Make an extraction problem smaller without changing what the best program costs.

What goes: e-nodes that cannot be part of a program (unreachable, underivable where they would run, in need of their own
class), e-nodes that another of their class can replace at no loss, classes that cost nothing in any case,
and classes that only one other reads, which are folded into it. Each step is exact under the whole definition of
cost, launches of regions included; that is why some of them ask for a host-only or launch-free neighbourhood.
Known from extraction by integer programming (Yang et al. 2021, TENSAT; Goharshady et al. 2024), as is the name of the
last one: variable elimination.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from eqsat.extract.cost import HOST, needed
from eqsat.extract.problem import Choice, Problem

INF = float("inf")


@dataclass(frozen=True)
class Reduced:
    """A smaller problem with the same optimal value, and the way back.

    Attributes:
        problem: The smaller problem.
        origin: Per e-node and target the e-nodes of the original problem it stands for, all on that target;
            None where it cannot run.
        free: Class -> e-node of the original problem for classes that were left out since they cost nothing.
        original: The problem this is a reduction of.
        feasible: False if some root cannot be derived at all.
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


@dataclass
class _Option:
    """An e-node while the problem shrinks: costs, origins and budget weights by target and budget."""

    reads: frozenset[int]
    cost: list[float]
    origin: list[tuple[int, ...] | None]
    weight: tuple[float, ...]

    @property
    def targets(self) -> list[int]:
        return [target for target, cost in enumerate(self.cost) if cost < INF]


class _Shrinking:
    """The problem as options by class, which the steps edit in place."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.roots = sorted(set(problem.roots))
        self.free: dict[int, int] = {}
        self.launch = [d > 0 for d in problem.dispatch.tolist()]
        self.copy_in = problem.copy_in.tolist()
        self.copy_out = problem.copy_out.tolist()
        self.options: dict[int, list[_Option]] = defaultdict(list)
        weights = [budget.weight.tolist() for budget in problem.budgets]
        rows = zip(problem.node_class.tolist(), problem.children, problem.cost.tolist(), strict=True)
        for node, (klass, reads, cost) in enumerate(rows):
            weight = tuple(w[node] for w in weights)
            self.options[klass].append(_Option(frozenset(reads), cost, [(node,)] * len(cost), weight))

    def readers(self) -> dict[int, list[tuple[int, _Option]]]:
        """Per class who reads it."""
        found: dict[int, list[tuple[int, _Option]]] = {klass: [] for klass in self.options}
        for klass, options in self.options.items():
            for option in options:
                for child in option.reads:
                    if child in found:
                        found[child].append((klass, option))
        return found

    def drop_underivable(self) -> None:
        """Keep an option on a target only if its inputs can get there without the option's own help."""
        targets = range(len(self.problem.targets))
        readers = self.readers()
        missing = {id(o): [len(o.reads)] * len(o.cost) for options in self.options.values() for o in options}
        made: dict[int, list[bool]] = {klass: [False] * len(targets) for klass in self.options}
        arrived: set[tuple[int, int]] = set()
        todo: list[tuple[int, int]] = []

        def produced(klass: int, target: int) -> None:
            arrive(klass, target)
            if target != HOST and self.copy_out[klass][target] < INF:
                arrive(klass, HOST)

        def arrive(klass: int, target: int) -> None:
            if (klass, target) not in arrived:
                arrived.add((klass, target))
                todo.append((klass, target))
                if target == HOST:
                    for other in targets:
                        if self.copy_in[klass][other] < INF:
                            arrive(klass, other)

        for klass, options in self.options.items():
            for option in options:
                if not option.reads:
                    for target in option.targets:
                        produced(klass, target)
        while todo:
            klass, target = todo.pop()
            for reader, option in readers[klass]:
                left = missing[id(option)]
                left[target] -= 1
                if not left[target] and option.cost[target] < INF and reader not in option.reads:
                    produced(reader, target)
        for klass, options in self.options.items():
            kept = []
            for option in options:
                left = missing[id(option)]
                if klass not in option.reads:
                    option.cost = [cost if not left[t] else INF for t, cost in enumerate(option.cost)]
                    if min(option.cost) < INF:
                        kept.append(option)
            self.options[klass] = kept

    def drop_unreachable(self) -> None:
        """Keep what the roots can ask for."""
        seen = set(self.roots)
        todo = list(self.roots)
        while todo:
            for option in self.options[todo.pop()]:
                for child in option.reads:
                    if child not in seen:
                        seen.add(child)
                        todo.append(child)
        self.options = {klass: options for klass, options in self.options.items() if klass in seen}

    def merge_duplicates(self) -> None:
        """One option for each set of inputs (and budget weights), the cheapest e-node on each target."""
        for klass, options in self.options.items():
            if len(options) == 1:
                continue
            unlike: dict[tuple[frozenset[int], tuple[float, ...]], _Option] = {}
            for option in options:
                first = unlike.setdefault((option.reads, option.weight), option)
                if first is not option:
                    for target, cost in enumerate(option.cost):
                        if cost < first.cost[target]:
                            first.cost[target] = cost
                            first.origin[target] = option.origin[target]
            self.options[klass] = list(unlike.values())

    def drop_dominated(self) -> None:
        """Drop, by target, what another option of the class does at no higher cost from fewer inputs.

        To leave out an input can cost launches: what hung together through it falls apart. So inputs below which
        anything could be on a target with a launch cost must not be among those left out.
        """
        touchy = self._touchy()
        for klass, options in self.options.items():
            if len(options) == 1:
                continue
            ranked = sorted(options, key=lambda option: len(option.reads))
            kept: list[_Option] = []
            for option in ranked:
                for other in kept:
                    if other.reads <= option.reads and all(
                        a <= b for a, b in zip(other.weight, option.weight, strict=True)
                    ):
                        better = [a <= b < INF for a, b in zip(other.cost, option.cost, strict=True)]
                        if any(better) and not (option.reads - other.reads) & touchy:
                            option.cost = [INF if yes else b for yes, b in zip(better, option.cost, strict=True)]
                            if min(option.cost) == INF:
                                break
                else:
                    kept.append(option)
            self.options[klass] = kept

    def _touchy(self) -> set[int]:
        """Classes from which something on a target with a launch cost can be reached."""
        readers = self.readers()
        found = {
            klass for klass, options in self.options.items()
            if any(self.launch[t] for option in options for t in option.targets)
        }
        todo = sorted(found)
        while todo:
            for reader, _ in readers[todo.pop()]:
                if reader not in found:
                    found.add(reader)
                    todo.append(reader)
        return found

    def drop_free(self) -> None:
        """Leave out classes that cost nothing wherever they are read, all of their inputs being such classes."""
        readers = self.readers()
        todo = [klass for klass, options in self.options.items() if any(not option.reads for option in options)]
        queued = set(todo)
        gone: set[int] = set()
        while todo:
            klass = todo.pop()
            queued.discard(klass)
            if klass in self.roots or klass in gone:
                continue
            if any(self.launch[t] for option in self.options[klass] for t in option.targets):
                continue
            if any(self.copy_in[klass][t] > 0 for _, option in readers[klass] for t in option.targets):
                continue
            for option in self.options[klass]:
                origin = option.origin[HOST]
                if option.cost[HOST] == 0 and option.reads <= gone and not any(option.weight) and origin is not None:
                    gone.add(klass)
                    for node in origin:
                        self.free[int(self.problem.node_class[node])] = node
                    for reader, _ in readers[klass]:
                        if reader not in gone and reader not in queued:
                            queued.add(reader)
                            todo.append(reader)
                    break
        for klass in gone:
            del self.options[klass]
        for options in self.options.values():
            for option in options:
                if not option.reads.isdisjoint(gone):
                    option.reads -= gone

    def fold(self) -> bool:
        """Fold classes into their readers, where both must be on one target without a launch cost.

        A class that one other class reads goes into it, if that does not multiply options; a class with a single
        option that costs nothing goes into all of its readers.
        """
        readers = self.readers()
        changed = False
        settled = {klass: self._settled(options) for klass, options in self.options.items()}
        for klass in list(self.options):
            inner = self.options[klass]
            above = readers[klass]
            target = settled[klass]
            if klass in self.roots or target is None or not above:
                continue
            above = [(reader, o) for reader, o in above if klass in o.reads and o in self.options.get(reader, ())]
            outside = {reader for reader, _ in above}
            if klass in outside or any(settled[reader] != target for reader in outside):
                continue
            free = len(inner) == 1 and inner[0].cost[target] == 0 and not any(inner[0].weight)
            alone = len(outside) == 1 and len(inner) * len(above) <= max(len(inner), len(above))
            if not (free or alone):
                continue
            changed = True
            for reader, option in above:
                merged = [self._folded(klass, option, below, target) for below in inner]
                new = [m for m in merged if reader not in m.reads]
                rest = [o for o in self.options[reader] if o is not option]
                self.options[reader] = rest + new
                for m in new:
                    for child in m.reads:
                        readers[child].append((reader, m))
            del self.options[klass]
        return changed

    def _settled(self, options: list[_Option]) -> int | None:
        """The one target that a class can be on, if its regions cost nothing."""
        targets = {t for option in options for t in option.targets}
        if len(targets) == 1:
            (target,) = targets
            return None if self.launch[target] else target
        return None

    def _folded(self, klass: int, option: _Option, below: _Option, target: int) -> _Option:
        cost = [INF] * len(option.cost)
        cost[target] = option.cost[target] + below.cost[target]
        origin: list[tuple[int, ...] | None] = [None] * len(cost)
        origin[target] = (option.origin[target] or ()) + (below.origin[target] or ())
        weight = tuple(a + b for a, b in zip(option.weight, below.weight, strict=True))
        return _Option((option.reads - {klass}) | below.reads, cost, origin, weight)

    def feasible(self) -> bool:
        return all(self.options.get(root) for root in self.roots)

    def size(self) -> tuple[int, int]:
        return len(self.options), sum(len(options) for options in self.options.values())

    def result(self) -> Reduced:
        classes = sorted(self.options)
        number = {klass: position for position, klass in enumerate(classes)}
        flat = [(number[klass], option) for klass in classes for option in self.options[klass]]
        shape = (len(flat), len(self.problem.targets))
        smaller = replace(
            self.problem,
            classes=len(classes),
            node_class=np.array([klass for klass, _ in flat], dtype=np.int64),
            children=tuple(tuple(sorted(number[k] for k in option.reads)) for _, option in flat),
            cost=np.array([option.cost for _, option in flat], dtype=np.float64).reshape(shape),
            copy_in=self.problem.copy_in[classes].reshape(len(classes), shape[1]),
            copy_out=self.problem.copy_out[classes].reshape(len(classes), shape[1]),
            roots=tuple(number[root] for root in self.roots),
            budgets=tuple(
                replace(budget, weight=np.array([option.weight[i] for _, option in flat], dtype=np.float64))
                for i, budget in enumerate(self.problem.budgets)
            ),
        )
        origin = [
            tuple(o if cost < INF else None for o, cost in zip(option.origin, option.cost, strict=True))
            for _, option in flat
        ]
        return Reduced(smaller, origin, self.free, self.problem, self.feasible())


def reduce_problem(problem: Problem) -> Reduced:
    """Apply all reductions until nothing changes."""
    shrinking = _Shrinking(problem)
    while True:
        before = shrinking.size()
        shrinking.drop_underivable()
        if not shrinking.feasible():
            return shrinking.result()
        shrinking.drop_unreachable()
        shrinking.merge_duplicates()
        shrinking.drop_dominated()
        shrinking.drop_free()
        shrinking.fold()
        if shrinking.size() == before:
            return shrinking.result()
