"""Weights without a zero point become those of integer operators, as weights with a zero point of 0 do."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor

SCALE, ZERO = np.float32(0.05), np.uint8(128)


def quantized(x: Tensor) -> Tensor:
    return op.QuantizeLinear(x, SCALE, ZERO)


def layer(kind: str, per_channel: bool, zero: bool) -> Tensor:
    rng = np.random.default_rng(0)
    shape = {"Conv": (8, 4, 3, 3), "Gemm": (16, 8), "MatMul": (16, 8)}[kind]
    axis = 0 if kind == "Conv" else 1
    weights = rng.integers(-127, 128, shape).astype(np.int8)
    scale = (rng.uniform(0.5, 1, shape[axis]) / 64).astype(np.float32) if per_channel else np.float32(1 / 64)
    zeros = (np.zeros_like(scale, dtype=np.int8),) if zero else ()
    w = op.DequantizeLinear(weights, scale, *zeros, axis=axis)
    x = op.DequantizeLinear(quantized(eqsat.input("x", (2, 4, 6, 6) if kind == "Conv" else (4, 16))), SCALE, ZERO)
    y = op.MatMul(x, w) if kind == "MatMul" else getattr(op, kind)(x, w)
    return op.DequantizeLinear(op.QuantizeLinear(y, np.float32(0.5), ZERO), np.float32(0.5), ZERO)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["Conv", "Gemm", "MatMul"])
def test_they_are_weights_of_an_integer_operator(kind: str, per_channel: bool) -> None:
    graph = eqsat.graph(layer(kind, per_channel, zero=False))
    with_zeros = eqsat.optimize(eqsat.graph(layer(kind, per_channel, zero=True)))
    result = eqsat.optimize(graph)
    assert [node.op.name for node in result.plan.nodes] == [node.op.name for node in with_zeros.plan.nodes]
    assert "Conv" not in {n.op.name for n in result.plan.nodes} and result.cost == pytest.approx(with_zeros.cost)
    size = (2, 4, 6, 6) if kind == "Conv" else (4, 16)
    feed = {"x": np.random.default_rng(1).standard_normal(size).astype(np.float32)}
    (wanted,), (found,) = eqsat.run(graph, feed).values(), result.run(feed).values()
    # A sum near the middle between two integers is rounded to either side.
    assert np.abs(found - wanted).max() <= 0.5 and np.abs(wanted).max() > 5
    assert np.mean(found != wanted) < 0.05
