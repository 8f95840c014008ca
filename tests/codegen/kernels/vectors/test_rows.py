"""Softmax and normalisation of rows in C for every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.codegen.isa import AVX2
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run, step


def softmax_case(x, axis, log=False, **more):
    a = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        shifted = a - a.max(axis, keepdims=True)
        e = np.exp(shifted)
        total = e.sum(axis, keepdims=True)
        y = shifted - np.log(total) if log else e / total
        # The exponent's argument is rounded once: relative to the result.
        tolerance = (
            UNIT * (np.abs(shifted) * 2 + 8) if log else UNIT * y * (np.abs(np.maximum(shifted, -104)) + 12) + 1e-44
        )
    return Case(OpKey("", "LogSoftmax" if log else "Softmax"), {"axis": axis}, [x], frozenset(), y, tolerance, **more)


def normalization_case(rng, shape, axis, *, biased=True, rms=False, epsilon=1e-5, offset=0.0, computed=()):
    x = (rng.standard_normal(shape) + offset).astype(np.float32)
    columns = x.shape[axis:]
    w, b = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    axes = tuple(range(axis % x.ndim, x.ndim))
    a = x.astype(np.float64)
    centered = a if rms else a - a.mean(axes, keepdims=True)
    y = centered / np.sqrt((centered**2).mean(axes, keepdims=True) + epsilon) * w
    tolerance = UNIT * (8 + np.sqrt(np.prod(columns))) * (np.abs(y) + np.abs(w) * (1 + abs(offset)))
    inputs = [x, w] if rms or not biased else [x, w, b]
    if len(inputs) > 2:
        y, tolerance = y + b, tolerance + UNIT * 2 * np.abs(b)
    name = "RMSNormalization" if rms else "LayerNormalization"
    attributes = {"axis": axis, "epsilon": epsilon, "stash_type": 1}
    return Case(OpKey("", name), attributes, inputs, frozenset(range(1, len(inputs))) - {*computed}, y, tolerance)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(gaps, log):
    rng = np.random.default_rng(1)
    shapes = [
        ((3, 40), -1),
        ((2, 5, 16), 2),
        ((2, 17, 3, 4), 1),
        ((1, 1000), 1),
        ((7, 3), -1),
        ((5,), 0),
        ((4, 6, 9), 0),
        ((1003, 3), -1),
        ((5, 2, 33, 4), -1),
        ((3, 2, 41), 1),
        ((2, 7, 19, 5), 1),
        ((300, 1), -1),
        ((37, 12), -1),
        ((37, 23), -1),
        ((2, 21, 5, 13), 1),
        ((1, 33, 67), 1),
        ((50, 8), 0),
        ((3, 14, 90), -2),
        ((2, 3, 40, 9), 1),
    ]
    cases = [softmax_case((rng.standard_normal(s) * 10).astype(np.float32), axis, log) for s, axis in shapes]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


@pytest.mark.parametrize("shape", [(1, 21, 9, 9), (4, 100, 8), (40, 300)])
def test_columns_stay_where_they_are(shape: tuple[int, ...]):
    """And no sum of lanes ends one."""
    axis = 0 if len(shape) == 2 else 1
    family, task = softmax_case(np.ones(shape, np.float32), axis).build(None)
    assert not any(want.strict for want in (family.wants(task).input(0), family.wants(task).output(0)))
    assert task.view(0).strides[-1] == 1 and "total" not in family.generate(task, AVX2).body


@pytest.mark.parametrize(("columns", "shares"), [(3, True), (12, True), (13, False), (40, False)])
def test_short_rows_share_vectors(columns: int, shares: bool):
    """Then no sum of lanes ends a row."""
    family, task = softmax_case(np.ones((1003, columns), np.float32), 1).build(None)
    assert ("total" not in family.generate(task, AVX2).body) == shares


def test_undefined_behaviour_of_short_rows():
    rng = np.random.default_rng(4)
    shapes = ((1003, 3), 1), ((5, 2, 33, 4), -1), ((3, 2, 41), 1), ((37, 23), 1), ((2, 21, 5, 13), 1)
    cases = [softmax_case(rng.standard_normal(s).astype(np.float32), axis, k > 1) for k, (s, axis) in enumerate(shapes)]
    run(cases, rng=rng, optimization="-O1", flags=UNDEFINED)


@pytest.mark.parametrize("log", [False, True])
def test_epilogues_of_short_rows_and_of_columns(log: bool):
    """Operands of any shape: lanes have the rows of one axis."""
    rng = np.random.default_rng(3)
    cases = []
    for shape, axis, other in (
        ((5, 2, 33, 4), -1, (5, 2, 33, 4)),
        ((90, 3), -1, (3,)),
        ((90, 3), 1, (90, 1)),
        ((2, 3, 41), 1, (3, 41)),
        ((2, 21, 5, 13), 1, (21, 1, 13)),
        ((3, 14, 90), 1, (3, 14, 90)),
        ((3, 14, 90), 1, (90,)),
        ((1, 30, 6, 8), 1, (30, 1, 1)),
        ((1, 30, 6, 8), 1, (1, 30, 6, 8)),
    ):
        case = softmax_case(rng.standard_normal(shape).astype(np.float32), axis, log)
        added = rng.standard_normal(other).astype(np.float32)
        case.steps, case.operands = [step("Add", 0, 1)], [added]
        case.constant_operands = frozenset({0} if len(cases) % 2 else ())
        case.expected = case.expected + added
        case.tolerance = case.tolerance + UNIT * (np.abs(case.expected) + np.abs(added))
        cases.append(case)
    run(cases, rng=rng)


def test_softmax_of_extremes():
    rows = np.array(
        [[-1000.0] * 19, [1e30] + [0.0] * 18, [-np.inf] * 18 + [0.0], [88.0, -88.0] * 9 + [0.0], [-3e38] * 19],
        np.float32,
    )
    nan = rows.copy()
    nan[1, 4], nan[3, 18] = np.nan, np.nan
    nan[4] = -np.inf
    with np.errstate(invalid="ignore"):
        run(
            [
                softmax_case(rows, 1),
                softmax_case(nan, 1),
                softmax_case(rows, 0),
                softmax_case(np.tile(nan[:, 12:], (4, 1)), 1),
                softmax_case(np.tile(nan, (1, 4)), 0),
                softmax_case(np.tile(nan.T, (1, 4)), 0),
            ]
        )


def test_softmax_with_epilogue():
    rng = np.random.default_rng(3)
    x, other = (rng.standard_normal((4, 21)).astype(np.float32) for _ in range(2))
    case = softmax_case(x, -1)
    case.operands, case.steps = [other], [step("Mul", 0, 1)]
    case.expected, case.tolerance = case.expected * other, case.tolerance * np.abs(other) + UNIT
    run([case])


@pytest.mark.parametrize("gaps", [False, True])
def test_normalization(gaps):
    rng = np.random.default_rng(4)
    cases = [
        normalization_case(rng, (6, 64), -1),
        normalization_case(rng, (2, 3, 37), 2, biased=False),
        normalization_case(rng, (2, 3, 5), 1),
        normalization_case(rng, (2, 3, 50), -1, rms=True),
        normalization_case(rng, (4, 5), 0, rms=True, epsilon=0.1),
        normalization_case(rng, (3, 256), -1, offset=30.0),
        normalization_case(rng, (3, 7), -1, epsilon=1e-12),
        normalization_case(rng, (5, 37), -1, computed=(1, 2)),
        normalization_case(rng, (2, 3, 64), -1, computed=(1,)),
        normalization_case(rng, (4, 21), -1, computed=(2,)),
        normalization_case(rng, (4, 50), -1, rms=True, computed=(1,)),
    ]
    run(cases, rng=np.random.default_rng(5) if gaps else None)


def local_response_case(rng, shape, size, beta, *, alpha=1e-1, bias=1.5):
    x = rng.standard_normal(shape).astype(np.float32)
    a = np.moveaxis(x.astype(np.float64), 1, -1)
    padded = np.pad(a**2, [(0, 0)] * (a.ndim - 1) + [((size - 1) // 2, size // 2)])
    sums = np.lib.stride_tricks.sliding_window_view(padded, size, -1).sum(-1)
    y = np.moveaxis(a / (bias + alpha / size * sums) ** beta, -1, 1)
    attributes = {"size": size, "beta": beta, "alpha": alpha, "bias": bias}
    return Case(OpKey("", "LRN"), attributes, [x], frozenset(), y, (size + 12) * UNIT * np.abs(y) + 1e-30)


@pytest.mark.parametrize("gaps", [False, True])
def test_local_response(gaps):
    rng = np.random.default_rng(6)
    cases = [
        local_response_case(rng, (1, 96, 3, 4), 5, 0.75),
        local_response_case(rng, (2, 19, 5), 4, 0.5),
        local_response_case(rng, (1, 3, 2, 2), 7, 1.0),
        local_response_case(rng, (1, 33, 2, 2), 3, 0.6, bias=2.0),
    ]
    run(cases, rng=np.random.default_rng(7) if gaps else None)
