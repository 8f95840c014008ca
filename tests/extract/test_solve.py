"""The solver against enumeration, and its promises: bounds, incumbents, time limits, determinism, errors."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqsat.egraph.limits import LastGuard
from eqsat.errors import OptimizationError
from eqsat.extract import parts
from eqsat.extract.effort import Effort
from eqsat.extract.fewer_targets import restricted, selections
from eqsat.extract.milp.highs import IntegerProgram, Rows
from eqsat.extract.parts import PartwiseSearch
from eqsat.extract.problem import Problem
from eqsat.extract.program_cost import check, needed
from eqsat.extract.solve import solve
from eqsat.extract.split import split
from tests.extract.networks import quantized_network, residual_network
from tests.extract.oracle import INF, cost, launch_problem, optimum, programs, random_problem


def agrees_with_enumeration(problem: Problem) -> None:
    best = optimum(problem)
    if best == INF:
        with pytest.raises(OptimizationError):
            solve(problem)
        return
    solution = solve(problem)
    check(problem, solution.choices)
    close = {"rel": 1e-7, "abs": 1e-15}
    assert solution.cost == pytest.approx(best, **close)
    assert cost(problem, solution.choices) == pytest.approx(best, **close)
    assert solution.bound == pytest.approx(best, **close)
    assert solution.bound <= solution.cost
    assert solution.stop_reason == "optimal"
    assert solution.gap <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_random_problems_are_solved_to_proven_optimality(block: int) -> None:
    for seed in range(1000 + 25 * block, 1000 + 25 * (block + 1)):
        agrees_with_enumeration(random_problem(seed))


@pytest.mark.parametrize("block", range(10))
def test_launch_costs_are_part_of_the_optimum(block: int) -> None:
    for seed in range(1000 + 20 * block, 1000 + 20 * (block + 1)):
        agrees_with_enumeration(launch_problem(seed))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_parts_give_the_optimum_of_the_whole(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    several = 0

    def tiny(problem, dominators):
        nonlocal several
        found = split(problem, dominators, 1)
        several += len(found) > 1
        return found

    monkeypatch.setattr(parts, "split", tiny)
    for seed in range(2000 + 40 * block, 2000 + 40 * (block + 1)):
        agrees_with_enumeration(random_problem(seed))
        agrees_with_enumeration(launch_problem(seed))
    assert several > 5


@pytest.mark.parametrize("seed", range(60))
def test_an_incumbent_is_never_made_worse(seed: int) -> None:
    problem = random_problem(seed)
    for chosen in list(programs(problem))[:3]:
        for time_limit in (0.0, 30.0):
            solution = solve(problem, incumbent=chosen, time_limit=time_limit)
            check(problem, solution.choices)
            assert solution.cost <= cost(problem, chosen) * (1 + 1e-9)
            assert solution.bound <= optimum(problem) * (1 + 1e-7) + 1e-15


@pytest.mark.parametrize("objective", ["greedy", "worst", "random"])
@pytest.mark.parametrize("seed", range(60))
def test_other_objectives_give_programs(objective: str, seed: int) -> None:
    problem = random_problem(seed)
    found = list(programs(problem))
    if not found:
        with pytest.raises(OptimizationError):
            solve(problem, objective=objective)
        return
    solution = solve(problem, objective=objective, incumbent=found[0], seed=seed)
    check(problem, solution.choices)
    assert solution.stop_reason == objective
    assert solution.cost == pytest.approx(cost(problem, solution.choices), abs=1e-15)
    assert solution.bound <= optimum(problem) * (1 + 1e-9)
    if objective == "greedy":
        assert solution.cost <= cost(problem, found[0]) * (1 + 1e-9)


def test_out_of_time_leaves_a_program_and_a_valid_bound() -> None:
    problem, host = residual_network(30, host_only=0.3)
    proven = solve(problem, incumbent=host)
    assert proven.stop_reason == "optimal"
    for time_limit in (0.0, 0.02, 0.05):
        solution = solve(problem, incumbent=host, time_limit=time_limit)
        check(problem, solution.choices)
        assert solution.bound <= proven.cost * (1 + 1e-9)
        assert proven.cost <= solution.cost * (1 + 1e-9)
    unlucky = solve(problem, incumbent=host, time_limit=0.0)
    assert unlucky.stop_reason == "work limit"
    assert 0 < unlucky.gap < 1
    late = solve(problem, incumbent=host, guard=LastGuard(-1.0))
    assert late.stop_reason == "time limit"
    assert 0 < late.gap < 1


@pytest.mark.slow
def test_a_busy_machine_finds_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work ends the search, wherever the time goes."""
    problem, host = residual_network(12, host_only=0.4, targets=3, branches=2, seed=3)
    reasons = set()
    for work in (0.001, 0.003, 0.01, 0.03):
        idle = solve(problem, incumbent=host, work=work, time_limit=600)
        with monkeypatch.context() as patch:
            relaxation = IntegerProgram.relaxation

            def slowly(program: IntegerProgram, *limits: Any, usual: Any = relaxation) -> Any:
                time.sleep(0.01)
                return usual(program, *limits)

            patch.setattr(IntegerProgram, "relaxation", slowly)
            busy = solve(problem, incumbent=host, work=work, time_limit=500)
        assert (busy.choices, busy.cost, busy.bound, busy.stop_reason) == (
            idle.choices,
            idle.cost,
            idle.bound,
            idle.stop_reason,
        )
        reasons.add(idle.stop_reason)
    assert "work limit" in reasons


