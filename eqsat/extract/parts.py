"""Solve the parts of a problem one after the other, each for all targets that may compute its result."""

from __future__ import annotations

import time
from collections.abc import Mapping

from eqsat.extract.cost import needed, program_cost
from eqsat.extract.effort import Effort
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.milp.search import Search
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.programs.greedy import greedy
from eqsat.extract.reduce.dominators import Dominators, least_cost
from eqsat.extract.split import Part, part_problem, split, targets_of

INF = float("inf")


class PartwiseSearch:
    """Search for the best program of a reduced problem.

    Attributes:
        choices: The best program found, None if there is none.
        cost: Its cost.
        bound: No program costs less; ``inf`` if there is none, for certain.
        seconds: By step, over all parts.
    """

    def __init__(
        self,
        problem: Problem,
        start: Mapping[int, Choice] | None,
        effort: Effort,
        gap: float,
        seed: int,
        best: Incumbent,
    ) -> None:
        self.problem = problem
        self.start = start
        self.effort = effort
        self.gap = gap
        self.seed = seed
        self.best = best
        self.choices: dict[int, Choice] | None = None
        self.cost = INF
        self.bound = 0.0
        self.seconds: dict[str, float] = {}
        # By (root of a part, target that computes it): what all at and below it costs, and at least costs; and
        # the choices within the part, as e-node of the whole (-1 - leaf for a leaf) and target.
        self._value: dict[tuple[int, int], float] = {}
        self._bound: dict[tuple[int, int], float] = {}
        self._within: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> None:
        """Solve all parts and put them together."""
        clock = time.perf_counter()
        self.dominators = Dominators(self.problem)
        self.best.raise_bound("dominators", least_cost(self.problem, self.dominators))
        parts = split(self.problem, self.dominators)
        work = sum(len(part.classes) * len(targets_of(self.problem, self.dominators, part)) for part in parts)
        self.gap /= 2 * len(parts)
        self.seconds["split"] = time.perf_counter() - clock
        for number, part in enumerate(parts, 1):
            for target in targets_of(self.problem, self.dominators, part):
                # Easy parts leave their work to the others; a hard one may take three times its share.
                share = 1.0 if part.root is None else min(0.6, 3 * len(part.classes) / work)
                work -= len(part.classes)
                self._solve(part, target, self.effort.share(share))
            if len(parts) > 1:
                self.best.tell(f"part {number} of {len(parts)}")

    def _solve(self, part: Part, target: int, effort: Effort) -> None:
        problem, nodes = part_problem(self.problem, self.dominators, part, target, self._value)
        final = part.root is None
        start = dict(self.start) if final and not part.leaves and self.start is not None else greedy(problem)
        cost = INF if start is None else program_cost(problem, start)
        whole = final and not part.leaves
        local = Incumbent(start, cost, 0.0, self._report if whole else None)
        search = Search(problem, local, effort, self.gap, self.seed)
        search.run()
        for step, seconds in search.seconds.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + seconds
        slack = sum(self._slack(leaf) for leaf in part.leaves)
        bound = max(0.0, local.bound - slack) if slack < INF else 0.0
        if part.root is None:
            self.bound = bound
            if local.choices is not None:
                self.choices = self._together(nodes, local.choices)
                self.cost = program_cost(self.problem, self.choices)
            return
        key = part.root, target
        self._bound[key] = bound
        if local.choices is not None:
            self._value[key] = local.cost
            self._within[key] = [(nodes[choice.node], choice.target) for choice in local.choices.values()]

    def _report(self, step: str, cost: float, bound: float) -> None:
        if self.best.report is not None and self.best.choices is not None:
            self.best.report(step, min(cost, self.best.cost), max(bound, self.best.bound))

    def _slack(self, leaf: int) -> float:
        """The amount by which the parts at and below a leaf may cost less than the part above assumed."""
        told = [
            (self._value.get((leaf, d), INF), self._bound.get((leaf, d), INF)) for d in range(len(self.problem.targets))
        ]
        return max((value - bound for value, bound in told if bound < INF), default=0.0)

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
