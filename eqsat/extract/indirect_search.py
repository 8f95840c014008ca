"""A search for the best program of a problem by way of other problems, and its state so far."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.extract.effort import Effort
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import needed, program_cost


class IndirectSearch:
    """The common part of such searches.

    Args:
        problem: A reduced problem.
        effort: The work that may be done.
        gap: Relative gap at which to stop.
        seed: Seed of the solver.

    Attributes:
        choices: The best program found, None if there is none.
        cost: Its cost.
        bound: No program costs less.
        seconds: Seconds by step.
    """

    def __init__(self, problem: Problem, effort: Effort, gap: float, seed: int) -> None:
        self.problem = problem
        self.effort = effort
        self.gap = gap
        self.seed = seed
        self.choices: dict[int, Choice] | None = None
        self.cost = float("inf")
        self.bound = 0.0
        self.seconds: dict[str, float] = {}

    def offer(self, choices: Mapping[int, Choice]) -> None:
        """Price the program that choices contain, and keep it if it is the best."""
        program = needed(self.problem, choices)
        if program is not None:
            cost = program_cost(self.problem, program)
            if cost < self.cost:
                self.choices, self.cost = program, cost

    def count(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of another search, by step."""
        for step, more in seconds.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + more
