"""Kernels that read an expanded tensor in place: its one element counts as often as it is repeated."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.model.expression import Tensor

SHAPES = (
    ((1, 1), (1, 20)),
    ((1, 1), (4, 41)),
    ((4, 1), (4, 5)),
    ((1, 33), (7, 33)),
    ((1, 1, 6), (4, 3, 6)),
    ((1, 1, 4), (7, 9, 4)),
    ((3, 1, 17), (3, 5, 17)),
    ((3, 5, 1), (3, 5, 19)),
)
REDUCTIONS = (op.ReduceSum, op.ReduceMean, op.ReduceL1, op.ReduceL2, op.ReduceSumSquare, op.ReduceMax, op.ReduceMin)


def int64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def outputs(x: Tensor, full: tuple[int, ...], last: bool) -> list[Tensor]:
    """Results of many operators that read an expanded tensor; with ``last`` in another order of its axes."""
    stretched = op.Expand(x, int64(*full))
    if last:
        stretched, full = op.Transpose(stretched, perm=list(range(len(full)))[::-1]), full[::-1]
    rank = len(full)
    found = [
        reduce(stretched, int64(*axes), keepdims=0)
        for reduce in REDUCTIONS
        for axes in ([rank - 1], [0], list(range(rank)))
    ]
    found += [op.Softmax(stretched, axis=rank - 1), op.LogSoftmax(stretched, axis=0)]
    found += [op.ArgMax(stretched, axis=rank - 1), op.CumSum(stretched, np.array(rank - 1))]
    scale, bias = (np.linspace(a, b, full[-1], dtype=np.float32) for a, b in ((1, 2), (-1, 1)))
    found += [op.LayerNormalization(stretched * scale, scale, bias, axis=-1)]
    weight = np.random.default_rng(0).standard_normal((full[-1], 18)).astype(np.float32)
    return [*found, op.MatMul(stretched, weight), op.TopK(stretched, int64(1))[0], op.Relu(stretched) + scale]


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["as it is", "transposed"])
@pytest.mark.parametrize(("given", "full"), SHAPES, ids=[f"{a} to {b}" for a, b in SHAPES])
def test_a_stretched_axis_counts_in_full(given: tuple[int, ...], full: tuple[int, ...], last: bool):
    graph = eqsat.graph(outputs(eqsat.input("x", given), full, last))
    x = np.random.default_rng(1).standard_normal(given).astype(np.float32)
    expected = eqsat.run(graph, {"x": x})
    actual = eqsat.compile(graph, select=False).run({"x": x})
    for name, wanted in expected.items():
        np.testing.assert_allclose(actual[name], wanted, rtol=2e-5, atol=2e-5 * float(np.abs(wanted).max()))
