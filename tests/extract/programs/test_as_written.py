"""Among equally cheap programs, the one that is written as the input is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.extract.problem import Budget, Problem
from eqsat.extract.program_cost import check, program_cost
from eqsat.extract.programs.as_written import as_written
from eqsat.extract.programs.sample import random_program
from tests.extract.oracle import random_problem


def with_ties(seed: int) -> Problem:
    """A random problem with few different costs, and with a budget that no program exceeds."""
    problem = random_problem(seed)
    cost = np.where(np.isfinite(problem.cost), np.round(problem.cost / 4e-6) * 4e-6, np.inf)
    weight = np.random.default_rng(seed).integers(0, 2, problem.nodes).astype(float)
    return replace(problem, cost=cost, budgets=(Budget("noise", weight, float(problem.nodes)),))


def test_programs_stay_feasible_and_as_cheap() -> None:
    more = 0
    for seed in range(300):
        problem = with_ties(seed)
        original, found = random_program(problem, 2 * seed), random_program(problem, 2 * seed + 1)
        if original is None or found is None:
            continue
        changed = as_written(problem, original, found)
        check(problem, changed)
        assert program_cost(problem, changed) <= program_cost(problem, found) * (1 + 1e-9)
        weight = problem.budgets[0].weight
        assert sum(weight[c.node] for c in changed.values()) <= sum(weight[c.node] for c in found.values())
        assert as_written(problem, original, original) == original
        alike = [sum(c in original and original[c] == p[c] for c in p) for p in (found, changed)]
        more += alike[1] > alike[0]
    assert more > 20


@pytest.mark.parametrize("layers", [0, 2, 4])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_dense_layer_of_pixels_stays_one(batch: int, layers: int) -> None:
    """As a convolution it costs the same; which of both a solver finds depends on the rest of the network."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x = eqsat.input("x", (batch, 8, 6, 6))
    for _ in range(layers):
        x = op.Relu(op.Conv(x, weights(8, 8, 3, 3), weights(8), pads=[1, 1, 1, 1]))
    rows = op.Flatten(op.MaxPool(x, kernel_shape=[6, 6]))
    result = eqsat.optimize(eqsat.graph(op.Gemm(rows, weights(8, 5), weights(5))))
    assert [n.op_type for n in result.model.graph][-2:] == ["Flatten", "Gemm"]
