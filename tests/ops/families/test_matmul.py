"""Matrix products of floats and, exactly, of integers."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.ops.families.matmul import integer_product
from tests.ops.oracle import check, run_reference, values

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (7, 4, 2)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint32, np.uint64])
def test_matmul(dtype: type):
    rng = np.random.default_rng(0)
    tolerance = {np.float32: 1e-6, np.float64: 1e-14, np.float16: 2e-3}.get(dtype, 0)
    for a, b in SHAPES:
        inputs = [values(rng, a, dtype, -50, 50), values(rng, b, dtype, -50, 50)]
        # ONNX Runtime has no empty inner dimension for every type.
        judge = {"judge": run_reference} if 0 in a else {}
        check("MatMul", inputs, rtol=tolerance, atol=tolerance * 2500, **judge)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("depth", [1, 3, 300, 5000])
def test_integer_product_is_exact_and_wraps(dtype: type, depth: int):
    rng = np.random.default_rng(depth)
    for bits in (7, 15, 31, 52):
        limits = np.iinfo(dtype)
        low, high = max(-(2**bits), int(limits.min)), min(2**bits, int(limits.max))
        a = rng.integers(low, high, (3, depth), endpoint=True).astype(dtype)
        b = rng.integers(low, high, (depth, 2), endpoint=True).astype(dtype)
        for result in (np.int32, np.int64, np.uint64):
            exact = [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) for column in b.T] for row in a]
            size = 8 * np.dtype(result).itemsize
            wrapped = np.array([[v % 2**size for v in row] for row in exact], np.uint64)
            ours = integer_product(a, b, result)
            assert ours.dtype == result
            np.testing.assert_array_equal(
                ours.astype(np.uint64) % np.uint64(2 ** (size - 1)), wrapped % np.uint64(2 ** (size - 1))
            )
            assert np.array_equal(ours.astype(np.uint64) & np.uint64(2**size - 1), wrapped)


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("c", [None, (), (1,), (5,), (3, 1), (1, 5), (3, 5)])
def test_gemm(trans_a: int, trans_b: int, c: tuple[int, ...] | None):
    rng = np.random.default_rng(1)
    for alpha, beta in ((1.0, 1.0), (0.5, 0.0), (2.0, -1.5)):
        for dtype in (np.float32, np.float64):
            a = values(rng, (4, 3) if trans_a else (3, 4), dtype)
            b = values(rng, (5, 4) if trans_b else (4, 5), dtype)
            bias = None if c is None else values(rng, c, dtype)
            attrs = {"alpha": alpha, "beta": beta, "transA": trans_a, "transB": trans_b}
            check("Gemm", [a, b, bias], attrs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gemm_of_integers(dtype: type):
    rng = np.random.default_rng(2)
    a, b, c = values(rng, (3, 4), dtype), values(rng, (4, 5), dtype), values(rng, (5,), dtype)
    check("Gemm", [a, b, c], judge=lambda *_: [a @ b + c])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,jk", [(2, 3, 4), (4, 5)]),
        ("ii->i", [(4, 4)]),
        ("ij->", [(4, 3)]),
        ("ij->ji", [(4, 3)]),
        ("i,j->ij", [(4,), (3,)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("b...c , c d -> b...d", [(2, 3, 4), (4, 5)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]):
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64):
        check("Einsum", [values(rng, s, dtype) for s in shapes], {"equation": equation}, rtol=1e-5, atol=1e-5)
