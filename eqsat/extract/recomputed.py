"""A relaxation in which long networks fall into parts: e-nodes that compute a separator once more do not read past it.

A fused kernel may take in the sum ``s = x + y`` on which the next layer starts, and compute it again from ``x`` and
``y``. Its e-node reads past ``s``, which so is no separator, although what else the e-node reads needs ``s``. Here such
an e-node reads neither ``x`` nor ``y``. That forgets that they have to lie in the right memory and nothing else: they
are computed anyway, for the sake of ``s``, and no region has them and the e-node if what lies between runs elsewhere.
So the cheapest program costs no less than here, and mostly the same, because it seldom computes ``s`` twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from eqsat.extract.alike import Known
from eqsat.extract.cost import needed, program_cost
from eqsat.extract.effort import Effort
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.reduce.dominators import Dominators
from eqsat.extract.shared import SharedSearch

INF = float("inf")
ROUNDS = 4
"""In which e-nodes are put right."""


class RelaxedSearch:
    """Search the relaxed problem part by part; e-nodes of its best program that read too little are put right.

    Attributes:
        choices: The best program found, None if there is none.
        cost: Its cost.
        bound: No program costs less.
        seconds: By step.
    """

    def __init__(self, problem: Problem, effort: Effort, gap: float, seed: int) -> None:
        self.problem = problem
        self.effort = effort
        self.gap = gap
        self.seed = seed
        self.choices: dict[int, Choice] | None = None
        self.cost = INF
        self.bound = 0.0
        self.seconds: dict[str, float] = {}

    def run(self) -> bool:
        """Search if the relaxed problem has a context and smaller parts; whether it has."""
        forgotten = recomputed(self.problem, Dominators(self.problem))
        known = Known()
        for _ in range(ROUNDS):
            if not forgotten:
                break
            children = [forgotten.get(node, read) for node, read in enumerate(self.problem.children)]
            relaxed = replace(self.problem, children=tuple(children))
            search = SharedSearch(relaxed, self.effort, self.gap, self.seed, known, joining=True)
            if not search.run():
                break
            for step, seconds in search.seconds.items():
                self.seconds[step] = self.seconds.get(step, 0.0) + seconds
            self.bound = max(self.bound, search.bound)
            wrong = [] if search.choices is None else self._offer(search.choices, forgotten)
            if self.cost - self.bound <= self.gap * self.cost or not wrong:
                break
            for node in wrong:
                del forgotten[node]
        self.bound = min(self.bound, self.cost)
        return self.bound > 0.0

    def _offer(self, choices: Mapping[int, Choice], forgotten: Mapping[int, Sequence[int]]) -> list[int]:
        """Price the program as it is; the e-nodes in it that read more than they do in the relaxed problem."""
        program = needed(self.problem, choices)
        if program is not None:
            cost = program_cost(self.problem, program)
            if cost < self.cost:
                self.choices, self.cost = program, cost
        return sorted({choice.node for choice in choices.values()} & set(forgotten))


def recomputed(problem: Problem, dominators: Dominators) -> dict[int, tuple[int, ...]]:
    """The e-nodes that compute something once more, and what they read besides."""
    able = np.isfinite(problem.cost)
    launched = np.flatnonzero(problem.dispatch > 0).tolist()
    beyond = {target: dominators.beyond(target) for target in launched}
    found: dict[int, tuple[int, ...]] = {}
    for options in dominators.options:
        for node in options:
            targets = [t for t in launched if able[node, t]]
            for other in options:
                extra = _extra(problem, dominators, node, other)
                kept = tuple(k for k in problem.children[node] if k not in extra)
                if extra and all(any(beyond[t][j] >> k & 1 for j in kept) for k in extra for t in targets):
                    found[node] = kept
                    break
    return found


def _extra(problem: Problem, dominators: Dominators, node: int, other: int) -> set[int]:
    """What an e-node reads to compute a class that another one of its class reads, and that it needs anyway."""
    own, read = set(problem.children[node]), set(problem.children[other])
    if len(read - own) != 1 or not read & own:
        return set()
    (once,) = read - own
    below = dominators.of_class[once]
    is_needed = any(dominators.of_class[k] >> once & 1 for k in own & read)
    extra = own - read
    return extra if is_needed and all(below >> k & 1 for k in extra) else set()
