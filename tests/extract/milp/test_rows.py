"""Rows of the integer program: every program satisfies each of them, with its true cost in the objective."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from eqsat.extract.milp.acyclic import Acyclicity
from eqsat.extract.milp.connected_regions import Joins
from eqsat.extract.milp.fact_dominators import placed_facts, unplaced_facts
from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.highs import IntegerProgram, Rows
from eqsat.extract.milp.implication_rows import Demands, Implications
from eqsat.extract.milp.launches import Launches
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import cost_of, needed, program_cost
from eqsat.extract.reduce.class_dominators import Dominators, least_cost, members
from eqsat.extract.reduce.smaller_problem import reduce_problem
from tests.extract.oracle import cost, launch_problem, programs, random_problem

MOST = 150
ROUNDS = 6


class Known:
    """All programs of a problem, or some, as points of its formulation."""

    def __init__(self, problem: Problem, some: Iterable[dict[int, Choice]] | None = None) -> None:
        self.problem = problem
        self.programs = [needed(problem, chosen) or {} for chosen in (programs(problem) if some is None else some)]
        random.Random(0).shuffle(self.programs)
        self.programs = self.programs[:MOST]
        self.dominators = Dominators(problem)
        self.formulation = Formulation(problem, self.dominators)
        self.launches = Launches(self.formulation)
        self.joins = Joins(self.formulation, self.launches.zones)
        self.points = np.array([self.point(chosen) for chosen in self.programs])

    def point(self, chosen: dict[int, Choice]) -> np.ndarray:
        point = self.formulation.encode(chosen)
        staging = cost_of(self.problem, chosen).staging
        for column, count in self.launches.counts(chosen, staging).items():
            point[column] = count
        self.joins.encode(point, chosen, staging)
        return point

    def satisfy(self, rows: Rows) -> None:
        starts, index, value, lower, upper = rows.arrays()
        for row in range(rows.count):
            entries = slice(starts[row], starts[row + 1])
            activity = self.points[:, index[entries]] @ value[entries]
            assert (activity >= lower[row] - 1e-9).all()
            assert (activity <= upper[row] + 1e-9).all()


def problems(seed: int) -> list[Known]:
    reduced = [reduce_problem(problem) for problem in (random_problem(seed), launch_problem(seed))]
    found = [Known(r.problem) for r in reduced if r.feasible]
    return [known for known in found if known.programs]


@pytest.mark.parametrize("seed", range(60))
def test_rows_hold_for_all_programs(seed: int) -> None:
    for known in problems(seed):
        rows_hold(known)
        for chosen in known.programs:
            assert program_cost(known.problem, chosen) == pytest.approx(cost(known.problem, chosen), abs=1e-18)


def rows_hold(known: Known) -> None:
    """Add the rows that relaxations violate, some rounds of them; all programs satisfy each."""
    formulation = known.formulation
    known.satisfy(formulation.rows)
    for chosen, point in zip(known.programs, known.points, strict=True):
        assert formulation.cost @ point == pytest.approx(program_cost(known.problem, chosen), rel=1e-9, abs=1e-18)
        assert formulation.decode(point) == chosen
    acyclicity = Acyclicity(formulation)
    known.satisfy(acyclicity.pair_rows())
    known.satisfy(acyclicity.unread_rows(range(known.problem.classes)))
    known.satisfy(known.joins.first_rows())
    graphs = [
        Implications(unplaced_facts(formulation)),
        Implications(placed_facts(formulation, known.launches.zones)),
    ]
    program = IntegerProgram(
        formulation.cost / max(formulation.cost.max(), 1e-9),
        np.zeros(formulation.columns),
        formulation.upper,
        formulation.integer,
        formulation.rows,
    )
    for turn in range(ROUNDS):
        if turn == 2:
            program.add(known.joins.first_rows())
        outcome = program.relaxation()
        assert outcome.x is not None
        found = [graph.rows(outcome.x, thorough=turn > 2) for graph in graphs]
        found += [acyclicity.cycle_rows(outcome.x), known.launches.chain_rows(outcome.x)]
        found.append(known.joins.rows(outcome.x))
        chosen = needed(known.problem, formulation.decode(outcome.x))
        if chosen is not None and np.abs(outcome.x - outcome.x.round()).max() < 1e-6:
            found.append(known.launches.program_rows(outcome.x, chosen, cost_of(known.problem, chosen).staging))
        for rows in found:
            known.satisfy(rows)
            program.add(rows)
        if not any(rows.count for rows in found):
            break


@pytest.mark.parametrize("seed", range(60))
def test_rows_from_arbitrary_points_hold_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for known in problems(seed):
        formulation = known.formulation
        acyclicity = Acyclicity(formulation)
        graphs = [
            Implications(unplaced_facts(formulation)),
            Implications(placed_facts(formulation, known.launches.zones)),
        ]
        for share in (0.2, 0.5):
            x = rng.choice([0.0, 0.25, 0.5, 1.0], size=formulation.columns, p=[1 - share, *[share / 3] * 3])
            found = [graph.rows(x, thorough) for graph in graphs for thorough in (False, True)]
            known.joins.first_rows()
            found += [acyclicity.cycle_rows(x), known.launches.chain_rows(x), known.joins.rows(x)]
            for rows in found:
                known.satisfy(rows)


@pytest.mark.parametrize("seed", range(100))
def test_launch_rows_of_one_program_hold_for_the_others(seed: int) -> None:
    for known in problems(seed):
        for chosen, point in list(zip(known.programs, known.points, strict=True))[:20]:
            staging = cost_of(known.problem, chosen).staging
            blind = point.copy()
            for zone in known.launches.zones.all:
                blind[zone.column] = min(blind[zone.column], 1.0)
            rows = known.launches.program_rows(blind, chosen, staging)
            known.satisfy(rows)
            # The point pays for fewer regions than its program has, which some row must notice.
            assert rows.count or (blind == point).all()


@pytest.mark.parametrize("seed", range(100))
def test_dominators_are_what_all_programs_share(seed: int) -> None:
    for known in problems(seed):
        problem = known.problem
        common = set.intersection(*(set(chosen) for chosen in known.programs))
        must = set(members(known.dominators.of_roots(), problem.classes).tolist())
        assert must <= common
        assert least_cost(problem, known.dominators) <= min(cost(problem, c) for c in known.programs) * (1 + 1e-9)
        for chosen in known.programs:
            below: dict[int, set[int]] = {}
            for klass, choice in chosen.items():
                below[klass] = {klass}.union(*(below[k] for k in problem.children[choice.node]))
                assert set(members(known.dominators.of_class[klass], problem.classes).tolist()) <= below[klass]


def test_dominators_of_a_diamond() -> None:
    # 3 reads 1 or 2, both of which read 0; only class 0 is in every program beside the root.
    problem = Problem(
        ("cpu",),
        4,
        np.array([0, 1, 2, 3, 3]),
        ((), (0,), (0,), (1,), (2,)),
        np.ones((5, 1)),
        np.zeros((4, 1)),
        np.zeros((4, 1)),
        np.zeros(1),
        (3,),
    )
    dominators = Dominators(problem)
    assert members(dominators.of_class[3], 4).tolist() == [0, 3]
    assert least_cost(problem, dominators) == 2.0


def test_a_diamond_is_not_halved() -> None:
    """Two ways that meet again: half of what lies below would do for each, were it not for the row over both."""
    price = np.array([[10.0], [1.0], [1.0], [0.0], [0.0]])
    problem = Problem(
        ("cpu",),
        4,
        np.array([0, 1, 2, 3, 3]),
        ((), (0,), (0,), (1,), (2,)),
        price,
        np.zeros((4, 1)),
        np.zeros((4, 1)),
        np.zeros(1),
        (3,),
    )
    formulation = Formulation(problem, Dominators(problem))
    halves = np.zeros(formulation.columns)
    halves[formulation.x[:, 0]] = 0.5
    halves[formulation.made[3]] = 1.0
    assert Implications(unplaced_facts(formulation)).rows(halves).count
    # Every program contains class 0, so that its row is there from the start.
    program = IntegerProgram(
        formulation.cost, np.zeros(formulation.columns), formulation.upper, formulation.integer, formulation.rows
    )
    assert program.relaxation().value == pytest.approx(11.0)


def test_thirds_of_a_product_are_not_enough() -> None:
    """A product whose factors come fused or separate: a third of each way takes only two thirds of one factor."""
    # Classes: 0 input; 1, 2 the factors; 3 a factor with its activation; 4 the product.
    rows = [(0, (), 0.0), (1, (0,), 9.0), (2, (0,), 9.0), (3, (0,), 9.0), (3, (2,), 1.0)]
    rows += [(4, (1, 3), 1.0), (4, (0, 3), 9.0), (4, (1, 2), 1.0)]
    problem = Problem(
        ("cpu",),
        5,
        np.array([row[0] for row in rows]),
        tuple(row[1] for row in rows),
        np.array([[row[2]] for row in rows]),
        np.zeros((5, 1)),
        np.zeros((5, 1)),
        np.zeros(1),
        (4,),
    )
    dominators = Dominators(problem)
    formulation = Formulation(problem, dominators)
    implications = Implications(unplaced_facts(formulation))
    program = IntegerProgram(
        formulation.cost, np.zeros(formulation.columns), formulation.upper, formulation.integer, formulation.rows
    )
    for _ in range(20):
        outcome = program.relaxation()
        assert outcome.x is not None
        rows_of = implications.rows(outcome.x)
        if not rows_of.count:
            break
        program.add(rows_of)
    assert outcome.value == pytest.approx(min(cost(problem, chosen) for chosen in programs(problem)))


def test_regions_that_wait_for_each_other_are_counted() -> None:
    """The network of ``eqsat.extract.regions.stages``: with its pieces alone, the count would be one too small."""
    wide = [(0, ()), (1, (0,)), (2, (0,)), (3, (2,)), (4, (1, 2)), (5, (1, 3)), (6, (4, 5))]
    price = np.array([[0.0, np.inf], *[[9.0, 1.0]] * 6])
    price[3] = [1.0, np.inf]
    problem = Problem(
        ("cpu", "npu"),
        7,
        np.arange(7),
        tuple(row[1] for row in wide),
        price,
        np.zeros((7, 2)),
        np.zeros((7, 2)),
        np.array([0.0, 2.0]),
        (6,),
    )
    known = Known(problem)
    formulation = known.formulation
    program = IntegerProgram(
        formulation.cost, np.zeros(formulation.columns), formulation.upper, formulation.integer, formulation.rows
    )
    program.add(known.joins.first_rows())
    for _ in range(30):
        outcome = program.integer()
        assert outcome.x is not None
        rows = known.joins.rows(outcome.x)
        if not rows.count:
            break
        program.add(rows)
    assert outcome.value == pytest.approx(min(cost(problem, chosen) for chosen in known.programs))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_demanded_too_often_is_what_summing_up_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for known in problems(seed):
        graph = placed_facts(known.formulation, known.launches.zones)
        facts = graph.facts
        below = [[frozenset().union(*(facts[r].needs for r in o.reads)) for o in fact.options] for fact in facts]
        activity = rng.random(len(facts)).round(1)
        weights = [rng.random(len(fact.options)).round(1) for fact in facts]
        wanted: dict[int, dict[int, float]] = {}
        for number in range(len(facts)):
            for other in range(len(facts)):
                parts = [w for w, needs in zip(weights[number], below[number], strict=True) if other in needs]
                excess = sum(parts) - activity[other]
                if other != number and parts and activity[number] > 0 and excess > 1e-5:
                    wanted.setdefault(number, {})[other] = excess
        found = Demands(graph, lambda fact, option, below=below: below[fact][option]).excess(
            activity, np.concatenate(weights)
        )
        assert [number for number, _ in found] == sorted(wanted)
        assert {number: pytest.approx(excess) for number, excess in wanted.items()} == dict(found)
