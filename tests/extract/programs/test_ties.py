"""Among equally cheap programs, the one in which factors that shrink come first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import eqsat

HALF = np.float16


@pytest.mark.parametrize("order", list(itertools.permutations((300.0, 300.0, 0.001))))
def test_factors_that_cannot_be_merged_into_one(order: tuple[float, ...]) -> None:
    x = eqsat.input("x", (3,), "float16")
    y = x
    for factor in order:
        y = y * HALF(factor)
    result = eqsat.optimize(eqsat.graph(y))
    values = np.array([1, 100, -700], HALF)
    (found,) = result.run({"x": values}).values()
    np.testing.assert_allclose(found.astype(float), values.astype(float) * 90, rtol=4e-3)


def factors(result: eqsat.Result) -> list[float]:
    constants = (v.const_value for node in result.model.graph for v in node.inputs if v is not None)
    return [float(c.numpy().max()) for c in constants if c is not None]


@pytest.mark.parametrize("order", [(300.0, 250.0), (250.0, 300.0), (1e-3, 1e-3), (2e-3, 1e-3)])
def test_equal_costs_stay_equal(order: tuple[float, float]) -> None:
    """Nothing shrinks before it grows here, so what the constants are decides nothing but their order."""
    x = eqsat.input("x", (3,), "float16")
    result = eqsat.optimize(eqsat.graph(x * HALF(order[0]) * HALF(order[1])))
    assert sorted(factors(result)) == pytest.approx(sorted(order), rel=1e-3)
    assert factors(result)[0] == pytest.approx(min(order), rel=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 300.0])
def test_a_factor_beside_a_product(factor: float) -> None:
    """(x * c) * y is (x * y) * c: a small c comes first, a large one last."""
    x, y = eqsat.input("x", (3,), "float16"), eqsat.input("y", (3,), "float16")
    result = eqsat.optimize(eqsat.graph((x * HALF(factor)) * y))
    nodes = list(result.model.graph)
    scaled_first = any(v.const_value is not None for v in nodes[0].inputs if v is not None)
    assert len(nodes) == 2 and scaled_first == (factor < 1)
    assert result.gap <= 1e-9
