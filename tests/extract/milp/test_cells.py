"""Cells of zones: each region lies in one, and long chains close because launches are counted by cell."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.zones import Zones
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import cost_of, needed, program_cost
from eqsat.extract.programs.sample import random_program
from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.solve import solve
from tests.extract.milp.test_rows import Known, rows_hold
from tests.extract.oracle import launch_problem, random_problem, recurrent_problem


def zones_of(problem: Problem) -> Zones:
    return Zones(Formulation(problem, Dominators(problem)))


@pytest.mark.parametrize("seed", range(200))
def test_every_region_lies_in_a_cell(seed: int) -> None:
    rng = random.Random(seed)
    for problem in (recurrent_problem(rng.randint(1, 5), rng), launch_problem(seed), random_problem(seed)):
        zones = zones_of(problem)
        for draw in range(10):
            program = random_program(problem, draw)
            if program is None:
                break
            classes = list(program)
            for region in cost_of(problem, program).staging.regions:
                inside = {classes[i] for i in region}
                target = program[classes[region[0]]].target
                if target and problem.dispatch[target] > 0:
                    zone = zones.all[int(zones.of[classes[region[0]], target])]
                    assert any(inside <= cell for cell in zone.cells.cells)


@pytest.mark.parametrize("seed", range(40))
def test_rows_hold_for_programs_of_recurrent_networks(seed: int) -> None:
    rng = random.Random(seed)
    problem = recurrent_problem(rng.randint(2, 4), rng)
    drawn = (random_program(problem, draw) for draw in range(60))
    known = Known(problem, [program for program in drawn if program is not None])
    if known.programs:
        rows_hold(known)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_program_of_a_recurrent_network_is_found(seed: int) -> None:
    problem = recurrent_problem(2, random.Random(seed))
    node, target = np.nonzero(np.isfinite(problem.cost))
    options: list[list[Choice]] = [[] for _ in range(problem.classes)]
    for n, t in zip(node.tolist(), target.tolist(), strict=True):
        options[int(problem.node_class[n])].append(Choice(n, t))
    least = float("inf")
    for choices in itertools.product(*options):
        program = needed(problem, dict(enumerate(choices)))
        if program is not None and len(program) == sum(c in program for c in range(problem.classes)):
            least = min(least, program_cost(problem, program))
    found = solve(problem)
    assert found.cost == pytest.approx(least)
    assert found.bound == pytest.approx(least)


def test_a_step_is_a_cell() -> None:
    """A step, and what joins the steps; the class that brings a state there is in both."""
    steps = 6
    first, others = zones_of(recurrent_problem(steps)).all
    assert len(first.cells.cells) == 1
    assert len(others.cells.cells) == steps
    sides = [7 + 6 * step for step in range(steps - 1)]
    assert [sum(side in cell for cell in others.cells.cells) for side in sides] == [2] * (steps - 1)
    assert sorted(map(len, others.cells.cells)) == [*[5] * (steps - 1), steps + 2]


def test_a_long_recurrent_network_closes() -> None:
    found = solve(recurrent_problem(24), work=1.0)
    assert found.stop_reason == "optimal"
