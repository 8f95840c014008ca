"""Makes an extraction problem smaller without changing the cost of the best program.

It removes e-nodes that cannot be part of a program (unreachable, not derivable on their target, in need of their own
class), e-nodes that another one of their class can replace at no loss, and classes that cost nothing in any case. It
folds classes with a single reader into that reader. Each step is exact under the whole definition of cost, including
launches of regions; for that, some steps require a neighbourhood on the host or on targets with free launches. The
reductions are known from extraction by integer programming (Yang et al. 2021, TENSAT; Goharshady et al. 2024), as is
the name of the last one: variable elimination.
"""

from __future__ import annotations

import numpy as np

from eqsat.extract.problem import Problem
from eqsat.extract.program_cost import HOST
from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.reduce.node_options import INF, ClassOptions, Option, Origin, Reduced, nodes_of


def reduce_problem(problem: Problem) -> Reduced:
    """Apply all reductions until nothing changes."""
    options = ClassOptions(problem)
    drop_underivable(options)
    while options.feasible():
        before = options.size()
        drop_unreachable(options)
        merge_duplicates(options)
        drop_dominated(options)
        drop_free(options)
        fold(options)
        if options.size() == before:
            break
        if not all(options.of.values()):
            # Folding found e-nodes that need their own class.
            drop_underivable(options)
    return options.result()


def drop_underivable(options: ClassOptions) -> None:
    """Keep an option on a target only if its inputs can get there without the option's own help."""
    targets = range(len(options.problem.targets))
    readers = options.readers()
    missing = {id(o): [len(o.reads)] * len(o.cost) for group in options.of.values() for o in group}
    arrived: set[tuple[int, int]] = set()
    todo: list[tuple[int, int]] = []

    def arrive(klass: int, target: int) -> None:
        if (klass, target) not in arrived:
            arrived.add((klass, target))
            todo.append((klass, target))
            if target == HOST:
                for other in targets:
                    if options.copy_in[klass][other] < INF:
                        arrive(klass, other)
            elif options.copy_out[klass][target] < INF:
                arrive(klass, HOST)

    for klass, group in options.of.items():
        for option in group:
            if not option.reads:
                for target in option.targets:
                    arrive(klass, target)
    while todo:
        klass, target = todo.pop()
        for reader, option in readers[klass]:
            left = missing[id(option)]
            left[target] -= 1
            if not left[target] and option.cost[target] < INF and reader not in option.reads:
                arrive(reader, target)
    for klass, group in options.of.items():
        kept = []
        for option in group:
            if klass not in option.reads:
                left = missing[id(option)]
                option.cost = [cost if not left[t] else INF for t, cost in enumerate(option.cost)]
                if min(option.cost) < INF:
                    kept.append(option)
        options.of[klass] = kept


def drop_unreachable(options: ClassOptions) -> None:
    """Keeps only what the roots can reach."""
    seen = set(options.roots)
    todo = list(options.roots)
    while todo:
        for option in options.of[todo.pop()]:
            new = option.reads - seen
            seen |= new
            todo += new
    options.of = {klass: group for klass, group in options.of.items() if klass in seen}


def merge_duplicates(options: ClassOptions) -> None:
    """One option for each set of inputs (and budget weights), the cheapest e-node on each target."""
    for klass, group in options.of.items():
        if len(group) == 1:
            continue
        unlike: dict[tuple[frozenset[int], tuple[float, ...]], Option] = {}
        for option in group:
            first = unlike.setdefault((option.reads, option.weight), option)
            if first is not option:
                for target, cost in enumerate(option.cost):
                    if cost < first.cost[target]:
                        first.cost[target] = cost
                        first.origin[target] = option.origin[target]
        options.of[klass] = list(unlike.values())


def drop_dominated(options: ClassOptions) -> None:
    """Drop, by target, what another option of the class does at no higher cost from fewer inputs.

    Leaving out an input can cost launches, because it may have connected the pieces of a region. So inputs below which
    any class could be on a target with a launch cost must not be left out.
    """
    touchy = _touchy(options)
    for klass, group in options.of.items():
        if len(group) == 1:
            continue
        kept: list[Option] = []
        for option in sorted(group, key=lambda option: len(option.reads)):
            for other in kept:
                if (
                    other.reads <= option.reads
                    and not (option.reads - other.reads) & touchy
                    and all(a <= b for a, b in zip(other.weight, option.weight, strict=True))
                ):
                    option.cost = [INF if a <= b else b for a, b in zip(other.cost, option.cost, strict=True)]
                    if min(option.cost) == INF:
                        break
            else:
                kept.append(option)
        options.of[klass] = kept


def _touchy(options: ClassOptions) -> set[int]:
    """Classes from which something on a target with a launch cost can be reached."""
    if not any(options.launch):
        return set()
    readers = options.readers()
    found = {
        klass
        for klass, group in options.of.items()
        if any(options.launch[t] for option in group for t in option.targets)
    }
    todo = list(found)
    while todo:
        for reader, _ in readers[todo.pop()]:
            if reader not in found:
                found.add(reader)
                todo.append(reader)
    return found


