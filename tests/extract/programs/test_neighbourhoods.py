"""Small problems around a program are the problem with all other classes fixed, and their programs never cost more."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from eqsat.extract.effort import Effort
from eqsat.extract.incumbent import Incumbent
from eqsat.extract.milp.extraction_search import ExtractionSearch
from eqsat.extract.problem import Budget, Choice, Problem
from eqsat.extract.program_cost import check, program_cost
from eqsat.extract.programs.greedy import greedy
from eqsat.extract.programs.neighbourhoods import Neighbourhoods, improve
from eqsat.extract.programs.sample import random_program
from eqsat.extract.solve import solve
from tests.extract.networks import residual_network
from tests.extract.oracle import optimum, random_problem


def exactly(problem: Problem, cutoff: float, effort: Effort) -> dict[int, Choice] | None:
    found = solve(problem)
    return found.choices if found.cost < cutoff else None


@pytest.mark.parametrize("seed", range(60))
def test_programs_of_the_neighbourhood_are_programs_of_the_whole(seed: int) -> None:
    problem = random_problem(seed)
    program = random_program(problem, seed)
    if program is None:
        return
    around = Neighbourhoods(problem)
    rng = random.Random(seed)
    start = rng.choice(list(program))
    free = around.free(start, program, rng.randint(1, problem.classes))
    small, nodes, classes = around.restricted(program, free)
    found = solve(small)
    assert found.cost <= program_cost(problem, program) * (1 + 1e-9)
    choices = {classes[c]: Choice(nodes[choice.node], choice.target) for c, choice in found.choices.items()}
    check(problem, choices)
    assert program_cost(problem, choices) == pytest.approx(found.cost, rel=1e-9)
    assert all(choice == program[c] for c, choice in choices.items() if c not in free)
    # With all classes free it is the problem itself.
    whole, _, _ = around.restricted(program, set(range(problem.classes)))
    assert solve(whole).cost == pytest.approx(optimum(problem), rel=1e-7, abs=1e-15)


def test_a_random_program_of_a_network_becomes_a_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.extract.programs.neighbourhoods.SMALLEST", 20)
    problem, _ = residual_network(12)
    program = random_program(problem, 1)
    assert program is not None
    start = program_cost(problem, program)
    best = Incumbent(program, start)
    improve(problem, best, Effort(1000.0), 0, exactly)
    assert best.choices is not None
    check(problem, best.choices)
    assert best.cost == program_cost(problem, best.choices)
    lowest = solve(problem).cost
    assert lowest * (1 - 1e-9) <= best.cost <= 1.02 * lowest < start


def test_budgets_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.extract.programs.neighbourhoods.SMALLEST", 20)
    problem, _ = residual_network(6)
    program = greedy(problem)
    assert program is not None
    weight = np.random.default_rng(0).random(problem.nodes)
    budget = Budget("noise", weight, sum(float(weight[c.node]) for c in program.values()))
    limited = replace(problem, budgets=(budget,))
    best = Incumbent(program, program_cost(limited, program))
    improve(limited, best, Effort(1000.0), 0, exactly)
    assert best.choices is not None
    check(limited, best.choices)


def test_a_search_that_cannot_prove_anything_looks_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.extract.programs.neighbourhoods.SMALLEST", 50)
    monkeypatch.setattr(ExtractionSearch, "_prove", lambda search: False)
    problem, _ = residual_network(20)
    start = random_program(problem, 3)
    assert start is not None
    best = Incumbent(dict(start), program_cost(problem, start))
    assert not ExtractionSearch(problem, best, Effort(10.0), 1e-6).run()
    assert best.choices is not None
    check(problem, best.choices)
    assert best.cost == program_cost(problem, best.choices) < 0.8 * program_cost(problem, start)
