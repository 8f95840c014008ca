"""Matrix products in C for every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.isa import AVX2
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNIT, Case, run, step

MATMUL, GEMM, FUSED = OpKey("", "MatMul"), OpKey("", "Gemm"), OpKey("com.microsoft", "FusedMatMul")


def draw(rng, shape):
    return rng.standard_normal(shape).astype(np.float32)


def bound(a, b):
    """Worst error of products in float32, apart from the epilogue."""
    return (4 + 2 * np.sqrt(a.shape[-1])) * UNIT * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))


def product(rng, shape_a, shape_b, constant=()):
    a, b = draw(rng, shape_a), draw(rng, shape_b)
    return Case(MATMUL, {}, [a, b], frozenset(constant), a.astype(np.float64) @ b.astype(np.float64), bound(a, b))


def fused(rng, shape_a, shape_b, alpha, trans_a, trans_b):
    a, b = draw(rng, shape_a), draw(rng, shape_b)
    left = a.swapaxes(-1, -2) if trans_a else a
    right = b.swapaxes(-1, -2) if trans_b else b
    y = alpha * (left.astype(np.float64) @ right.astype(np.float64))
    attributes = dict(alpha=alpha, transA=trans_a, transB=trans_b, transBatchA=0, transBatchB=0)
    return Case(FUSED, attributes, [a, b], frozenset(), y, abs(alpha) * bound(left, right) + UNIT * np.abs(y) * 2)


def gemm(rng, m, k, n, c_shape, *, constant=(1, 2), trans_a=0, trans_b=0, alpha=1.0, beta=1.0):
    a, b = draw(rng, (k, m) if trans_a else (m, k)), draw(rng, (n, k) if trans_b else (k, n))
    c = None if c_shape is None else draw(rng, c_shape)
    left, right = a.T if trans_a else a, b.T if trans_b else b
    y = alpha * (left.astype(np.float64) @ right.astype(np.float64))
    tolerance = abs(alpha) * bound(left, right)
    if c is not None:
        y = y + beta * c.astype(np.float64)
        tolerance = tolerance + UNIT * (np.abs(beta * c) * 2 + np.abs(y) * 2)
    constant = [i for i in constant if i < 2 or c is not None]
    attributes = dict(alpha=alpha, beta=beta, transA=trans_a, transB=trans_b)
    return Case(GEMM, attributes, [a, b, c], frozenset(constant), y, tolerance)


def cases(rng):
    return [
        product(rng, (7, 12), (12, 40), [1]),
        product(rng, (2, 3, 5, 8), (8, 17), [1]),
        product(rng, (4, 6, 9), (4, 9, 20), [1]),
        product(rng, (3, 1, 6, 9), (1, 2, 9, 5), [1]),
        product(rng, (1, 300), (300, 100), [1]),
        product(rng, (33, 10), (10, 1), [1]),
        product(rng, (30, 16), (16, 48)),
        product(rng, (2, 2, 30, 16), (2, 2, 16, 21)),
        product(rng, (2, 1, 30, 7), (3, 7, 18)),
        product(rng, (5, 3, 10), (10, 300)),
        product(rng, (40, 20), (20, 300)),
        product(rng, (6, 9), (9, 30), [0]),
        fused(rng, (2, 30, 16), (2, 33, 16), 0.125, 0, 1),
        fused(rng, (2, 16, 30), (2, 16, 33), 1.0, 1, 0),
        fused(rng, (9, 5), (31, 9), -2.0, 1, 1),
        gemm(rng, 1, 64, 100, (100,)),
        gemm(rng, 5, 20, 30, (30,), trans_b=1, alpha=0.5, beta=2.0),
        gemm(rng, 5, 20, 30, None, trans_a=1),
        gemm(rng, 5, 20, 30, (5, 30), constant=(1,)),
        gemm(rng, 5, 20, 30, (5, 1), beta=-1.5),
        gemm(rng, 5, 20, 30, (1,)),
        gemm(rng, 25, 20, 30, (30,), constant=(), trans_b=1),
        gemm(rng, 5, 20, 30, (1, 30), constant=(2,), alpha=3.0),
        gemm(rng, 3, 20, 30, (3, 30), constant=(1, 2), beta=0.0),
        gemm(rng, 5, 20, 30, None, constant=(0,), trans_a=1),
        gemm(rng, 5, 20, 30, (30,), constant=(0, 2), trans_a=1, trans_b=1, alpha=0.5),
        *columns(rng),
    ]


def columns(rng):
    """Products with a single column, of whole groups of rows and others, and with a rest of the reduction."""
    return [
        product(rng, (48, 64), (64, 1)),
        product(rng, (33, 61), (61, 1), [1]),
        product(rng, (7, 70), (70, 1), [0]),
        product(rng, (2, 3, 21, 37), (2, 3, 37, 1)),
        product(rng, (2, 3, 21, 37), (3, 37, 1), [1]),
        product(rng, (3, 1, 9, 40), (2, 40, 1)),
        fused(rng, (2, 19, 40), (2, 1, 40), 0.125, 0, 1),
        fused(rng, (2, 40, 19), (2, 40, 1), 0.125, 1, 0),
        gemm(rng, 21, 50, 1, (1,), alpha=0.5, beta=-2.0),
        gemm(rng, 21, 50, 1, (21, 1), constant=(1,), trans_b=1),
        gemm(rng, 21, 50, 1, (21, 1), constant=(2,), alpha=-1.5, beta=0.25),
        gemm(rng, 21, 50, 1, (1, 1), constant=(0,), trans_a=1),
    ]


@pytest.mark.parametrize("gaps", [False, True])
def test_products(gaps):
    run(cases(np.random.default_rng(1)), rng=np.random.default_rng(5) if gaps else None)


@pytest.mark.parametrize("gaps", [False, True])
def test_blocks_of_rows(gaps: bool):
    """Products that are larger than the second cache, whose rows fill blocks, and others."""
    rng = np.random.default_rng(7)
    found = [
        product(rng, (701, 64), (64, 331), [1]),
        product(rng, (2, 700, 40), (2, 40, 337)),
        product(rng, (3, 150, 130), (130, 600), [1]),
        fused(rng, (1, 580, 300), (1, 280, 300), 0.5, 0, 1),
    ]
    for case in found:
        family, task = case.build(None)
        assert "size_t m = 0" in family.generate(task, AVX2).body
    run(found, rng=rng if gaps else None)


def test_epilogue_behind_an_addend():
    rng = np.random.default_rng(2)
    found = gemm(rng, 6, 10, 20, (6, 20), constant=(1,), alpha=2.0)
    other, scale = draw(rng, (6, 20)), draw(rng, (20,))
    found.operands, found.constant_operands = [other, scale], frozenset({1})
    found.steps = [step("Sub", 1, 0), step("Mul", 2, 3), step("Relu", 4), step("Add", 5, 0)]
    first = found.expected
    found.expected = np.maximum(scale * (other - first), 0) + first
    found.tolerance = (found.tolerance + 4 * UNIT * (np.abs(first) + np.abs(other))) * (2 + np.abs(scale))
    run([found])


def test_epilogue_of_a_column():
    rng = np.random.default_rng(3)
    found = product(rng, (2, 21, 50), (50, 1))
    other, scale, rows = draw(rng, (2, 21, 1)), draw(rng, (1,)), draw(rng, (21, 1))
    found.operands, found.constant_operands = [other, scale, rows], frozenset({1, 2})
    found.steps = [step("Sub", 1, 0), step("Mul", 2, 4), step("Relu", 5), step("Add", 6, 3)]
    first = found.expected
    found.expected = np.maximum(scale * (other - first), 0) + rows
    found.tolerance = (found.tolerance + 4 * UNIT * (np.abs(first) + np.abs(other))) * (2 + np.abs(scale))
    found.tolerance = found.tolerance + 2 * UNIT * np.abs(rows)
    run([found])


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    "a, b", [((37,), (37, 21)), ((13, 37), (37,)), ((37,), (37,)), ((37,), (3, 37, 21)), ((2, 13, 37), (37,))]
)
def test_vectors_are_matrices(a: tuple[int, ...], b: tuple[int, ...], fixed: bool):
    rng = np.random.default_rng(11)
    x, y = draw(rng, a), draw(rng, b)
    model = CModel(load(eqsat.graph(op.MatMul(eqsat.input("x", a), y if fixed else eqsat.input("y", b)))))
    assert model.emitted.kernels[0].family == "packed matrix product"
    (found,) = model.run({"x": x} if fixed else {"x": x, "y": y}).values()
    want = x.astype(np.float64) @ y.astype(np.float64)
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
