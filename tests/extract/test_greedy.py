"""Greedy programs are programs, and good where sharing or trees decide."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.extract.cost import check, program_cost
from eqsat.extract.greedy import greedy, guided
from eqsat.extract.problem import Problem
from eqsat.extract.solve import solve
from tests.extract.networks import residual_network
from tests.extract.oracle import cost, optimum, programs, random_problem


def host_problem(classes: int, rows: list[tuple[int, tuple[int, ...], float]], roots: tuple[int, ...]) -> Problem:
    nothing = np.zeros((classes, 1))
    return Problem(
        ("cpu",),
        classes,
        np.array([c for c, _, _ in rows]),
        tuple(reads for _, reads, _ in rows),
        np.array([[price] for _, _, price in rows]),
        nothing,
        nothing,
        np.zeros(1),
        roots,
    )


@pytest.mark.parametrize("seed", range(200))
def test_random_problems(seed: int) -> None:
    problem = random_problem(seed)
    chosen = greedy(problem)
    if chosen is None:
        return
    check(problem, chosen)
    assert program_cost(problem, chosen) >= optimum(problem) * (1 - 1e-9)


def test_a_program_is_nearly_always_found_and_often_the_best() -> None:
    found = best = total = 0
    for seed in range(200):
        problem = random_problem(seed)
        lowest = optimum(problem)
        if lowest < float("inf"):
            total += 1
            chosen = greedy(problem)
            found += chosen is not None
            best += chosen is not None and program_cost(problem, chosen) <= lowest * (1 + 1e-9)
    assert found > 0.97 * total
    assert best > 0.75 * total


def test_shared_work_counts_once() -> None:
    # As trees, 1 and 2 cost 4 each, together 8 and thus more than the other way; but they share 0.
    rows = [(0, (), 3.0), (1, (0,), 1.0), (2, (0,), 1.0), (3, (1, 2), 0.0), (3, (), 6.0)]
    problem = host_problem(4, rows, (3,))
    chosen = greedy(problem)
    assert chosen is not None
    assert program_cost(problem, chosen) == optimum(problem) == 5.0


def test_a_chain_of_doublings_costs_its_length() -> None:
    rows: list[tuple[int, tuple[int, ...], float]] = [(0, (), 1.0)]
    for c in range(1, 400):
        rows.append((c, tuple(sorted({c - 1, max(0, c - 2)})), 1.0))
    chosen = greedy(host_problem(400, rows, (399,)))
    assert chosen is not None
    assert program_cost(host_problem(400, rows, (399,)), chosen) == 400.0


def test_networks_come_close_to_the_optimum() -> None:
    problem, _ = residual_network(10, host_only=0.3)
    chosen = greedy(problem)
    assert chosen is not None
    assert program_cost(problem, chosen) <= 1.1 * solve(problem).cost


@pytest.mark.parametrize("seed", range(40))
def test_a_solution_that_is_a_program_is_found_again(seed: int) -> None:
    problem = random_problem(seed, cyclic=False)
    for chosen in list(programs(problem))[:3]:
        share = np.zeros_like(problem.cost)
        for choice in chosen.values():
            share[choice.node, choice.target] = 1.0
        found = guided(problem, share)
        if found is not None:
            check(problem, found[1])
            assert found[0] == pytest.approx(cost(problem, found[1]), abs=1e-15)