def drop_free(options: ClassOptions) -> None:
    """Removes classes that cost nothing wherever they are read, if all of their inputs are such classes."""
    readers = options.readers()

    def free(klass: int) -> Option | None:
        for option in options.of[klass]:
            if option.cost[HOST] == 0 and option.reads <= gone and not any(option.weight):
                return option
        return None

    def elsewhere(klass: int) -> bool:
        """Whether the place of the class matters."""
        if len(options.launch) == 1:
            return False
        return any(options.launch[t] for option in options.of[klass] for t in option.targets) or any(
            options.copy_in[klass][t] > 0 for _, option in readers[klass] for t in option.targets
        )

    todo = [klass for klass, group in options.of.items() if not all(option.reads for option in group)]
    gone: set[int] = set()
    barred = set(options.roots)
    while todo:
        klass = todo.pop()
        if klass in gone or klass in barred:
            continue
        option = free(klass)
        if option is None:
            continue
        if elsewhere(klass):
            barred.add(klass)
            continue
        gone.add(klass)
        for node in nodes_of(option.origin[HOST]):
            options.free[int(options.problem.node_class[node])] = node
        todo += {reader for reader, _ in readers[klass]}
    for klass in gone:
        del options.of[klass]
    for group in options.of.values():
        for option in group:
            if not option.reads.isdisjoint(gone):
                option.reads -= gone


MOST_READS = 256
"""Classes that a foldable class may read, at most: folding more into each reader would take the square of their number.
"""


def fold(options: ClassOptions) -> None:
    """Fold classes into their readers, where both must be on one target without a launch cost.

    A class that one other class reads goes into it, if that does not multiply options; a class with a single
    option that costs nothing goes into all of its readers.
    """
    readers = options.readers()
    settled = {klass: _settled(options, group) for klass, group in options.of.items()}
    touched: set[int] = set()
    roots = set(options.roots)
    for klass, target in settled.items():
        if target is None or klass in roots:
            continue
        inner = [option for option in options.of[klass] if not option.dropped]
        above = [(reader, option) for reader, option in readers[klass] if not option.dropped]
        outside = {reader for reader, _ in above}
        if not inner or not above or klass in outside or any(settled[reader] != target for reader in outside):
            continue
        if max(len(option.reads) for _, option in above) > MOST_READS:
            continue
        free = len(inner) == 1 and inner[0].cost[target] == 0 and not any(inner[0].weight)
        alone = len(outside) == 1 and len(inner) * len(above) <= max(len(inner), len(above))
        if not (free or alone):
            continue
        for reader, option in above:
            option.dropped = True
            touched.add(reader)
            for below in inner:
                merged = _folded(klass, option, below, target)
                # An option that reads its own class through the other is part of no program.
                if reader not in merged.reads:
                    options.of[reader].append(merged)
                    for child in merged.reads:
                        readers[child].append((reader, merged))
        for below in inner:
            below.dropped = True
        del options.of[klass]
    for klass in touched:
        if klass in options.of:
            options.of[klass] = [option for option in options.of[klass] if not option.dropped]


def _settled(options: ClassOptions, group: list[Option]) -> int | None:
    """The one target that a class can be on, if its regions cost nothing."""
    targets = {t for option in group for t in option.targets}
    if len(targets) != 1:
        return None
    (target,) = targets
    return None if options.launch[target] else target


def _folded(klass: int, option: Option, below: Option, target: int) -> Option:
    cost = [INF] * len(option.cost)
    cost[target] = option.cost[target] + below.cost[target]
    origin: list[Origin | None] = [None] * len(cost)
    upper, lower = option.origin[target], below.origin[target]
    assert upper is not None and lower is not None
    origin[target] = upper, lower
    weight = tuple(a + b for a, b in zip(option.weight, below.weight, strict=True))
    return Option((option.reads - {klass}) | below.reads, cost, origin, weight)


def hopeless_nodes(problem: Problem, dominators: Dominators, cost: float) -> np.ndarray:
    """E-nodes that no program contains which is cheaper than a known one.

    An e-node needs all that its inputs need, besides what every program needs; this alone may cost more than the known
    program. And an e-node is in no program if one of its inputs needs its class.

    Args:
        problem: The problem.
        dominators: Of the problem.
        cost: Of the known program.

    Returns:
        Shape (nodes,), boolean.
    """
    cheapest = np.full(problem.classes, INF)
    node_cost = problem.cost.min(axis=1)
    np.minimum.at(cheapest, problem.node_class, node_cost)
    always = dominators.of_roots()
    base = _total(always, cheapest)
    hopeless = np.zeros(problem.nodes, dtype=bool)
    extra: dict[int, float] = {}
    for node, klass in enumerate(problem.node_class.tolist()):
        below = dominators.of_node(node)
        if below >> klass & 1:
            hopeless[node] = True
            continue
        more = below & ~always & ~(1 << klass)
        if more not in extra:
            extra[more] = _total(more, cheapest)
        own = node_cost[node] - (cheapest[klass] if always >> klass & 1 else 0.0)
        hopeless[node] = base + extra[more] + own > cost * (1 + 1e-9)
    return hopeless


def _total(mask: int, weight: np.ndarray) -> float:
    total = 0.0
    while mask:
        lowest = mask & -mask
        total += float(weight[lowest.bit_length() - 1])
        mask ^= lowest
    return total
