"""Solve the parts of a problem one after the other, each for all places its result may be computed at."""

from __future__ import annotations

import time
from collections.abc import Mapping

from eqsat.extract.cost import needed, program_cost
from eqsat.extract.dominators import Dominators
from eqsat.extract.greedy import greedy
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.milp import Search
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.split import Part, part_problem, split, targets_of

INF = float("inf")


class PartwiseSearch:
    """Search for the best program of a reduced problem.

    Attributes:
        choices: The best program found, None if there is none.
        cost: Its cost.
        seconds: By step, over all parts.
    """

    def __init__(self, problem: Problem, start: Mapping[int, Choice] | None, deadline: float, gap: float, seed: int,
                 best: Incumbent) -> None:
        self.problem = problem
        self.start = start
        self.deadline = deadline
        self.gap = gap
        self.seed = seed
        self.best = best
        self.choices: dict[int, Choice] | None = None
        self.cost = INF
        self.seconds: dict[str, float] = {}
        # By (root of a part, target that computes it): cost, bound, and the choices within the part.
        self._value: dict[tuple[int, int], float] = {}
        self._bound: dict[tuple[int, int], float] = {}
        self._within: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> None:
        """Solve all parts and put them together; raises the incumbent's bound."""
        clock = time.perf_counter()
        self.dominators = Dominators(self.problem)
        parts = split(self.problem, self.dominators)
        work = sum(len(part.classes) * len(targets_of(self.problem, self.dominators, part)) for part in parts)
        self.seconds["split"] = time.perf_counter() - clock
        for part in parts:
            for target in targets_of(self.problem, self.dominators, part):
                # Easy parts leave their time to the others; a hard one may take three times its share.
                left = self.deadline - time.perf_counter()
                share = left if part.root is None else left * min(0.6, 3 * len(part.classes) / work)
                work -= len(part.classes)
                self._solve(part, target, time.perf_counter() + share)

    def _solve(self, part: Part, target: int, deadline: float) -> None:
        problem, nodes = part_problem(self.problem, self.dominators, part, target, self._value)
        final = part.root is None
        start = dict(self.start) if final and not part.leaves and self.start is not None else greedy(problem)
        cost = INF if start is None else program_cost(problem, start)
        # What the parts below may still cost less than their solutions do.
        slack = sum(
            max(self._value[leaf, d] - self._bound[leaf, d] for d in range(len(problem.targets))
                if (leaf, d) in self._value)
            for leaf in part.leaves
        )
        report = self.best.report if final else None
        local = Incumbent(start, cost, 0.0, report if slack == 0 and report else None)
        search = Search(problem, local, deadline, self.gap / 2, self.seed)
        search.run()
        for step, seconds in search.seconds.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + seconds
        bound = max(0.0, local.bound - slack)
        if final:
            self.best.raise_bound("parts", bound)
            if local.choices is not None:
                self.choices = self._together(nodes, local.choices)
                self.cost = program_cost(self.problem, self.choices)
        elif local.choices is not None:
            assert part.root is not None
            key = part.root, target
            self._value[key], self._bound[key] = local.cost, bound
            self._within[key] = [(nodes[choice.node], choice.target) for choice in local.choices.values()]

    def _together(self, nodes: list[int], choices: Mapping[int, Choice]) -> dict[int, Choice]:
        """The program of the whole from the top part's."""
        todo = [(nodes[choice.node], choice.target) for choice in choices.values()]
        chosen: dict[int, Choice] = {}
        while todo:
            node, target = todo.pop()
            if node >= 0:
                chosen[int(self.problem.node_class[node])] = Choice(node, target)
            else:
                todo += self._within[-1 - node, target]
        program = needed(self.problem, chosen)
        assert program is not None, "the parts do not fit together"
        return program
