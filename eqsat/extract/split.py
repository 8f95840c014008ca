"""Cuts a problem where everything passes through one class, and combines the optima of the parts.

If no class above class k reads a class below k except k itself, the part below matters to the part above only through
the target that computes k. It is therefore solved once for each such target, and represented above by a leaf with these
costs (dynamic programming over separators). Launches add up as well: the cut splits at most one region, the one that
computes k, which is charged on one side only. The time for long networks becomes linear in their length.

Outputs of the model may lie below k, such as the keys and values that a decoder keeps: the part below brings them to
the host. They have to be computed whether or not the part above uses k, so every program must contain such a k. An
output that no class reads can lie on either side. We take it to lie below the nearest class of every program that needs
all that the output shares with others: so the results of the steps of a network do not keep the steps together.

A class that costs nothing wherever it may be read is *free*: each part that reads it has it. On an accelerator it ties
readers together to one region. If one region could have it in two parts, each would be charged a launch. It cannot if
all that reads it in the upper part needs the separator below, for then what lies between the two is in the region as
well, the separator too, and the cut through that is charged once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqsat.extract.problem import Problem
from eqsat.extract.program_cost import HOST
from eqsat.extract.reduce.class_dominators import Dominators, members

LEAST_CLASSES = 60
"""Least number of classes in a part: below that, setting up parts costs more than it saves."""

INF = float("inf")


@dataclass(frozen=True)
class Part:
    """Classes between separators.

    Attributes:
        root: The separator on top, None for the part that has the problem's roots.
        classes: The part's own classes, ascending, ``root`` among them.
        leaves: Separators below, which other parts have as roots.
    """

    root: int | None
    classes: list[int]
    leaves: list[int]


def split(problem: Problem, dominators: Dominators, least: int = LEAST_CLASSES) -> list[Part]:
    """The parts, lower ones first; a single one if budgets tie everything together."""
    everything = list(range(problem.classes))
    if problem.budgets or problem.classes < 2 * least:
        return [Part(None, everything, [])]
    free = _free_classes(problem, dominators)
    parts = _cut(problem, dominators, least, free)
    if free and not _is_counted_once(problem, dominators, parts, free):
        parts = _cut(problem, dominators, least, frozenset())
    return parts


def _cut(problem: Problem, dominators: Dominators, least: int, free: frozenset[int]) -> list[Part]:
    everything = [c for c in range(problem.classes) if c not in free]
    reach, enclosed = reach_and_enclosed(problem, dominators, free)

    def of_part(own: int) -> list[int]:
        classes = members(own, problem.classes).tolist()
        nodes = [n for c in classes for n in dominators.options[c]]
        return sorted([*classes, *free.intersection(k for n in nodes for k in problem.children[n])])

    candidates = [c for c in everything if enclosed[c] == reach[c] and _has_its_roots(problem, dominators, reach, c)]
    candidates.sort(key=lambda c: (reach[c].bit_count(), c))
    parts: list[Part] = []
    covered = 0
    # Roots of finished parts, and the classes at and below each.
    open_parts: dict[int, int] = {}
    for c in candidates:
        below = reach[c]
        own = below & ~covered
        above = len(everything) - (covered | below).bit_count()
        # A part is searched for each target that may compute its root, which only pays if as much lies above it.
        if own.bit_count() < least or above < (own.bit_count() if len(problem.targets) > 1 else least // 4):
            continue
        leaves = sorted(k for k, mask in open_parts.items() if mask & below)
        parts.append(Part(c, of_part(own), leaves))
        for leaf in leaves:
            del open_parts[leaf]
        open_parts[c] = below
        covered |= below
    rest = sum(1 << c for c in everything) & ~covered
    parts.append(Part(None, of_part(rest), sorted(open_parts)))
    return parts


def _free_classes(problem: Problem, dominators: Dominators) -> frozenset[int]:
    """Classes of one e-node without inputs that cost nothing where they can be computed, and nothing to copy."""
    is_free = ~np.any(problem.copy_in > 0, axis=1) & ~np.any(problem.copy_out > 0, axis=1)
    is_free[list(problem.roots)] = False

    def costs_nothing(c: int) -> bool:
        options = dominators.options[c]
        return len(options) == 1 and not problem.children[options[0]] and set(problem.cost[options[0]]) <= {0.0, INF}

    return frozenset(c for c in np.flatnonzero(is_free).tolist() if costs_nothing(c))


def _is_counted_once(problem: Problem, dominators: Dominators, parts: list[Part], free: frozenset[int]) -> bool:
    """Whether no region can have free classes of two parts unless it contains the separator between them."""
    able = np.isfinite(problem.cost)
    for target in np.flatnonzero(problem.dispatch > 0).tolist():
        joining = {c for c in free if able[dominators.options[c][0], target]}
        roots: list[int] = []
        for part in parts:
            nodes = [n for c in part.classes for n in dominators.options[c]]
            readers = [n for n in nodes if able[n, target] and joining.intersection(problem.children[n])]
            if not readers:
                continue
            if any(not dominators.of_node(n) >> root & 1 for n in readers for root in roots):
                return False
            if part.root is not None:
                kept = set(part.classes).intersection(problem.roots)
                if any(not dominators.of_class[part.root] >> k & 1 for k in kept):
                    return False
                roots.append(part.root)
    return True


def reach_and_enclosed(
    problem: Problem, dominators: Dominators, free: frozenset[int] = frozenset()
) -> tuple[list[int], list[int]]:
    """Per class the mask of the classes at and below it, and of those that other classes reach only through it."""
    reach = _reach_of(problem, dominators, free, {})
    enclosed = _enclosed_sets(problem, dominators, reach, free, {})
    side = _side_roots(problem, dominators, reach, enclosed)
    if not side:
        return reach, enclosed
    reach = _reach_of(problem, dominators, free, side)
    return reach, _enclosed_sets(problem, dominators, reach, free, side)


def _side_roots(
    problem: Problem, dominators: Dominators, reach: list[int], enclosed: list[int]
) -> dict[int, list[int]]:
    """By class the roots that are taken to lie below it."""
    roots = set(problem.roots)
    always = members(dominators.of_roots(), problem.classes).tolist()
    always.sort(key=lambda c: (reach[c].bit_count(), c))
    found: dict[int, list[int]] = {}
    for root in sorted(roots):
        if any(other != root and reach[other] >> root & 1 for other in roots):
            continue
        shared = reach[root] & ~enclosed[root]
        above = (c for c in always if not reach[root] >> c & 1 and shared & ~reach[c] == 0)
        nearest = next(above, None) if shared else None
        if nearest is not None:
            found.setdefault(nearest, []).append(root)
    return found


def _reach_of(
    problem: Problem, dominators: Dominators, free: frozenset[int], side: Mapping[int, Sequence[int]]
) -> list[int]:
    """Per class the mask of the classes at and below it, without free ones."""
    reach = [1 << c for c in range(problem.classes)]
    changed = True
    while changed:
        changed = False
        for c in dominators.order:
            mask = reach[c]
            for node in dominators.options[c]:
                for child in problem.children[node]:
                    if child not in free:
                        mask |= reach[child]
            for root in side.get(c, ()):
                mask |= reach[root]
            if mask != reach[c]:
                reach[c] = mask
                # Inputs come first in the order, so that only cycles and roots at a side need another round.
                changed = changed or bool(side) or dominators.ring_of[c] >= 0
    return reach


def _has_its_roots(problem: Problem, dominators: Dominators, reach: list[int], klass: int) -> bool:
    """Whether every program contains a class for the sake of roots that are not below it, if there are roots below."""
    below = {r for r in problem.roots if r != klass and reach[klass] >> r & 1}
    return not below or any(dominators.of_class[r] >> klass & 1 for r in problem.roots if r not in below)


def _enclosed_sets(
    problem: Problem,
    dominators: Dominators,
    reach: list[int],
    free: frozenset[int],
    side: Mapping[int, Sequence[int]],
) -> list[int]:
    """Per class the mask of the classes that other classes reach only through it, itself included, without free ones.

    The dominator tree of the class graph, from one root above all. An order of the classes by components is not enough
    to compute it: within a cycle, a class may come before the only one that leads to it.
    """
    import networkx as nx  # not needed by small problems

    top = problem.classes
    graph: nx.DiGraph[int] = nx.DiGraph()
    highest: list[int] = []
    for root in sorted(set(problem.roots), key=lambda r: (-reach[r].bit_count(), r)):
        if not any(reach[other] >> root & 1 for other in highest):
            highest.append(root)
    graph.add_edges_from((top, root) for root in highest)
    for c, options in enumerate(dominators.options):
        below = {k for node in options for k in problem.children[node]}.union(side.get(c, ())) - free - {c}
        graph.add_edges_from((c, k) for k in sorted(below))
    parent = nx.immediate_dominators(graph, top)
    sets = [1 << c for c in range(top + 1)]
    for c in nx.dfs_postorder_nodes(graph, top):
        if c != top:
            sets[parent[c]] |= sets[c]
    return sets[:top]


def part_problem(
    problem: Problem, dominators: Dominators, part: Part, target: int, value: dict[tuple[int, int], float]
) -> tuple[Problem, list[int]]:
    """The problem of one part, its root computed on a given target.

    Args:
        problem: The whole.
        dominators: Of the whole.
        part: The part.
        target: Where ``part.root`` is computed; without meaning if it is None.
        value: ``(leaf, target) -> `` cost of everything at and below the leaf if computed on the target.

    Returns:
        The problem, and per e-node the e-node of the whole, or -1 - leaf for a leaf.
    """
    classes = sorted([*part.classes, *part.leaves])
    number = {c: i for i, c in enumerate(classes)}
    leaves = set(part.leaves)
    nodes: list[int] = []
    for c in classes:
        nodes += [-1 - c] if c in leaves else dominators.options[c]
    targets = len(problem.targets)
    cost = np.empty((len(nodes), targets))
    for i, node in enumerate(nodes):
        if node >= 0:
            cost[i] = problem.cost[node]
        else:
            # The launch of the region that computes the leaf is in its value, and will be charged here again.
            cost[i] = [max(0.0, value.get((-1 - node, d), INF) - problem.dispatch[d]) for d in range(targets)]
    copy_out = problem.copy_out[classes]
    roots = tuple(number[r] for r in problem.roots if r in number)
    if part.root is not None:
        own = [i for i, node in enumerate(nodes) if node >= 0 and problem.node_class[node] == part.root]
        cost[np.ix_(own, [d for d in range(targets) if d != target])] = INF
        # The part above decides where it is copied.
        copy_out[number[part.root], target] = 0.0
        roots += (number[part.root],)
    smaller = replace(
        problem,
        classes=len(classes),
        node_class=np.array([number[-1 - n if n < 0 else int(problem.node_class[n])] for n in nodes], dtype=np.int64),
        children=tuple(tuple(sorted(number[k] for k in problem.children[n])) if n >= 0 else () for n in nodes),
        cost=cost,
        copy_in=problem.copy_in[classes],
        copy_out=copy_out,
        roots=tuple(sorted(set(roots))),
    )
    return smaller, nodes


def targets_of(problem: Problem, dominators: Dominators, part: Part) -> list[int]:
    """Where the root of a part can be computed."""
    if part.root is None:
        return [HOST]
    able = np.isfinite(problem.cost[dominators.options[part.root]]).any(axis=0)
    return np.flatnonzero(able).tolist()
