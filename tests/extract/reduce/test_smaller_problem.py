"""Reductions: the optimum stays, and the way back leads to a program of the same cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsat.extract.problem import Problem
from eqsat.extract.program_cost import check, program_cost
from eqsat.extract.reduce.class_dominators import Dominators
from eqsat.extract.reduce.smaller_problem import hopeless_nodes, reduce_problem
from tests.extract.oracle import INF, cost, launch_problem, optimum, programs, random_problem


@pytest.mark.parametrize("seed", range(150))
def test_the_optimum_stays(seed: int) -> None:
    for problem in (random_problem(seed), launch_problem(seed)):
        best = optimum(problem)
        reduced = reduce_problem(problem)
        if not reduced.feasible:
            assert best == INF
            continue
        smaller = reduced.problem
        assert smaller.nodes <= problem.nodes
        assert smaller.node_class.tolist() == sorted(smaller.node_class.tolist())
        assert optimum(smaller) == pytest.approx(best, rel=1e-9)
        for chosen in list(programs(smaller))[:5]:
            full = reduced.expand(chosen)
            check(problem, full)
            # What is left out or folded may become cheaper on the way back, never dearer.
            assert program_cost(problem, full) <= cost(smaller, chosen) * (1 + 1e-9) + 1e-18


@pytest.mark.parametrize("seed", range(150))
def test_hopeless_nodes_are_in_no_better_program(seed: int) -> None:
    problem = reduce_problem(random_problem(seed)).problem
    found = [(cost(problem, chosen), chosen) for chosen in programs(problem)]
    if not found:
        return
    middle = sorted(price for price, _ in found)[len(found) // 2]
    hopeless = hopeless_nodes(problem, Dominators(problem), middle)
    for price, chosen in found:
        if price <= middle:
            assert not any(hopeless[choice.node] for choice in chosen.values())


def host_problem(classes: int, rows: list[tuple[int, tuple[int, ...], float]], roots: tuple[int, ...]) -> Problem:
    nothing = np.zeros((classes, 1))
    return Problem(
        targets=("cpu",),
        classes=classes,
        node_class=np.array([c for c, _, _ in rows]),
        children=tuple(reads for _, reads, _ in rows),
        cost=np.array([[price] for _, _, price in rows]),
        copy_in=nothing,
        copy_out=nothing,
        dispatch=np.zeros(1),
        roots=roots,
    )


def test_a_chain_becomes_one_node() -> None:
    problem = host_problem(4, [(0, (), 1.0), (1, (0,), 2.0), (2, (1,), 4.0), (3, (2,), 8.0)], (3,))
    reduced = reduce_problem(problem)
    assert reduced.problem.nodes == 1
    assert reduced.problem.cost.tolist() == [[15.0]]
    assert sorted(reduced.origin[0][0] or ()) == [0, 1, 2, 3]


def test_what_costs_nothing_is_left_out_but_comes_back() -> None:
    problem = host_problem(3, [(0, (), 0.0), (1, (), 5.0), (1, (0,), 2.0), (2, (0, 1), 1.0)], (2,))
    reduced = reduce_problem(problem)
    assert reduced.problem.classes == 1
    chosen = next(programs(reduced.problem))
    assert list(reduced.expand(chosen)) == [0, 1, 2]


def test_nodes_that_need_their_own_class_go() -> None:
    rows = [(0, (), 1.0), (1, (0,), 1.0), (2, (1,), 0.0), (1, (2,), 0.0), (3, (1, 2), 1.0)]
    reduced = reduce_problem(host_problem(4, rows, (3,)))
    assert reduced.problem.nodes == 1
    assert reduced.problem.cost.tolist() == [[3.0]]


def test_the_cheaper_of_two_spellings_stays_on_each_target() -> None:
    problem = Problem(
        targets=("cpu", "npu"),
        classes=2,
        node_class=np.array([0, 1, 1]),
        children=((), (0,), (0,)),
        cost=np.array([[0.0, INF], [3.0, 9.0], [5.0, 2.0]]),
        copy_in=np.ones((2, 2)) * [0, 1],
        copy_out=np.ones((2, 2)) * [0, 1],
        dispatch=np.array([0.0, 1.0]),
        roots=(1,),
    )
    reduced = reduce_problem(problem)
    assert reduced.problem.nodes == 2
    assert reduced.origin[1] == ((1,), (2,))


def test_fewer_inputs_do_not_dominate_where_they_hold_a_region_together() -> None:
    # Class 3 read by both spellings of class 4 joins classes 1 and 2 on the accelerator, or does not.
    problem = Problem(
        targets=("cpu", "npu"),
        classes=4,
        node_class=np.array([0, 1, 2, 3, 3]),
        children=((), (0,), (0,), (1, 2), (1,)),
        cost=np.array([[0.0, INF], [INF, 1.0], [INF, 1.0], [INF, 1.0], [INF, 1.0]]),
        copy_in=np.zeros((4, 2)),
        copy_out=np.zeros((4, 2)),
        dispatch=np.array([0.0, 10.0]),
        roots=(2, 3),
    )
    assert optimum(problem) == 13.0
    assert optimum(reduce_problem(problem).problem) == 13.0
    free = replace(problem, dispatch=np.zeros(2))
    assert reduce_problem(free).problem.nodes < reduce_problem(problem).problem.nodes


def test_an_underivable_root_is_reported() -> None:
    assert not reduce_problem(host_problem(2, [(0, (1,), 1.0), (1, (0,), 1.0)], (0,))).feasible
    assert not reduce_problem(host_problem(1, [], (0,))).feasible
