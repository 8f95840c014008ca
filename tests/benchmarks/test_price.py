"""Prices of partitioned programs against eqsat's own definition of cost, and against sums by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from benchmarks import baseline, graphs
from benchmarks.baseline import relax, relay
from benchmarks.baseline.expr import Expr, from_model
from benchmarks.baseline.partition import HOST, Partition
from benchmarks.baseline.price import host_price, price
from benchmarks.baseline.tables import Facts, operator_cost, tables
from eqsat.extract.problem import Choice, Problem
from eqsat.extract.program_cost import cost_of
from eqsat.model.load import load
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel
from tests.benchmarks.programs import as_program, random_program


def _costs(*names: str) -> CostModel:
    return CostModel(load_targets(list(names)))


def _problem(found: Partition, costs: CostModel) -> tuple[Problem, dict[int, Choice]]:
    """The partitioned program as an extraction problem with one e-node a value and no freedom."""
    index = {t.name: i for i, t in enumerate(costs.targets)} | {HOST: 0}
    values = [*found.program.inputs, *(e for e in found.program.bindings if e.kind == "call")]
    place = {e: i for i, e in enumerate(values)}

    def read(expr: Expr | None) -> list[int]:
        if expr is None or expr.kind == "constant":
            return []
        return [place[expr]] if expr in place else [i for a in expr.args for i in read(a)]

    facts = Facts()
    where = [0 if e.kind == "input" else index[found.target_of[e]] for e in values]
    cost = np.full((len(values), len(costs.targets)), np.inf)
    for i, expr in enumerate(values):
        cost[i, where[i]] = 0.0 if expr.kind == "input" else operator_cost(costs, where[i], expr, facts)
    copies = np.array([[costs.copy_in(t, e.type) for t in range(len(costs.targets))] for e in values])
    roots = tuple(dict.fromkeys(i for o in found.program.outputs for i in read(o)))
    children = tuple(tuple(sorted({i for a in e.args for i in read(a)})) for e in values)
    dispatch = np.array([costs.dispatch(t) for t in range(len(costs.targets))])
    problem = Problem(
        tuple(t.name for t in costs.targets),
        len(values),
        np.arange(len(values)),
        children,
        cost,
        copies,
        copies,
        dispatch,
        roots,
    )
    return problem, {i: Choice(i, where[i]) for i in range(len(values))}


@pytest.mark.parametrize("seed", range(4))
def test_kernels_and_copies_are_those_of_the_extractor(seed: int) -> None:
    rng = random.Random(seed)
    costs = _costs("toy_regions")
    compared = 0
    for _ in range(30):
        data = random_program(rng)
        for flow in (relay.partition, relax.partition):
            found = flow(as_program(data), tables(costs))
            problem, choices = _problem(found, costs)
            needed = {i for children in problem.children for i in children} | set(problem.roots)
            choices = {i: c for i, c in choices.items() if i in needed}
            expected = cost_of(problem, choices)
            paid = price(found, costs)
            assert paid.kernels == pytest.approx(expected.nodes, rel=1e-12)
            assert paid.copies == pytest.approx(expected.copies, rel=1e-12)
            assert paid.dispatch >= expected.dispatch * (1 - 1e-12), "no cut into regions is better than the best"
            compared += bool(found.regions)
    assert compared >= 30


def test_one_composite() -> None:
    costs = _costs("toy_matmul")
    found = baseline.partition(load(graphs.dense_spelling(rows=32, inside=64, columns=48)), costs)
    x, w, b, y = 4 * 32 * 64, 4 * 64 * 48, 4 * 48, 4 * 32 * 48
    kernel = 0.1e-6 + max(32 * 64 * 48 / 100e9, (x + w + b + y) / 40e9)
    paid = price(found, costs)
    # The bias and the maximum count as one MAC an element each.
    assert paid.kernels == pytest.approx(kernel, rel=0.2)
    assert paid.kernels >= kernel
    assert paid.copies == pytest.approx(2 * 0.05e-6 + (x + y) / 40e9, rel=1e-12), "constants lie in every memory"
    assert paid.dispatch == pytest.approx(0.1e-6)
    assert paid.total == paid.kernels + paid.copies + paid.dispatch


def test_two_results_of_a_composite_are_both_written() -> None:
    costs = _costs("toy_shared")
    found = baseline.partition(load(graphs.shared_sum((64, 64))), costs, "relax")
    one = price(found, costs)
    (call,) = [e for e in found.program.bindings if e.composite is not None]
    call.types = call.types[:1]
    assert one.kernels - price(found, costs).kernels == pytest.approx(4 * 64 * 64 / 40e9)


def test_nothing_offloaded_costs_what_the_host_costs() -> None:
    costs = _costs("toy_shared")
    model = graphs.ccompiler_example()
    found = baseline.partition(load(model), costs)
    assert found.regions == ()
    assert price(found, costs).total == pytest.approx(host_price(from_model(load(model)), costs).total, rel=1e-12)
    assert math.isfinite(price(found, costs).total)