def test_branch_and_cut_stops_after_its_work() -> None:
    """A knapsack with near equal values, on which branch and cut takes many nodes."""
    count = 60
    rng = np.random.default_rng(1)
    weight = rng.integers(1000, 2000, count).astype(float)
    rows = Rows()
    rows.add(np.arange(count), weight, weight.sum() / 2 + 0.5, np.inf)
    found = []
    for work in (1e-3, 1e-3, 2e-3):
        program = IntegerProgram(weight, np.zeros(count), np.ones(count), np.ones(count, dtype=bool), rows)
        effort = Effort(work)
        outcome = program.integer(effort)
        assert effort.work < work and not effort.is_late
        found.append((outcome.status, outcome.bound, effort.work == 0.0))
    assert found[0] == found[1]
    assert found[0][2] == (found[0][0] == "limit")


def test_more_targets_never_make_a_program_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the search over all of them finds nothing in its time."""
    run = PartwiseSearch.run
    compared = 0
    for seed in range(40):
        problem = launch_problem(seed)
        alone = [_cost_of(restricted(problem, targets)) for targets in selections(problem)]
        if min(alone) == INF:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(PartwiseSearch, "run", _idle_on(len(problem.targets), run))
            patch.setattr("eqsat.extract.solve.greedy", lambda found: None)
            found = solve(problem)
        check(problem, found.choices)
        assert found.cost <= min(alone) * (1 + 1e-9)
        assert found.bound <= found.cost
        compared += 1
    assert compared > 5


def _cost_of(problem: Problem) -> float:
    try:
        return solve(problem).cost
    except OptimizationError:
        return INF


def _idle_on(targets: int, run: Callable[[PartwiseSearch], None]) -> Callable[[PartwiseSearch], None]:
    def idle(search: PartwiseSearch) -> None:
        if len(search.problem.targets) < targets:
            run(search)

    return idle


@pytest.mark.slow
def test_parts_that_ran_out_of_time_do_not_raise_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = residual_network(40, host_only=0.3, seed=3)
    best = solve(problem).cost
    # The first searches get no time at all, so that parts stand on greedy solutions.
    search = parts.ExtractionSearch
    for hurried in range(1, 4):
        calls = 0

        def limited(*arguments, hurried: int = hurried, **names):
            nonlocal calls
            calls += 1
            found = search(*arguments, **names)
            if calls <= hurried:
                found.deadline = 0.0
            return found

        monkeypatch.setattr(parts, "ExtractionSearch", limited)
        solution = solve(problem)
        check(problem, solution.choices)
        assert solution.bound <= best * (1 + 1e-9) <= solution.cost * (1 + 2e-9)


def test_networks_are_proven_optimal_with_their_launches() -> None:
    for targets in (2, 3):
        for branches in (1, 2):
            problem, host = residual_network(12, targets=targets, branches=branches, host_only=0.4, seed=targets)
            solution = solve(problem, incumbent=host)
            check(problem, solution.choices)
            assert solution.stop_reason == "optimal"
            assert solution.gap <= 1e-6


def test_parts_and_whole_agree_on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = residual_network(25, host_only=0.4, seed=5)
    costs = []
    for least in (20, 60, 10_000):
        monkeypatch.setattr(parts, "split", lambda p, d, least=least: split(p, d, least))
        costs.append(solve(problem).cost)
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-9)


def test_a_longer_dispatch_makes_fewer_regions() -> None:
    counts = []
    for dispatch in (0.0, 20e-6, 5e-3):
        problem, _ = residual_network(10, host_only=0.6, seed=1, dispatch=dispatch)
        solution = solve(problem)
        counts.append(sum(choice.target == 1 for choice in solution.choices.values()))
    assert counts[0] >= counts[1] > counts[2] == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.7, 1.1])
def test_a_tensor_and_its_quantized_form_under_a_budget(share: float) -> None:
    problem, host = quantized_network(10, share=share)
    solution = solve(problem, incumbent=host)
    check(problem, solution.choices)
    assert solution.stop_reason == "optimal"


@pytest.mark.slow
def test_a_larger_budget_costs_no_more() -> None:
    costs = [solve(quantized_network(8, share=share)[0]).cost for share in (0.0, 0.2, 0.4, 0.8, 1.1)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0]


def test_numbering_of_classes_and_nodes_does_not_matter() -> None:
    rng = random.Random(0)
    for problem in [random_problem(seed) for seed in range(30)] + [residual_network(6, seed=2)[0]]:
        classes, nodes = list(range(problem.classes)), list(range(problem.nodes))
        rng.shuffle(classes)
        rng.shuffle(nodes)
        # Class c becomes place[c]; node i is the old node nodes[i].
        place = np.argsort(classes)
        moved = replace(
            problem,
            node_class=place[problem.node_class[nodes]],
            children=tuple(tuple(sorted(int(place[k]) for k in problem.children[n])) for n in nodes),
            cost=problem.cost[nodes],
            copy_in=problem.copy_in[classes],
            copy_out=problem.copy_out[classes],
            roots=tuple(sorted(int(place[r]) for r in problem.roots)),
            budgets=tuple(replace(b, weight=b.weight[nodes]) for b in problem.budgets),
        )
        try:
            expected = solve(problem).cost
        except OptimizationError:
            with pytest.raises(OptimizationError):
                solve(moved)
            continue
        assert solve(moved).cost == pytest.approx(expected, rel=1e-7)


SCRIPT = """
from eqsat.extract.solve import solve
from tests.extract.networks import residual_network
from tests.extract.oracle import random_problem
problem, host = residual_network(12, targets=3, host_only=0.4)
for objective in ("best", "greedy", "worst", "random"):
    solution = solve(problem, incumbent=host, objective=objective, seed=3)
    print(objective, solution.cost.hex(), solution.bound.hex(), solution.choices)
