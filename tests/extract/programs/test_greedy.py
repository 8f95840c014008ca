"""Greedy programs are programs, and good where sharing or trees decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsat.extract.problem import Problem
from eqsat.extract.program_cost import check, program_cost
from eqsat.extract.programs.greedy import _assemble, _read_off, _set_labels, _tree_labels, greedy, guided
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


def residual_chain(length: int) -> Problem:
    """Each class reads the one below twice over: as a tree the last costs 2 ** length."""
    rows: list[tuple[int, tuple[int, ...], float]] = [(0, (), 0.0)]
    for layer in range(length):
        rows += [(2 * layer + 1, (2 * layer,), 1e-6), (2 * layer + 2, (2 * layer, 2 * layer + 1), 1e-6)]
    return host_problem(2 * length + 1, rows, (2 * length,))


@pytest.mark.slow
@pytest.mark.parametrize("length", [10, 900, 10_000, pytest.param(40_000, marks=pytest.mark.heavy)])
def test_labels_stay_finite_on_deep_networks(length: int) -> None:
    problem = residual_chain(length)
    chosen = greedy(problem)
    assert chosen is not None
    check(problem, chosen)
    assert program_cost(problem, chosen) == pytest.approx(2e-6 * length)
    assert np.isfinite(np.array(_tree_labels(problem).held)).all()


def test_the_cheaper_of_two_is_found_also_where_labels_overflow() -> None:
    problem = residual_chain(3000)
    last = problem.classes
    rows = [
        (int(c), reads, float(price[0]))
        for c, reads, price in zip(problem.node_class, problem.children, problem.cost, strict=True)
    ]
    rows += [(last, (last - 1,), 5.0), (last, (last - 1, last - 2), 1.0), (last, (last - 2,), 3.0)]
    chosen = greedy(host_problem(last + 1, rows, (last,)))
    assert chosen is not None and chosen[last].node == len(rows) - 2


def test_sets_that_would_take_too_much_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.extract.programs.greedy.MOST_ITEMS", 1000)
    assert _set_labels(residual_chain(20)) is not None
    assert _set_labels(residual_chain(40)) is None


def test_costs_that_vanish_in_the_rounding_of_shared_work_do_not_guide() -> None:
    """With 60 residual connections the cost of the shared work is some 2 ** 60 times that of an e-node."""
    problem, _ = residual_network(60)
    trees, sets = _tree_labels(problem), _set_labels(problem)
    assert trees is not None and sets is not None
    by_trees, by_sets = _assemble(problem, trees), _assemble(problem, sets)
    assert by_trees is not None and by_sets is not None
    assert program_cost(problem, by_trees) <= 1.05 * program_cost(problem, by_sets)


def test_programs_read_off_labels_are_programs() -> None:
    for seed in range(300):
        problem = replace(random_problem(seed), budgets=())
        for find in (_tree_labels, _set_labels):
            labels = find(problem)
            chosen = None if labels is None else _read_off(problem, labels)
            if chosen is not None:
                check(problem, chosen)


def test_labels_as_sets_give_their_program() -> None:
    """The label of a root that is a set is the cost of the program that it stands for, on one target."""
    problem = residual_chain(12)
    labels = _set_labels(problem)
    assert labels is not None
    chosen = _read_off(problem, labels)
    assert chosen is not None
    (root,) = problem.roots
    assert program_cost(problem, chosen) == pytest.approx(labels.held[root][0], rel=1e-9)
