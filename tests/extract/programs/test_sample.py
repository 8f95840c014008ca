"""Random programs reach every program; costly ones are costlier than what an optimiser would choose."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import check, program_cost
from eqsat.extract.programs.sample import costly_program, random_program
from eqsat.extract.solve import solve
from tests.extract.networks import residual_network
from tests.extract.oracle import INF, programs, random_problem


def key(choices: dict[int, Choice]) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted((klass, choice.node, choice.target) for klass, choice in choices.items()))


def test_every_program_comes_up() -> None:
    tried = 0
    for seed in range(200):
        problem = random_problem(seed)
        finite = np.isfinite(problem.copy_in).all() and np.isfinite(problem.copy_out).all()
        found = {key(chosen) for chosen in programs(problem)}
        if not finite or problem.budgets or not 2 <= len(found) <= 25:
            continue
        drawn = set()
        for draw in range(2000):
            chosen = random_program(problem, draw)
            assert chosen is not None
            drawn.add(key(chosen))
            if drawn == found:
                break
        assert drawn == found
        tried += 1
        if tried == 15:
            break
    assert tried == 15


def test_cycles_do_not_keep_programs_away() -> None:
    # 1 = f(0) = g(2) and 2 = f(0) = h(1): either may be made from the other, not both.
    nothing = np.zeros((4, 1))
    problem = Problem(
        ("cpu",),
        4,
        np.array([0, 1, 1, 2, 2, 3]),
        ((), (0,), (2,), (0,), (1,), (1, 2)),
        np.ones((6, 1)),
        nothing,
        nothing,
        np.zeros(1),
        (3,),
    )
    drawn = {key(random_program(problem, seed) or {}) for seed in range(100)}
    assert drawn == {key(chosen) for chosen in programs(problem)}
    assert len(drawn) == 3


def test_a_seed_gives_one_program_and_seeds_differ() -> None:
    problem, _ = residual_network(4, targets=3)
    programs_of = [key(random_program(problem, seed) or {}) for seed in (1, 1, 2, 3)]
    assert programs_of[0] == programs_of[1]
    assert len(set(programs_of)) == 3


@pytest.mark.parametrize("seed", range(5))
def test_costly_programs_are_costly(seed: int) -> None:
    problem, host = residual_network(6, targets=3, seed=seed)
    costly = costly_program(problem, 0)
    assert costly is not None
    check(problem, costly)
    price = program_cost(problem, costly)
    assert price > 1.2 * program_cost(problem, host)
    draws = [random_program(problem, draw) or {} for draw in range(20)]
    assert price > max(program_cost(problem, draw) for draw in draws)
    assert price > 4 * solve(problem).cost


def test_the_costliest_of_a_small_problem_is_found_mostly() -> None:
    hits = total = 0
    for seed in range(60):
        problem = random_problem(seed)
        prices = [program_cost(problem, chosen) for chosen in programs(problem)]
        costly = costly_program(problem, 0)
        if not prices or costly is None:
            continue
        total += 1
        price = program_cost(problem, costly)
        assert price <= max(prices) * (1 + 1e-9)
        hits += price >= 0.9 * max(prices)
    assert hits > 0.7 * total


def test_budgets_bind_random_programs_too() -> None:
    seen = 0
    for seed in range(120):
        problem = random_problem(seed)
        chosen = random_program(problem, seed)
        if problem.budgets and chosen is not None:
            check(problem, chosen)
            seen += 1
    assert seen > 10


def test_no_program_at_all() -> None:
    problem, _ = residual_network(1)
    price = np.full_like(problem.cost, INF)
    assert random_program(Problem(**{**vars(problem), "cost": price}), 0) is None
