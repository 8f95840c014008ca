"""Chooses the program: reduces the problem, finds a good program fast, and proves how far from optimal it is.

One function serves all objectives. The best program is searched part by part if the problem falls into parts
(``eqsat.extract.split``), each by integer programming. The result never costs more than a known program. When the work
is done, the result is the best program found, with its gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from eqsat.egraph.limits import LastGuard
from eqsat.errors import OptimizationError
from eqsat.extract.context import find_context
from eqsat.extract.effort import WORK_PER_SECOND, Effort
from eqsat.extract.fewer_targets import SHARE, restricted, selections, widened
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.parts import PartwiseSearch
from eqsat.extract.problem import Choice, ExtractionProgress, Problem, Solution
from eqsat.extract.program_cost import check, needed, program_cost
from eqsat.extract.programs.greedy import greedy
from eqsat.extract.programs.sample import costly_program, random_program
from eqsat.extract.recomputed import RelaxedSearch, recomputed
from eqsat.extract.reduce.class_dominators import LARGEST, Dominators, least_cost
from eqsat.extract.reduce.smaller_problem import reduce_problem
from eqsat.extract.shared import KEPT, SharedSearch, search_apart

INF = float("inf")
MOST = 0.8
"""Share of the work for the relaxed search: if it leaves a gap, the search of the whole rarely closes it."""
SLOW = 10_000
"""E-nodes from which on reducing a problem takes seconds, and a first program is made before."""


def solve(
    problem: Problem,
    *,
    time_limit: float = 30.0,
    work: float | None = None,
    guard: LastGuard | None = None,
    objective: Literal["best", "worst", "random", "greedy"] = "best",
    seed: int = 0,
    incumbent: Mapping[int, Choice] | None = None,
    gap: float = 1e-6,
    progress: ExtractionProgress | None = None,
) -> Solution:
    """Choose an e-node and a target for each class that is needed.

    Args:
        problem: The problem.
        time_limit: Seconds. A problem that is still too large after reduction is not searched.
        work: What may be done, in units (``eqsat.extract.effort``); by default what goes with the time limit.
        guard: Ends the search on machines that are many times slower than the work assumes, and only this can make two
            runs differ; by default a multiple of the time limit.
        objective: The cheapest program; an expensive or a random one, for tests of the rules; or a quick one.
        seed: Of the random choices and of the solver.
        incumbent: A known program, such as the input's own; the result of ``"best"`` and ``"greedy"`` costs no more.
        gap: Relative gap at which to stop.
        progress: Called with the step, the cost of the best program so far and the bound.

    Raises:
        OptimizationError: There is no program, or a cost is negative or not a number.
    """
    _validate(problem)
    known = None if incumbent is None else needed(problem, incumbent)
    if incumbent is not None:
        if known is None:
            raise OptimizationError("the given program must be complete and acyclic")
        check(problem, known)
    guard = LastGuard.of_limit(time_limit) if guard is None else guard
    effort = Effort(limit := time_limit * WORK_PER_SECOND if work is None else work, guard)
    clock = _Clock()
    if objective in ("worst", "random"):
        found = (costly_program if objective == "worst" else random_program)(problem, seed)
        if found is None:
            found = known or greedy(problem)
        if found is None:
            raise _infeasible(problem)
        clock.lap(objective)
        return Solution(found, program_cost(problem, found), 0.0, objective, clock.seconds)

    best = Incumbent(known, INF if known is None else program_cost(problem, known), 0.0, progress)
    best.tell("input")
    if problem.nodes > SLOW:
        first = greedy(problem)
        if first is not None:
            best.offer("greedy", first, program_cost(problem, first))
    clock.lap("first")
    reduced = reduce_problem(problem)
    if not reduced.feasible:
        raise _infeasible(problem)
    clock.lap("reduce")
    start = greedy(reduced.problem)
    if start is not None:
        best.offer("greedy", reduced.expand(start), program_cost(reduced.problem, start))
    clock.lap("greedy")
    fits = reduced.problem.classes <= LARGEST
    if objective == "best" and fits and not effort.is_over:
        kept = SHARE if len(problem.targets) > 1 else 0.0
        main = effort.share(1.0 - kept)
        for search in _searches(reduced.problem, start, main, gap, seed, best):
            if search.run() is False:
                continue
            if search.choices is not None:
                best.offer("parts", reduced.expand(search.choices), search.cost, search.bound)
            else:
                best.raise_bound("parts", search.bound)
            for step, seconds in search.seconds.items():
                clock.seconds[step] = clock.seconds.get(step, 0.0) + seconds
            if best.closed(gap):
                break
        if not best.closed(gap):
            _offer_fewer_targets(problem, best, effort, gap, seed)
            clock.lap("fewer targets")
        if best.choices is None and best.bound < INF:
            raise OptimizationError(
                "a program must be found within the time limit",
                actual=f"none within the work of {time_limit:g} s",
                hint="raise the time limit",
            )
    else:
        best.raise_bound("greedy", least_cost(reduced.problem, Dominators(reduced.problem)))
        clock.lap("bound")
    if best.choices is None:
        raise _infeasible(problem)
    check(problem, best.choices)
    cost = program_cost(problem, best.choices)
    late = "size limit" if not fits else "time limit" if effort.is_late else "work limit"
    reason = "greedy" if objective == "greedy" else "optimal" if best.closed(gap) else late
    return Solution(best.choices, cost, min(best.bound, cost), reason, clock.seconds, limit - effort.work)


def _searches(
    problem: Problem, start: Mapping[int, Choice] | None, effort: Effort, gap: float, seed: int, best: Incumbent
) -> Iterator[SharedSearch | RelaxedSearch | PartwiseSearch]:
    """The searches to be tried on a reduced problem one after the other, until one closes the gap."""
    yield SharedSearch(problem, effort.share(KEPT), gap, seed)
    dominators = Dominators(problem)
    if recomputed(problem, dominators) or find_context(problem, dominators) is not None:
        yield SharedSearch(problem, effort.share(KEPT), gap, seed, joining=True)
        yield RelaxedSearch(problem, effort.share(MOST), gap, seed)
    yield PartwiseSearch(problem, start, effort, gap, seed, best, apart=search_apart)


def _offer_fewer_targets(problem: Problem, best: Incumbent, effort: Effort, gap: float, seed: int) -> None:
    """Offers the programs of problems with fewer targets, within the remaining effort."""
    waiting = list(selections(problem)) if len(problem.targets) > 1 else []
    while waiting and not effort.is_over:
        targets = waiting.pop(0)
        share = effort.share(1 / (len(waiting) + 1))
        try:
            found = solve(restricted(problem, targets), work=share.work, guard=effort.guard, gap=gap, seed=seed)
        except OptimizationError:
            # Without the other targets, there may be no program.
            continue
        finally:
            effort.spend(share.work)
        choices = widened(found.choices, targets)
        best.offer("fewer targets", choices, program_cost(problem, choices))


class _Clock:
    """Seconds by step."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self.seconds[step] = now - self._last
        self._last = now


def _validate(problem: Problem) -> None:
    for name, values in (
        ("cost", problem.cost),
        ("copy_in", problem.copy_in),
        ("copy_out", problem.copy_out),
        ("dispatch", problem.dispatch),
    ):
        wrong = ~(np.asarray(values) >= 0)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise OptimizationError(
                "costs must be non-negative numbers",
                place=f"{name}{list(place)}",
                actual=str(np.asarray(values)[place]),
                hint="check the cost expressions of the target file",
            )


def _infeasible(problem: Problem) -> OptimizationError:
    return OptimizationError(
        "every output must be computable on the given targets" + (" within the budgets" if problem.budgets else ""),
        actual="no program",
        hint="let the host support the operators of the model" + (", or raise the budget" if problem.budgets else ""),
    )
