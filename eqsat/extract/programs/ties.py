"""Among equally cheap programs, takes the one whose values stay small: it multiplies by shrinking factors first.

``(x * 300) * 0.001`` and ``(x * 0.001) * 300`` are equal over the reals and cost the same, but in float16 the first
overflows for an x of 300. The solvers compare costs only. A program that they found is therefore improved here: e-nodes
are exchanged one at a time if that does not make the program more expensive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.egraph.snapshot import ENode
from eqsat.extract.from_egraph import MappedProblem
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import needed, program_cost

TRIES = 200
"""Exchanges that are tried in one program, at most."""
_EQUAL = 1e-12


def settle_ties(formulation: MappedProblem, choices: Mapping[int, Choice]) -> Mapping[int, Choice]:
    """The program, or an equally cheap one with smaller intermediate values.

    Args:
        choices: Problem class -> choice of a feasible program.
    """
    problem = formulation.problem
    sizes = _sizes(formulation)
    if not sizes or problem.budgets:
        return choices
    cost = program_cost(problem, choices)
    tries = 0
    for klass in [c for c in choices if c in sizes]:
        if klass not in choices:
            continue
        for node in _alternatives(problem, choices, klass):
            if tries == TRIES:
                return choices
            changed = _exchanged(problem, choices, klass, node)
            if changed is None or not _size(changed, sizes) < _size(choices, sizes) - 1e-9:
                continue
            tries += 1
            if program_cost(problem, changed) <= cost * (1 + _EQUAL):
                choices = changed
                break
    return choices


def _size(choices: Mapping[int, Choice], sizes: Mapping[int, float]) -> float:
    return sum(sizes.get(c, 0.0) for c in choices)


def _alternatives(problem: Problem, choices: Mapping[int, Choice], klass: int) -> Sequence[int]:
    """The other e-nodes of a class that its target can run."""
    chosen, target = choices[klass].node, choices[klass].target
    found = np.flatnonzero((problem.node_class == klass) & np.isfinite(problem.cost[:, target]))
    return [int(n) for n in found if n != chosen]


def _exchanged(problem: Problem, choices: Mapping[int, Choice], klass: int, node: int) -> Mapping[int, Choice] | None:
    """The program with another e-node, and with one more if that e-node reads a class that is not computed yet."""
    target = choices[klass].target
    changed = {**choices, klass: Choice(node, target)}
    for child in problem.children[node]:
        if child in choices:
            continue
        makers = np.flatnonzero((problem.node_class == child) & np.isfinite(problem.cost[:, target]))
        able = [int(n) for n in makers if all(k in choices and k != klass for k in problem.children[n])]
        if not able:
            return None
        changed[child] = Choice(min(able, key=lambda n: (problem.cost[n, target], n)), target)
    return needed(problem, changed)


def _sizes(formulation: MappedProblem) -> dict[int, float]:
    """Binary logarithms of magnitudes: of classes that are connected by products with constants, relative to one of
    them.
    """
    steps: dict[int, list[tuple[int, float]]] = {}
    for n in formulation.node:
        node = formulation.snapshot.nodes[n]
        factor = _factor(formulation, node)
        if factor is not None:
            (child,) = (c for c in node.children if c in formulation.position)
            above, below = formulation.position[node.eclass], formulation.position[child]
            steps.setdefault(below, []).append((above, factor))
            steps.setdefault(above, []).append((below, -factor))
    sizes: dict[int, float] = {}
    for start in sorted(steps):
        if start in sizes:
            continue
        sizes[start] = 0.0
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for there, factor in steps[here]:
                if there not in sizes:
                    sizes[there] = sizes[here] + factor
                    waiting.append(there)
    return sizes


def _factor(formulation: MappedProblem, node: ENode) -> float | None:
    """The binary logarithm of the largest element of the constant that an e-node multiplies with."""
    if node.kind != "op" or node.op.domain or node.op.name not in ("Mul", "Div") or len(node.children) != 2:
        return None
    kinds = [c is not None and c in formulation.position for c in node.children]
    if kinds not in ([True, False], [False, True]) or (node.op.name == "Div" and kinds[1]):
        return None
    constant = node.children[kinds.index(False)]
    value = None if constant is None else formulation.snapshot.value[constant]
    array = None if value is None else value.numpy()
    if array is None or not array.size or array.dtype.kind in "iub":
        return None
    size = float(np.abs(array.astype(np.float64)).max())
    if not 0 < size < np.inf:
        return None
    return float(np.log2(size)) * (1 if node.op.name == "Mul" else -1)
