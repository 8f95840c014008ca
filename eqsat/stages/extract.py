"""The fourth stage: one program of the e-graph, by default the cheapest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import get_args

from eqsat.errors import OptimizationError
from eqsat.extract.from_egraph import MappedProblem
from eqsat.extract.problem import Choice, Problem, Solution
from eqsat.extract.program_cost import needed, program_cost
from eqsat.extract.programs.as_written import as_written
from eqsat.extract.programs.one_e_node import together
from eqsat.extract.programs.ties import settle_ties
from eqsat.extract.solve import solve
from eqsat.stages.clock import LEAST_TIME, Clock
from eqsat.stages.event import Event
from eqsat.stages.options import Objective


@dataclass(frozen=True, slots=True)
class Limited:
    """A problem within a budget.

    Attributes:
        formulation: The problem.
        solved: The problem in which noise has a price as well; it is solved for the cheapest program.
        slack: The largest amount by which that price raises a program's cost.
    """

    formulation: MappedProblem
    solved: Problem
    slack: float


def check_objective(objective: str, seed: int) -> None:
    """Raises OptimizationError for an objective that does not exist, or an invalid seed."""
    if objective not in get_args(Objective):
        names = ", ".join(get_args(Objective))
        raise OptimizationError(f"an objective ({names}) is required", place="objective", actual=repr(objective))
    if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
        raise OptimizationError("a seed of 0 or more is required", place="seed", actual=repr(seed))


def extract(
    formulation: MappedProblem,
    clock: Clock,
    objective: Objective = "best",
    seed: int = 0,
    *,
    limited: Limited | None = None,
    share: float = 1.0,
    original: dict[int, Choice] | None = None,
) -> Solution:
    """Chooses a program.

    Args:
        formulation: The problem.
        clock: Clock of the composition.
        objective: The kind of program.
        seed: Seed of a random one.
        limited: The same problem within a budget.
        share: Share of the limit's work that may be done.
        original: The program to beat; by default the input's own.
    """
    problem = formulation.problem
    priced = limited if objective == "best" else None
    original = formulation.original if original is None else original
    with clock.stage("extract"):
        solution = solve(
            problem if priced is None else priced.solved,
            time_limit=max(share * clock.limit, LEAST_TIME),
            guard=clock.guard,
            objective=objective,
            seed=seed,
            # If programs are restricted, the input's own may not be one of them.
            incumbent=original if needed(problem, original) is not None else None,
            progress=lambda step, cost, bound: clock.say(Event("extract", cost=cost, bound=bound)),
        )
        choices = solution.choices
        if objective == "best":
            choices = as_written(problem if priced is None else priced.solved, original, choices)
        choices = together(formulation, choices)
        if choices != solution.choices:
            solution = replace(solution, choices=choices, cost=program_cost(problem, choices))
        if priced is not None:
            cost = program_cost(problem, solution.choices)
            bound = min(max(solution.bound - priced.slack, 0.0), cost)
            return replace(solution, cost=cost, bound=bound)
        if objective == "best":
            return replace(solution, choices=settle_ties(formulation, solution.choices))
        return solution
