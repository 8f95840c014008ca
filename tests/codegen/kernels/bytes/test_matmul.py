"""Integer matrix products in C for every instruction set, to the bit of the numpy executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.schema.types import OpKey
from tests.codegen.kernels.bytes.harness import MS, Case, isas, run, step

pytestmark = pytest.mark.slow

QLINEAR, INTEGER = OpKey("", "QLinearMatMul"), OpKey("", "MatMulInteger")
QGEMM, TO_FLOAT = OpKey(MS, "QGemm"), OpKey(MS, "MatMulIntegerToFloat")
FAMILY = "integer matrix product"
TYPES = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)]
f4 = np.float32


def draw(rng, shape, dtype):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def zero(rng, dtype):
    return draw(rng, (), dtype)


def qlinear_case(rng, a_shape, b_shape, a_type: Any, b_type: Any, *, constant=True, columns=False, b_zero=None, **more):
    depth, n = a_shape[-1], b_shape[-1]
    b_scale = rng.uniform(0.5, 2, n if columns else ()).astype(f4)
    bz = np.array(b_zero, b_type) if b_zero is not None else np.array(128 if b_type == np.uint8 else 0, b_type)
    bz = np.full(n, bz) if columns else bz
    y_scale = np.asarray(f4(0.02 * 75 * 75 * np.sqrt(depth) * 3 / 128))
    inputs = [
        draw(rng, a_shape, a_type), np.asarray(f4(0.02)), zero(rng, a_type),
        draw(rng, b_shape, b_type), np.asarray(b_scale), bz, y_scale, zero(rng, a_type),
    ]  # fmt: skip
    given = {1, 2, 4, 5, 6, 7} | ({3} if constant else set())
    # The second matrix is input 3 of the operator.
    return Case(QLINEAR, {}, inputs, frozenset(given), FAMILY, **more)


SHAPES = [
    ((5, 24), (24, 40)),
    ((1, 130), (130, 37)),
    ((33, 7), (7, 16)),
    ((2, 3, 9, 16), (2, 3, 16, 20)),
    ((4, 9, 18), (18, 21)),
    ((1, 5, 12), (3, 12, 17)),
    ((3, 17, 33), (33, 5)),
    ((70, 64), (64, 70)),
]


@pytest.mark.parametrize("types", TYPES, ids=["u8s8", "s8s8", "u8u8", "s8u8"])
def test_shapes(types):
    rng = np.random.default_rng(1)
    cases = []
    for i, (a_shape, b_shape) in enumerate(SHAPES):
        # Constant, computed, computed with a zero point that has to be multiplied with the sums of rows: all three
        # for each shape with some pair of types.
        kind = (i + TYPES.index(types)) % 3
        if kind == 0 and len(b_shape) == 2:
            cases.append(qlinear_case(rng, a_shape, b_shape, *types, columns=len(a_shape) == 2))
        cases.append(qlinear_case(rng, a_shape, b_shape, *types, constant=False, b_zero=100 if kind == 1 else None))
    cases.append(qlinear_case(rng, *SHAPES[0], *types, columns=True, b_zero=3))
    run(cases, rng=rng, chosen=isas(all_widths=types == TYPES[0]))


def test_integer_sums():
    """Zero points absent, constant, or read at run time."""
    rng = np.random.default_rng(2)
    cases = []
    for i, (a_type, b_type) in enumerate(TYPES):
        for a_shape, b_shape in [((6, 19), (19, 21)), ((2, 5, 16), (2, 16, 18))][i % 2 :][:1]:
            a, b = draw(rng, a_shape, a_type), draw(rng, b_shape, b_type)
            za, zb = zero(rng, a_type), zero(rng, b_type)
            for constant in ({2, 3}, set()):
                cases.append(Case(INTEGER, {}, [a, b, za, zb], frozenset(constant), FAMILY))
            if b.ndim == 2:
                cases.append(Case(INTEGER, {}, [a, b, za, zb], frozenset({1, 3}), FAMILY))
                cases.append(Case(INTEGER, {}, [a, b, za, draw(rng, b.shape[-1], b_type)], frozenset({1, 3}), FAMILY))
    run(cases, rng=rng)


def test_gemm():
    rng = np.random.default_rng(3)
    cases = []
    for i, (a_type, b_type) in enumerate(TYPES):
        for flags in [(i % 2, i // 2)]:
            m, k, n = 4, 22, 19
            a = draw(rng, (k, m) if flags[0] else (m, k), a_type)
            b = draw(rng, (n, k) if flags[1] else (k, n), b_type)
            per_column = rng.uniform(0.5, 2, n).astype(f4)
            c = rng.integers(-5000, 5000, (1, n)).astype(np.int32)
            zeros = [zero(rng, a_type), np.full(n, 128 if b_type == np.uint8 else 0, b_type)]
            attrs = dict(alpha=0.75, transA=flags[0], transB=flags[1])
            numbers = [a, np.asarray(f4(0.02)), zeros[0], b, per_column, zeros[1]]
            scale = [np.asarray(f4(20)), zero(rng, a_type)]
            cases.append(Case(QGEMM, attrs, [*numbers, c, *scale], frozenset({1, 2, 3, 4, 5, 6, 7, 8}), FAMILY))
            one = [a, np.asarray(f4(0.02)), zeros[0], b, np.asarray(f4(1.5)), np.asarray(zeros[1][0])]
            cases.append(Case(QGEMM, attrs, [*one, None, None, None], frozenset({1, 2, 4, 5}), FAMILY))
    run(cases, rng=rng)


def test_floats():
    """Sums that are scaled and stay floats, with scales that are known and that are not."""
    rng = np.random.default_rng(4)
    cases = []
    for a_type, b_type in TYPES[:3]:
        a, b = draw(rng, (2, 3, 19), a_type), draw(rng, (19, 35), b_type)
        scales = [np.asarray(f4(0.013)), rng.uniform(0.01, 0.1, 35).astype(f4)]
        zeros = [zero(rng, a_type), draw(rng, 35, b_type)]
        bias = rng.standard_normal(35).astype(f4)
        cases.append(Case(TO_FLOAT, {}, [a, b, *scales, *zeros, bias], frozenset({1, 2, 3, 4, 5, 6}), FAMILY))
        cases.append(Case(TO_FLOAT, {}, [a, b, *scales, *zeros, None], frozenset({1, 3, 5}), FAMILY))
        steps = [
            step("Cast", 0, dtype=f4, to=1),
            step("Mul", 4, 1, dtype=f4),
            step("Mul", 5, 2, dtype=f4),
            step("Add", 6, 3, dtype=f4),
        ]
        operands = [scales[0], scales[1], bias]
        single = np.asarray(zeros[1][0])
        cases.append(
            Case(INTEGER, {}, [a, b, zeros[0], single], frozenset({1, 3}), FAMILY, steps, operands, frozenset({1, 2}))
        )
    run(cases, rng=rng)


def test_epilogues():
    rng = np.random.default_rng(5)
    cases = []
    for dtype in (np.uint8, np.int8):
        for a_shape, b_shape in (SHAPES[0], SHAPES[3]):
            constant = len(b_shape) == 2
            shape = (*a_shape[:-1], b_shape[-1])
            residual = draw(rng, shape, dtype)
            numbers = [np.asarray(f4(rng.uniform(0.2, 2))) for _ in range(3)]
            zeros = [zero(rng, dtype) for _ in range(3)]
            given = [residual, numbers[0], zeros[0], numbers[1], zeros[1], numbers[2], zeros[2]]
            add = step("QLinearAdd", 0, 2, 3, 1, 4, 5, 6, 7, dtype=dtype, domain=MS)
            cases.append(
                qlinear_case(
                    rng, a_shape, b_shape, dtype, np.int8, constant=constant, steps=[add], operands=given,
                    constant_operands=frozenset(range(1, 7)),
                )
            )  # fmt: skip
            real = [step("DequantizeLinear", 0, 1, 2, dtype=f4)]
            cases.append(
                qlinear_case(
                    rng, a_shape, b_shape, dtype, np.int8, constant=constant, steps=real,
                    operands=[numbers[0], zeros[0]], constant_operands=frozenset({0, 1}),
                )
            )  # fmt: skip
    run(cases, rng=rng)


def test_without_zero_points():
    rng = np.random.default_rng(7)
    a, b = draw(rng, (6, 19), np.uint8), draw(rng, (19, 21), np.int8)
    run([Case(INTEGER, {}, [a, b, None, None], frozenset(c), FAMILY) for c in (set(), {1})], rng=rng)


def test_extremes():
    rng = np.random.default_rng(6)
    cases = []
    for a_type, b_type in TYPES:
        a, b = np.iinfo(a_type), np.iinfo(b_type)
        for x, za in ((a.max, a.min), (a.min, a.max)):
            for w, zb in ((b.min, b.max), (b.max, b.min)):
                left, right = np.full((1, 70), x, a_type), np.full((70, 17), w, b_type)
                zeros = [np.array(za, a_type), np.array(zb, b_type)]
                constant = {1, 2, 3} if za > 0 else set()
                cases.append(Case(INTEGER, {}, [left, right, *zeros], frozenset(constant), FAMILY))
    run(cases, rng=rng)
