"""The search for problems whose parts share a context: for each place of its results, the parts one after the other.

The easiest case, in which all results lie in all memories, bounds the others from below, so that most of them end after
one part or before the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.extract.context import (
    Makers,
    MakersState,
    SharedClasses,
    chosen_of,
    context_problem,
    find_context,
    rest_problem,
)
from eqsat.extract.effort import Effort
from eqsat.extract.identical_parts import Known
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.indirect_search import IndirectSearch
from eqsat.extract.milp.extraction_search import ExtractionSearch
from eqsat.extract.parts import PartwiseSearch
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import program_cost
from eqsat.extract.programs.greedy import greedy
from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.reduce.smaller_problem import reduce_problem
from eqsat.extract.split import split

INF = float("inf")
LEAST_GAIN = 2
"""How many times smaller the largest part must become."""
LEAST_GAIN_JOINING = 4
"""The same where results may join what reads them, which takes more cases."""
OPEN = 10
"""Times the gap by which the easiest case may be open if the others are to be searched."""
KEPT = 0.5
"""Least share of the work for the search without a context."""


@dataclass(frozen=True)
class _Case:
    """A place of the context's results, and the cheapest program that brings them there."""

    state: MakersState
    makers: Makers
    choices: dict[int, Choice]
    bound: float


class SharedSearch(IndirectSearch):
    """Search for the best program of a reduced problem with a context.

    Args:
        problem, effort, gap, seed: As of :class:`eqsat.extract.indirect_search.IndirectSearch`.
        known: Solutions of parts.
        joining: Whether results of the context may join what reads them; that takes more cases.
    """

    def __init__(
        self,
        problem: Problem,
        effort: Effort,
        gap: float,
        seed: int,
        known: Known | None = None,
        joining: bool = False,
    ) -> None:
        super().__init__(problem, effort, gap, seed)
        self.known = Known() if known is None else known
        self.joining = joining

    def run(self) -> bool:
        """Searches if the problem has a context that makes its parts smaller; returns whether it has."""
        dominators = Dominators(self.problem)
        context = find_context(self.problem, dominators)
        if context is None or (context.joining and not self.joining):
            return False
        states = list(context.states())
        rest, _, _ = rest_problem(self.problem, context, states[0], {})
        largest = max(len(part.classes) for part in split(self.problem, dominators))
        least = LEAST_GAIN_JOINING if self.joining else LEAST_GAIN
        if least * max(len(part.classes) for part in split(rest, Dominators(rest))) > largest:
            return False
        cases = [case for state in states if (case := self._case(context, state, {})) is not None]
        if not cases or cases[0].state != states[0]:
            return False
        easiest = self._solve(context, cases[0], None)
        if easiest.cost - easiest.bound > OPEN * self.gap * easiest.cost:
            lower = min(case.bound for case in cases) + easiest.bound
        else:
            lower = self._least_bound(context, cases, easiest)
        self.bound = max(0.0, min(lower, self.cost))
        return True

    def _least_bound(self, context: SharedClasses, cases: Sequence[_Case], easiest: PartwiseSearch) -> float:
        """The least bound of all cases, of which the first one is the easiest; better programs are found on the way."""
        # With fewer memories the rest costs no less, so bounds also hold for the states below.
        bounds = [(cases[0].state, easiest.bound)]
        lower = INF
        for case in sorted(cases[1:], key=lambda case: (-sum(map(len, case.state)), case.bound)):
            rest_bound = max(bound for state, bound in bounds if _is_within(case.state, state))
            if case.bound + rest_bound < self._limit():
                rest_bound = max(rest_bound, self._solve(context, case, easiest).bound)
                bounds.append((case.state, rest_bound))
            lower = min(lower, self._refined(context, case, easiest, rest_bound))
        return min(lower, self._refined(context, cases[0], easiest, easiest.bound))

    def _limit(self) -> float:
        """Only what costs less than this is worth a search."""
        return self.cost * (1 - self.gap)

    def _refined(self, context: SharedClasses, case: _Case, easiest: PartwiseSearch, rest_bound: float) -> float:
        """The bound of a case; where it is open, the least one of its cases by what computes the results that may join.

        The context computes such a result where that is cheapest, and each part of the rest joins it where that is.
        """
        bound = case.bound + rest_bound
        if not context.joining or bound >= self._limit():
            return bound
        least = INF
        for makers in context.makers(self.problem):
            finer = self._case(context, case.state, makers)
            if finer is None:
                continue
            own = rest_bound
            if finer.bound + own < self._limit():
                own = max(own, self._solve(context, finer, easiest).bound)
            least = min(least, finer.bound + own)
        return max(bound, least)

    def _case(self, context: SharedClasses, state: MakersState, makers: Makers) -> _Case | None:
        problem, nodes = context_problem(self.problem, context, state, makers)
        if not problem.roots:
            return _Case(state, makers, {}, 0.0)
        reduced = reduce_problem(problem)
        if not reduced.feasible:
            return None
        start = greedy(reduced.problem)
        best = Incumbent(start, INF if start is None else program_cost(reduced.problem, start))
        ExtractionSearch(reduced.problem, best, self.effort.share(KEPT), self.gap, self.seed).run()
        if best.choices is None:
            return None if best.bound == INF else _Case(state, makers, {}, best.bound)
        return _Case(state, makers, chosen_of(self.problem, nodes, reduced.expand(best.choices)), best.bound)

    def _solve(self, context: SharedClasses, case: _Case, easiest: PartwiseSearch | None) -> PartwiseSearch:
        """Solves the rest for given places of the context's results, and prices the whole."""
        rest, nodes, _ = rest_problem(self.problem, context, case.state, case.makers)
        room = INF if easiest is None else self.cost - case.bound - easiest.bound
        best = Incumbent(None, INF)
        search = PartwiseSearch(
            rest, None, self.effort.share(KEPT), self.gap, self.seed, best, self.known, easiest, room, search_apart
        )
        search.run()
        self.count(search.seconds)
        if search.choices is not None:
            self.offer({**case.choices, **chosen_of(self.problem, nodes, search.choices)})
        return search


def _is_within(state: MakersState, other: MakersState) -> bool:
    """Whether each result is only in memories in which it also is in another state."""
    return all(set(own) <= set(more) for own, more in zip(state, other, strict=True))


def search_apart(
    problem: Problem, best: Incumbent, effort: Effort, gap: float, seed: int, known: Known | None = None
) -> bool:
    """Search a reduced problem part by part, if it falls into parts, with or without a context; whether it does."""
    shared = SharedSearch(problem, effort, gap, seed, known)
    if shared.run():
        if shared.choices is not None:
            best.offer("context", shared.choices, shared.cost)
        best.raise_bound("context", shared.bound)
        return True
    if len(split(problem, Dominators(problem))) == 1:
        return False
    parts = PartwiseSearch(problem, greedy(problem), effort, gap, seed, best, known, apart=search_apart)
    parts.run()
    if parts.choices is not None:
        best.offer("parts", parts.choices, parts.cost)
    best.raise_bound("parts", parts.bound)
    return True