for seed in (5, 331, 1074, 4091):
    solution = solve(random_problem(seed))
    print(solution.cost.hex(), solution.choices)
"""


@pytest.mark.slow
def test_two_runs_are_the_same_to_the_byte() -> None:
    root = Path(__file__).parents[2]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=root,
            capture_output=True,
            encoding="utf-8",
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        ).stdout
        for seed in ("0", "12345")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") == 8


def test_progress_shows_a_shrinking_gap() -> None:
    problem, host = residual_network(12, targets=3, host_only=0.4)
    seen: list[tuple[str, float, float]] = []
    solution = solve(problem, incumbent=host, progress=lambda *event: seen.append(event))
    assert seen[0][0] == "input"
    assert "greedy" in {step for step, _, _ in seen}
    costs, bounds = [c for _, c, _ in seen], [b for _, _, b in seen]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert solution.cost == pytest.approx(costs[-1])
    assert solution.bound == pytest.approx(bounds[-1])
    assert all(seconds >= 0 for seconds in solution.seconds.values())


def test_a_wide_gap_ends_the_search_early() -> None:
    problem, host = residual_network(12, targets=3, host_only=0.4)
    solution = solve(problem, incumbent=host, gap=0.9)
    assert solution.stop_reason == "optimal"
    assert solution.bound >= 0.1 * solution.cost


def test_impossible_problems_are_one_clear_error() -> None:
    problem, _ = residual_network(2)
    stranded = replace(problem, cost=np.full_like(problem.cost, INF))
    with pytest.raises(OptimizationError, match="computable on the given targets"):
        solve(stranded)
    tight, _ = quantized_network(2)
    # No e-node may be chosen at all.
    budget = replace(tight.budgets[0], weight=np.ones(tight.nodes), limit=0.5)
    with pytest.raises(OptimizationError, match="within the budgets"):
        solve(replace(tight, budgets=(budget,)))


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_costs_that_are_no_costs_are_refused(value: float) -> None:
    problem, _ = residual_network(1)
    price = problem.cost.copy()
    price[3, 1] = value
    with pytest.raises(OptimizationError, match=r"cost\[3, 1\]"):
        solve(replace(problem, cost=price))


def test_a_cyclic_incumbent_is_refused() -> None:
    problem, host = residual_network(2)
    first = next(iter(host))
    incomplete = {c: choice for c, choice in host.items() if c != first}
    assert needed(problem, incomplete) is None
    with pytest.raises(OptimizationError, match="complete and acyclic"):
        solve(problem, incumbent=incomplete)
