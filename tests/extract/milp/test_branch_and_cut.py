"""Branch and cut finds the best point of integer programs whose rows come one by one, and its bounds are bounds."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from eqsat.extract.effort import Effort
from eqsat.extract.milp.branch_and_cut import Tree
from eqsat.extract.milp.extraction_search import ExtractionSearch
from eqsat.extract.milp.highs import IntegerProgram, Rows
from eqsat.extract.solve import solve
from tests.extract.oracle import launch_problem, optimum

COLUMNS = 9


class Hidden:
    """A random covering problem of 0/1 columns, most of whose rows are only added where a point violates them.

    Its optimum is at a cost of its own, unlike that of the relaxation. Some points cost more than their columns say,
    and no row tells, like a program whose launches are not proven to be fewest.
    """

    def __init__(self, seed: int, dear: bool = False) -> None:
        rng = random.Random(seed)
        self.cost = np.array([rng.randint(3, 9) + rng.random() / 8 for _ in range(COLUMNS)])
        self.rows = [rng.sample(range(COLUMNS), rng.choice((2, 3, 5))) for _ in range(14)]
        self.least = [1 if len(row) < 5 else 2 for row in self.rows]
        self.dear = dear
        shown = Rows()
        for row, least in zip(self.rows[:3], self.least, strict=False):
            shown.add(row, np.ones(len(row)), least, np.inf)
        ones = np.ones(COLUMNS)
        self.program = IntegerProgram(self.cost, np.zeros(COLUMNS), ones, ones.astype(bool), shown)
        self.best = float(self.cost.sum()) + 5.0
        self.bounds: list[float] = []

    def price(self, point: np.ndarray) -> float:
        return float(self.cost @ point) + (2.0 if self.dear and point[0] + point[1] == 2 else 0.0)

    def allowed(self, point: np.ndarray) -> bool:
        return all(point[row].sum() >= least for row, least in zip(self.rows, self.least, strict=True))

    def optimum(self) -> float:
        points = (np.array(p, dtype=float) for p in itertools.product((0, 1), repeat=COLUMNS))
        return min(self.price(p) for p in points if self.allowed(p))

    def cut(self, x: np.ndarray) -> int:
        violated = Rows()
        for row, least in zip(self.rows, self.least, strict=True):
            if x[row].sum() < least - 1e-6:
                violated.add(row, np.ones(len(row)), least, np.inf)
        self.program.add(violated)
        if not violated.count and np.abs(x - np.round(x)).max() < 1e-6:
            self.best = min(self.best, self.price(np.round(x)))
        return violated.count

    def search(self, work: float) -> float:
        counts, others = np.array([0, 1]), np.arange(2, COLUMNS)
        upper = np.ones(COLUMNS)
        tell = self.bounds.append
        return Tree(self.program, Effort(work), upper, counts, others, lambda: self.best, self.cut, tell).run()


@pytest.mark.parametrize("seed", range(40))
def test_the_best_point_is_found_and_proven(seed: int) -> None:
    hidden = Hidden(seed)
    bound = hidden.search(60.0)
    assert hidden.best == pytest.approx(hidden.optimum())
    assert bound == pytest.approx(hidden.best, rel=1e-9)
    assert max(hidden.bounds) <= hidden.best + 1e-9
    # The columns have their bounds back.
    outcome = hidden.program.integer()
    assert outcome.value <= hidden.best + 1e-6


@pytest.mark.parametrize("seed", range(40))
def test_points_that_cost_more_than_their_rows_say_stay_open(seed: int) -> None:
    hidden = Hidden(seed, dear=True)
    bound = hidden.search(60.0)
    best = hidden.optimum()
    assert bound <= best + 1e-9
    assert hidden.best >= best - 1e-9
    assert max(hidden.bounds) <= best + 1e-9


@pytest.mark.parametrize("work", [0.0, 1e-6, 1e-5, 1e-4])
def test_bounds_hold_wherever_the_work_ends(work: float) -> None:
    for seed in range(12):
        hidden = Hidden(seed)
        assert hidden.search(work) <= hidden.optimum() + 1e-9


def test_launches_are_settled_without_starting_over(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, others = 0, 0
    run, integer = Tree.run, IntegerProgram.integer

    def watched(tree: Tree) -> float:
        nonlocal trees
        trees += 1
        return run(tree)

    def counted(program: IntegerProgram, *arguments: Any, **options: Any) -> object:
        nonlocal others
        others += 1
        return integer(program, *arguments, **options)

    monkeypatch.setattr(Tree, "run", watched)
    monkeypatch.setattr("eqsat.extract.milp.extraction_search.IntegerProgram.integer", counted)
    # Small problems are mostly closed before: here the tree has to find all rows.
    monkeypatch.setattr(ExtractionSearch, "_cut", lambda *_: False)
    monkeypatch.setattr(ExtractionSearch, "_cut_and_probe", lambda _: False)
    for seed in range(60):
        problem = launch_problem(seed)
        best = optimum(problem)
        if best == np.inf:
            continue
        found = solve(problem)
        assert found.cost == pytest.approx(best, rel=1e-9)
        assert found.bound == pytest.approx(best, rel=1e-6)
    assert trees >= 20
    assert not others
