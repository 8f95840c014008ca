"""Extraction and placement to proven optimality: cutting planes first, then branch and cut.

The relaxation is solved repeatedly with the rows that it violates (``implication_rows``, ``acyclic``, ``launches``,
``joins``). On networks its solution mostly becomes a program, and that program is optimal. Otherwise the programs of
the host alone are searched and left out, and zones and e-nodes that no program better than the incumbent can use are
dropped. Where the rest falls into parts, they are searched one by one; else we branch (``branch_and_cut``, or HiGHS).
A solution that turns out cyclic, or whose launches cost more than the rows knew, adds rows, and the search goes on.
Every program on the way is priced exactly and every bound is one of the true cost, so that a stop at any time leaves a
program and its gap.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.extract.effort import Effort
from eqsat.extract.fewer_targets import restricted, widened
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.milp.acyclic import Acyclicity
from eqsat.extract.milp.branch_and_cut import Tree
from eqsat.extract.milp.connected_regions import Joins
from eqsat.extract.milp.fact_dominators import placed_facts, unplaced_facts
from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.highs import IntegerProgram, Rows, SolverResult
from eqsat.extract.milp.implication_rows import Implications
from eqsat.extract.milp.launches import Launches
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import HOST, cost_of, needed, program_cost
from eqsat.extract.programs.greedy import greedy, guided
from eqsat.extract.programs.neighbourhoods import improve, is_worthwhile
from eqsat.extract.reduce.class_dominators import Dominators, least_cost
from eqsat.extract.reduce.smaller_problem import hopeless_nodes, reduce_problem

LARGEST_COST = 1000.0
INTEGRAL = 1e-6
LARGE_RING = 20
"""Classes of a strongly connected component."""
STALLED_ROUNDS = 3
STALLED_GAIN = 3e-6
"""Cutting planes stop when the gap shrinks by less than this, for each e-node, within so many rounds: the larger the
problem, the more expensive a round."""
BEFORE, AFTER = 0.05, 0.15
"""Share of the work for neighbourhoods of the best program before the exact search, and the share kept for them after
it.
"""
NEIGHBOURHOOD = 0.1
"""Share of that work for one neighbourhood."""
SLOW = 5000
"""Classes from which on the relaxation takes seconds, and a better program is looked for before."""
ROUNDED = 10
"""Points of branch and cut from one near which a program is looked for to the next."""
HOST_ALONE = 0.1
"""Share of the work for programs without accelerators."""
FIRST_ROUNDS = 10
"""Rounds of cutting planes, in which most problems close, before programs without accelerators are searched."""
LEAST_PROBE_GAIN = 0.02
"""Least gain per round, as a share of the distance to the cutoff."""

Apart = Callable[[Problem, Incumbent, Effort, float, int], bool]
"""Searches a problem part by part, with a gap and a seed, if it falls into parts; whether it does."""


@dataclass
class ExtractionSearch:
    """One extraction problem in progress; the rest of it may be searched part by part."""

    problem: Problem
    best: Incumbent
    effort: Effort
    gap: float
    seed: int = 0
    apart: Apart | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> bool:
        """Improve the incumbent; True if the gap was closed."""
        clock = time.perf_counter()
        self.dominators = Dominators(self.problem)
        self.best.raise_bound("dominators", least_cost(self.problem, self.dominators))
        if self.best.closed(self.gap) or self.effort.is_over:
            return self.best.closed(self.gap)
        whole, large = self.effort, is_worthwhile(self.problem)
        if large:
            if self.problem.classes > SLOW:
                self._improve(BEFORE)
                self.seconds["neighbourhoods"] = time.perf_counter() - clock
            self.effort = whole.share(1.0 - AFTER)
        closed = self._prove()
        if large and not closed:
            clock = time.perf_counter()
            self.effort = whole
            self._improve(1.0)
            self.seconds["neighbourhoods"] = self.seconds.get("neighbourhoods", 0.0) + time.perf_counter() - clock
        return closed

    def _prove(self) -> bool:
        """Search for the best program and the bound; True if they meet."""
        clock = time.perf_counter()
        self.formulation = Formulation(self.problem, self.dominators)
        self.launches = Launches(self.formulation)
        self.joins = Joins(self.formulation, self.launches.zones)
        self.acyclicity = Acyclicity(self.formulation)
        graphs = [unplaced_facts(self.formulation)]
        if len(self.problem.targets) > 1:
            graphs.append(placed_facts(self.formulation, self.launches.zones))
        cyclic = max(map(len, self.dominators.rings), default=0) > LARGE_RING
        self.implications = [Implications(graph, cyclic) for graph in graphs]
        formulation = self.formulation
        size = self.best.cost if np.isfinite(self.best.cost) else float(formulation.cost.sum())
        self.scale = LARGEST_COST / size if size > 0 else 1.0
        self.point = np.zeros(formulation.columns)
        self.upper = formulation.upper.copy()
        hopeless = formulation.x[hopeless_nodes(self.problem, self.dominators, self.best.cost)].ravel()
        self.upper[hopeless[hopeless >= 0]] = 0.0
        self.program = IntegerProgram(
            formulation.cost * self.scale,
            np.zeros(formulation.columns),
            self.upper,
            formulation.integer,
            formulation.rows,
            self.seed,
        )
        self._add(self.acyclicity.pair_rows())
        self._idle: set[int] = set()
        # A lower bound of the programs that the rows exclude.
        self.left_out = np.inf
        self.seconds["model"] = time.perf_counter() - clock
        clock = time.perf_counter()
        if len(self.problem.targets) > 1 and not self._cut(FIRST_ROUNDS):
            self._search_host_alone()
        closed = self.best.closed(self.gap) or self._cut_and_probe() or self._continue_apart()
        # The rows that count connected pieces are many, and most networks close without them.
        if not closed and self._add(self.joins.first_rows()):
            closed = self._cut_and_probe() or self._continue_apart()
        self.seconds["relaxation"] = time.perf_counter() - clock
        clock = time.perf_counter()
        if not closed:
            closed = self._branch()
            self.seconds["branch"] = time.perf_counter() - clock
        return closed

    def _raise_bound(self, step: str, bound: float) -> None:
        """Take a bound of the programs that have not been left out."""
        self.best.raise_bound(step, min(bound, self.left_out))

    def _improve(self, share: float) -> None:
        """Look for a better program in neighbourhoods of the known one."""
        improve(self.problem, self.best, self.effort.share(share), self.seed, self._solve_neighbourhood)

    def _solve_neighbourhood(self, problem: Problem, cutoff: float, effort: Effort) -> dict[int, Choice] | None:
        """The best program found for a small problem; None if none costs less than a cutoff."""
        return self._solve_smaller(problem, cutoff, effort.share(NEIGHBOURHOOD)).choices

    def _solve_smaller(self, problem: Problem, cutoff: float, effort: Effort) -> Incumbent:
        """The best program that could be found, if it costs less than a cutoff, and a bound, at most the cutoff."""
        reduced = reduce_problem(problem)
        if not reduced.feasible:
            return Incumbent(None, cutoff, cutoff)
        start = greedy(reduced.problem)
        cost = np.inf if start is None else cost_of(reduced.problem, start).total
        local = Incumbent(start, min(cost, cutoff))
        ExtractionSearch(reduced.problem, local, effort, self.gap, self.seed).run()
        choices = None if local.choices is None or local.cost >= cutoff else reduced.expand(local.choices)
        return Incumbent(choices, local.cost, local.bound)

    def _search_host_alone(self) -> None:
        """Search the programs without accelerators, and leave them out of the relaxation if none of them is better.

        They are few, and where a launch hardly pays, the others cost a whole launch that the relaxation pays in part.
        """
        problem = self.problem
        alone = self._solve_smaller(restricted(problem, (HOST,)), self.best.cost, self.effort.share(HOST_ALONE))
        if alone.choices is not None:
            choices = widened(alone.choices, (HOST,))
            self.best.offer("host alone", choices, program_cost(problem, choices))
        zones = self.launches.zones.all
        is_known = alone.cost - alone.bound <= self.gap * alone.cost < np.inf
        if is_known and zones and (problem.dispatch[1:] > 0).all():
            self.left_out = alone.bound
            launched = Rows()
            launched.add([zone.column for zone in zones], np.ones(len(zones)), 1.0, np.inf)
            self._add(launched)

    def _cut_and_probe(self) -> bool:
        closed = self._cut()
        while not closed and self._probe():
            closed = self._cut()
        return closed

    def _cut(self, rounds: int = sys.maxsize) -> bool:
        """Cutting planes until the relaxation is a program, or they stop helping, or for some rounds."""
        history: list[float] = []
        thorough = False
        while rounds > 0 and not self.effort.is_over:
            rounds -= 1
            outcome = self.program.relaxation(self.effort)
            self._raise_bound("relaxation", outcome.bound / self.scale)
            if self.best.closed(self.gap):
                return True
            if outcome.x is None or outcome.status != "optimal":
                return False
            if len(self.problem.targets) > 1:
                # Elsewhere HiGHS branches, and would not find them again.
                self.program.drop_loose(outcome)
            self.point = x = outcome.x
            count = self._violated(x, thorough)
            whole = np.abs(x - np.round(x))[self.formulation.integer].max(initial=0.0) < INTEGRAL
            if whole:
                # Even if rows were violated: every program found may become the incumbent.
                count += self._consider("relaxation", x)
                if self.best.closed(self.gap):
                    return True
            if not count:
                self._fix(outcome)
                return False
            history.append(outcome.value)
            gain = outcome.value - history[-STALLED_ROUNDS] if len(history) >= STALLED_ROUNDS else np.inf
            least = min(0.1, STALLED_GAIN * self.problem.nodes)
            if gain < least * (self.best.cost * self.scale - outcome.value) and not whole:
                if thorough:
                    self._fix(outcome)
                    return False
                thorough = True
                history.clear()
        return False

    def _continue_apart(self) -> bool:
        """Search what may still be better than the incumbent part by part, once; True if the gap is closed.

        An e-node that computes the results of several layers at once keeps them together, until it is dropped.
        """
        if self.apart is None or self.effort.is_over:
            return False
        x = self.formulation.x
        useless = (x >= 0) & (self.upper[x] <= 0.0)
        for zone in self.launches.zones.all:
            if self.upper[zone.column] <= 0.0:
                useless[np.isin(self.formulation.klass, zone.classes), zone.target] = True
        if not useless.any():
            return False
        reduced = reduce_problem(replace(self.problem, cost=np.where(useless, np.inf, self.problem.cost)))
        if not reduced.feasible:
            self._raise_bound("parts", self.best.cost)
            return self.best.closed(self.gap)
        local = Incumbent(None, self.best.cost)
        if not self.apart(reduced.problem, local, self.effort, self.gap, self.seed):
            return False
        self.apart = None
        choices = {} if local.choices is None else reduced.expand(local.choices)
        self.best.offer("parts", choices, local.cost if local.choices is not None else np.inf)
        self._raise_bound("parts", local.bound)
        return self.best.closed(self.gap)

    def _add(self, rows: Rows, *, removable: bool = False) -> int:
        self.program.add(rows, removable=removable)
        return rows.count

    def _consider(self, step: str, x: np.ndarray) -> int:
        """Price the program of a 0/1 point; returns the number of rows added if it is not a program or costs more."""
        computed = self.formulation.decode(x)
        choices = needed(self.problem, computed)
        if choices is None:
            self._round(step, x)
            return self._add(self.acyclicity.cycle_rows(x))
        cost = cost_of(self.problem, choices)
        self.best.offer(step, choices, cost.total)
        idle = [c for c in computed if c not in choices and c not in self._idle]
        rows = self._add(self.joins.rows(x)) or self._add(self.launches.program_rows(x, choices, cost.staging))
        if rows and idle:
            self._idle.update(idle)
            rows += self._add(self.acyclicity.unread_rows(idle))
        return rows

    def _round(self, step: str, x: np.ndarray) -> None:
        """Look for a program near a point that is not a program."""
        found = guided(self.problem, np.append(x, 0.0)[self.formulation.x])
        if found is not None:
            self.best.offer(step, found[1], found[0])

    def _fix(self, outcome: SolverResult) -> None:
        """Drop columns that no program better than the incumbent uses (reduced cost fixing)."""
        if outcome.x is not None:
            self._round("relaxation", outcome.x)
        if outcome.reduced is None or outcome.x is None or not np.isfinite(self.best.cost):
            return
        room = (self.best.cost * (1 + 1e-9)) * self.scale - outcome.value
        useless = (outcome.reduced > room) & (outcome.x < INTEGRAL) & self.formulation.integer & (self.upper > 0)
        self.upper[useless] = 0.0
        columns = np.flatnonzero(useless)
        self.program.bound_columns(columns, np.zeros(len(columns)), np.zeros(len(columns)))

    def _probe(self) -> bool:
        """For each zone, bound the cost of the programs that use it; drop the zone if none of them beats the incumbent.

        Where the relaxation uses a zone in part, it pays a part of the launch. Here it has to pay the whole launch.

        Returns:
            Whether a zone was dropped.
        """
        if not np.isfinite(self.best.cost):
            return False
        cutoff = self.best.cost * (1 - 1e-9) * self.scale
        dropped = False
        for zone in self.launches.zones.all:
            own = self.formulation.x[np.isin(self.formulation.klass, zone.classes), zone.target]
            own = own[own >= 0]
            is_paid = self.point[zone.column] > 1 - INTEGRAL
            if is_paid or self.effort.is_over or not self.upper[own].any():
                continue
            column = np.array([zone.column])
            self.program.bound_columns(column, np.ones(1), np.full(1, np.inf))
            useless = self._exceeds(cutoff)
            self.program.bound_columns(column, np.zeros(1), np.full(1, np.inf))
            if useless:
                self.upper[own] = 0.0
                self.program.bound_columns(own, np.zeros(len(own)), np.zeros(len(own)))
                dropped = True
        return dropped

    def _exceeds(self, cutoff: float) -> bool:
        """Whether cutting planes raise the relaxation to a cutoff."""
        value = -np.inf
        while not self.effort.is_over:
            outcome = self.program.relaxation(self.effort)
            if outcome.status != "optimal" or outcome.x is None:
                return outcome.status == "infeasible"
            if outcome.bound >= cutoff:
                return True
            if outcome.value - value < LEAST_PROBE_GAIN * (cutoff - outcome.value) or not self._violated(
                outcome.x, False
            ):
                return False
            value = outcome.value
        return False

    def _violated(self, x: np.ndarray, thorough: bool) -> int:
        """Add the rows that a point violates, the first kinds found or all kinds; their number."""
        found = [implications.rows(x, thorough) for implications in self.implications]
        found += [self.launches.chain_rows(x), self.joins.rows(x), self.acyclicity.cycle_rows(x)]
        return sum(self._add(rows, removable=True) for rows in found)

    def _branch(self) -> bool:
        """Branch and cut: a tree of our own where launches need rows on the way, and HiGHS as long as it adds rows."""
        if len(self.problem.targets) > 1 and self._search_tree():
            return True
        while not self.effort.is_over:
            # The launches of a better point are mostly more than the rows know: that is seen without its optimality.
            hurried = len(self.problem.targets) > 1
            outcome = self.program.integer(self.effort, self.gap / 2, self._start(), stop_at_better=hurried)
            if outcome.status == "infeasible":
                # There is no better program than the incumbent, or no program.
                self._raise_bound("branch", self.best.cost)
                return True
            self._raise_bound("branch", outcome.bound / self.scale)
            known = self.best.cost
            rows = 0 if outcome.x is None else self._consider("branch", outcome.x)
            if self.best.closed(self.gap):
                return True
            if not rows and self.best.cost == known:
                return False
            # With a better incumbent, more columns can be dropped.
            if self._cut():
                return True
        return False

    def _search_tree(self) -> bool:
        """Branch and cut with rows at each node; True if the gap is closed."""
        root = self.program.relaxation(self.effort)
        zones = self.launches.zones.all
        counts = sorted({column for zone in zones for column in (zone.column, *zone.cells.columns)})
        counts = np.array(counts, dtype=np.int64)
        made = self.formulation.made
        others = np.union1d(np.flatnonzero(self.formulation.integer), made[made >= 0])
        points = 0

        def cut(x: np.ndarray) -> int:
            nonlocal points
            points += 1
            known = self.best.cost
            if points % ROUNDED == 1:
                self._round("branch", x)
            whole = np.abs(x - np.round(x))[self.formulation.integer].max(initial=0.0) < INTEGRAL
            rows = self._consider("branch", x) if whole else 0
            if self.best.cost < known and root.x is not None:
                self._fix(root)
            return rows or self._violated(x, False)

        tree = Tree(
            self.program,
            self.effort,
            self.upper,
            counts,
            np.setdiff1d(others, counts),
            lambda: self.best.cost * (1 - 1e-9) * self.scale,
            cut,
            lambda bound: self._raise_bound("branch", bound / self.scale),
        )
        self._raise_bound("branch", tree.run() / self.scale)
        return self.best.closed(self.gap)

    def _start(self) -> np.ndarray | None:
        if self.best.choices is None:
            return None
        point = self.formulation.encode(self.best.choices)
        staging = cost_of(self.problem, self.best.choices).staging
        self.joins.encode(point, self.best.choices, staging)
        counts = self.launches.counts(self.best.choices, staging)
        for column, count in counts.items():
            point[column] = count
        return point
