"""Solve the parts of a problem one after the other, each for all targets that may compute its result.

Parts that are alike are solved once. A search for one of several problems of the same parts, which differ in what they
allow (``eqsat.extract.context``), ends as soon as a part shows that the problem cannot be the best one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from eqsat.extract.effort import Effort
from eqsat.extract.identical_parts import Known, form_of
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.milp.extraction_search import ExtractionSearch
from eqsat.extract.problem import Choice, ExtractionProgress, Problem
from eqsat.extract.program_cost import needed, program_cost
from eqsat.extract.programs.greedy import greedy
from eqsat.extract.reduce.class_dominators import Dominators, least_cost
from eqsat.extract.reduce.smaller_problem import reduce_problem
from eqsat.extract.split import Part, part_problem, split, targets_of

INF = float("inf")
ALIKE = 2
"""Parts of one size that are expected to differ."""
LEAST_SHARE, MOST_SHARE = 0.1, 0.6
"""Share of the remaining work for one part."""


class SearchApart(Protocol):
    """Searches a problem part by part, if it falls into parts; whether it does. See :class:`PartwiseSearch`."""

    def __call__(
        self, problem: Problem, best: Incumbent, effort: Effort, gap: float, seed: int, known: Known | None = None
    ) -> bool: ...


class PartwiseSearch:
    """Searches for the best program of a reduced problem.

    Args:
        problem: The problem.
        start: A program, None if there is none.
        effort: The work that may be done.
        gap: Relative gap at which to stop.
        seed: Seed of the solver.
        best: The best program of the whole so far.
        known: Solutions of parts.
        easiest: The finished search for the same problem in which more is allowed.
        room: By how much this problem may cost more than the easiest one.
        apart: Searches the rest of a part, if it falls into parts.

    Attributes:
        choices: The best program found, None if there is none.
        cost: Its cost.
        bound: No program costs less; ``inf`` if it is proven that there is no program.
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
        known: Known | None = None,
        easiest: PartwiseSearch | None = None,
        room: float = INF,
        apart: SearchApart | None = None,
    ) -> None:
        self.problem = problem
        self.start = start
        self.effort = effort
        self.gap = gap
        self.seed = seed
        self.best = best
        self.known = Known() if known is None else known
        self.easiest = easiest
        self.room = room
        self.apart = apart
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
        # Of parts of one size, most are alike: the lowest has nothing below it, the others have the same.
        sizes = [len(part.classes) for part in parts]
        weight = [size if sizes[:i].count(size) < ALIKE else 0 for i, size in enumerate(sizes)]
        able = [targets_of(self.problem, self.dominators, part) for part in parts]
        work = sum(w * len(targets) for w, targets in zip(weight, able, strict=True))
        if len(parts) > 1:
            self.gap /= 2 * len(parts)
        self.seconds["split"] = time.perf_counter() - clock
        for number, part in enumerate(parts, 1):
            for target in able[number - 1]:
                # Easy parts leave their work to the others; a hard one may take three times its share.
                share = 3 * weight[number - 1] / max(1, work)
                work -= weight[number - 1]
                share = 1.0 if part.root is None else min(MOST_SHARE, max(LEAST_SHARE, share))
                self._solve(part, target, self.effort.share(share))
            if self._is_beaten(part):
                return
            if len(parts) > 1:
                self.best.tell(f"part {number} of {len(parts)}")

    def _solve(self, part: Part, target: int, effort: Effort) -> None:
        problem, nodes = part_problem(self.problem, self.dominators, part, target, self._value)
        whole = part.root is None and not part.leaves
        if whole:
            local = self._searched(problem, self.start, effort, self._report)
        else:
            leaves = {int(problem.node_class[i]) for i, node in enumerate(nodes) if node < 0}
            form = form_of(problem, leaves)
            known = self.known.find(problem, form, self.gap)
            if known is not None:
                local = Incumbent(*known)
            else:
                local = self._part(problem, effort)
                self.known.keep(form, local.choices, local.bound, self.gap)
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

    def _part(self, problem: Problem, effort: Effort) -> Incumbent:
        """The best program of a part and its bound."""
        if self.easiest is None:
            return self._searched(problem, greedy(problem), effort)
        # Forbidden choices make other e-nodes useless.
        reduced = reduce_problem(problem)
        if not reduced.feasible:
            return Incumbent(None, INF, INF)
        local = self._searched(reduced.problem, greedy(reduced.problem), effort)
        choices = None if local.choices is None else reduced.expand(local.choices)
        return Incumbent(choices, local.cost, local.bound)

    def _searched(
        self,
        problem: Problem,
        start: Mapping[int, Choice] | None,
        effort: Effort,
        report: ExtractionProgress | None = None,
    ) -> Incumbent:
        cost = INF if start is None else program_cost(problem, start)
        local = Incumbent(None if start is None else dict(start), cost, 0.0, report)
        apart = None if self.apart is None else partial(self.apart, known=self.known)
        search = ExtractionSearch(problem, local, effort, self.gap, self.seed, apart)
        search.run()
        for step, seconds in search.seconds.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + seconds
        return local

    def _is_beaten(self, part: Part) -> bool:
        """Whether all at and below a part's root costs so much more than in the easiest problem that the whole does."""
        if self.easiest is None or part.root is None or not self.dominators.of_roots() >> part.root & 1:
            return False
        # With fewer joining results, a problem may fall into other parts, which cannot be compared.
        if not any(key[0] == part.root for key in self.easiest._bound):
            return False
        more = INF
        for key, value in self.easiest._value.items():
            if key[0] == part.root and key in self._bound:
                more = min(more, self._bound[key] - value)
        unknown = [key for key in self.easiest._bound if key[0] == part.root and key not in self.easiest._value]
        if more <= self.room or any(self.easiest._bound[key] < INF for key in unknown):
            return False
        self.bound = self.easiest.bound + more
        return True

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
