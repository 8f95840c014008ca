"""The solver against enumeration: optimal values, valid bounds, reductions that keep the optimum, exact regions."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from eqsat.errors import OptimizationError
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import check, program_cost
from eqsat.extract.programs.greedy import greedy
from eqsat.extract.reduce.smaller_problem import reduce_problem
from eqsat.extract.regions.stages import stages
from eqsat.extract.solve import solve
from tests.extract import oracle
from tests.extract.networks import residual_network

CHUNK = 25


@pytest.mark.parametrize("start", range(0, 500, CHUNK))
def test_optimum_and_bound(start):
    for seed in range(start, start + CHUNK):
        problem = oracle.random_problem(seed)
        best = oracle.optimum(problem)
        if math.isinf(best):
            with pytest.raises(OptimizationError, match="computable"):
                solve(problem)
            continue
        found = solve(problem)
        check(problem, found.choices)
        assert found.cost == pytest.approx(best, rel=1e-9, abs=1e-12), seed
        assert oracle.cost(problem, found.choices) == pytest.approx(found.cost, rel=1e-9, abs=1e-12), seed
        assert found.bound <= best * (1 + 1e-9) + 1e-12, seed
        assert found.stop_reason == "optimal", seed


@pytest.mark.parametrize("start", range(500, 700, CHUNK))
def test_reductions_keep_the_optimum(start):
    for seed in range(start, start + CHUNK):
        problem = oracle.random_problem(seed)
        best = oracle.optimum(problem)
        reduced = reduce_problem(problem)
        if math.isinf(best):
            continue
        assert reduced.feasible
        assert reduced.problem.nodes <= problem.nodes
        found = solve(reduced.problem)
        expanded = reduced.expand(found.choices)
        check(problem, expanded)
        assert program_cost(problem, expanded) == pytest.approx(best, rel=1e-9, abs=1e-12), seed


@pytest.mark.parametrize("seed", range(700, 760))
def test_other_objectives_give_programs(seed):
    problem = oracle.random_problem(seed)
    if problem.budgets or math.isinf(oracle.optimum(problem)):
        return
    for objective in ("worst", "random", "greedy"):
        found = solve(problem, objective=objective, seed=seed)
        check(problem, found.choices)
        assert found.cost == pytest.approx(program_cost(problem, found.choices))
    start = greedy(problem)
    if start is not None:
        assert solve(problem, objective="greedy").cost <= program_cost(problem, start) + 1e-12


def test_random_programs_differ_and_repeat():
    problem, _ = residual_network(3)
    draws = [solve(problem, objective="random", seed=s).choices for s in range(8)]
    assert draws[0] == solve(problem, objective="random", seed=0).choices
    assert any(draw != draws[0] for draw in draws)


def test_never_dearer_than_a_known_program_even_without_time():
    problem, known = residual_network(6)
    found = solve(problem, incumbent=known, time_limit=1e-9)
    assert found.cost <= program_cost(problem, known) + 1e-15
    assert found.bound <= found.cost


def test_long_networks_are_proven_optimal():
    problem, known = residual_network(30)
    found = solve(problem, incumbent=known)
    assert found.stop_reason == "optimal"
    assert found.gap <= 1e-6


def test_the_same_problem_gives_the_same_program():
    problem, known = residual_network(5)
    assert solve(problem, incumbent=known).choices == solve(problem, incumbent=known).choices


def test_costs_must_be_numbers():
    problem, _ = residual_network(1)
    for bad in (-1.0, np.nan):
        cost = problem.cost.copy()
        cost[2, 0] = bad
        changed = Problem(**{**problem.__dict__, "cost": cost})
        with pytest.raises(OptimizationError, match="non-negative"):
            solve(changed)


def test_an_incumbent_must_be_a_program():
    problem, known = residual_network(1)
    broken = dict(known)
    broken.pop(problem.roots[0])
    with pytest.raises(OptimizationError, match="complete"):
        solve(problem, incumbent=broken)


@pytest.mark.parametrize("start", range(0, 200, CHUNK))
def test_regions_are_as_few_as_possible(start):
    for seed in range(start, start + CHUNK):
        rng = random.Random(seed)
        count = rng.randint(1, 7)
        reads = [sorted(rng.sample(range(v), min(v, rng.choice([0, 1, 1, 2])))) for v in range(count)]
        target = [rng.randint(0, 2) for _ in range(count)]
        dispatch = [0.0, float(rng.randint(1, 3)), float(rng.randint(1, 3))]
        staging = stages(reads, target, dispatch)
        cost = sum(dispatch[target[region[0]]] for region in staging.regions)
        assert cost == pytest.approx(oracle.regions(reads, target, dispatch)), seed
        assert sorted(v for region in staging.regions for v in region) == list(range(count))
        place = {v: i for i, region in enumerate(staging.regions) for v in region}
        assert all(place[u] <= place[v] for v in range(count) for u in reads[v]), "regions are in execution order"
        assert all(len({target[v] for v in region}) == 1 for region in staging.regions)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("k", [1, 2, 5, 16, 64])
def test_a_node_waits_for_others_of_its_region(k, first):
    """a = p + p; b = q + q; h_i = f_i(b) on the host; n = a * b; d_i = a o h_i: two regions, in any order."""
    names = ["a", "b"] + (["n"] if first else []) + [f"h{i}" for i in range(k)] + [f"d{i}" for i in range(k)]
    names += [] if first else ["n"]
    number = {name: i for i, name in enumerate(names)}
    reads = [[] for _ in names]
    reads[number["n"]] = [number["a"], number["b"]]
    for i in range(k):
        reads[number[f"h{i}"]] = [number["b"]]
        reads[number[f"d{i}"]] = sorted([number["a"], number[f"h{i}"]])
    target = [0 if name.startswith("h") else 1 for name in names]
    staging = stages(reads, target, [0.0, 1.0])
    assert sum(target[region[0]] == 1 for region in staging.regions) == 2


def test_unused_choices_are_left_out():
    problem, known = residual_network(2)
    found = solve(problem, incumbent={**known})
    needed = set(problem.roots)
    for klass, choice in reversed(found.choices.items()):
        assert klass in needed
        assert isinstance(choice, Choice)
        needed.update(problem.children[choice.node])
