"""Pooling in C for every instruction set, against numpy: windows one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNIT, Case, run, step


def pooled(x, kind, kernel, strides, dilations, pads, out, include):
    rank = len(kernel)
    y = np.zeros((*x.shape[:2], *out))
    size = x.shape[2:]
    for place in product(*(range(n) for n in out)):
        values, count = [], 0
        for tap in product(*(range(k) for k in kernel)):
            at = [p * s - b + t * d for p, s, b, t, d in zip(place, strides, pads, tap, dilations, strict=False)]
            if all(0 <= a < n for a, n in zip(at, size, strict=True)):
                values.append(x[(slice(None), slice(None), *at)].astype(np.float64))
                count += 1
            elif include and all(-pads[i] <= at[i] < size[i] + pads[rank + i] for i in range(rank)):
                count += 1
        window = np.stack(values)
        y[(slice(None), slice(None), *place)] = window.max(0) if kind == "Max" else window.sum(0) / count
    return y


def pool_case(rng, kind, shape, kernel, *, strides=None, dilations=None, pads=None, ceil=0, include=0, **more):
    rank = len(kernel)
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    x = rng.standard_normal(shape).astype(np.float32)
    out = []
    for i in range(rank):
        room = shape[2 + i] + pads[i] + pads[rank + i] - ((kernel[i] - 1) * dilations[i] + 1)
        n = (-(-room // strides[i]) if ceil else room // strides[i]) + 1
        out.append(n - 1 if ceil and (n - 1) * strides[i] >= shape[2 + i] + pads[i] else n)
    y = pooled(x, kind, kernel, strides, dilations, pads, out, include)
    attributes = dict(
        kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, ceil_mode=ceil, auto_pad="NOTSET"
    )
    tolerance = 0.0
    if kind == "Average":
        attributes["count_include_pad"] = include
        scale = pooled(np.abs(x), kind, kernel, strides, dilations, pads, out, include)
        tolerance = (4 + 2 * np.sqrt(np.prod(kernel))) * UNIT * scale
    return Case(OpKey("", f"{kind}Pool"), attributes, [x], frozenset(), y, tolerance, **more)


def global_case(rng, kind, shape, **more):
    x = rng.standard_normal(shape).astype(np.float32)
    axes = tuple(range(2, len(shape)))
    exact = x.astype(np.float64)
    y = exact.max(axes, keepdims=True) if kind == "Max" else exact.mean(axes, keepdims=True)
    tolerance = 0.0
    if kind == "Average":
        tolerance = (4 + 2 * np.sqrt(np.prod(shape[2:]))) * UNIT * np.abs(exact).mean(axes, keepdims=True)
    return Case(OpKey("", f"Global{kind}Pool"), {}, [x], frozenset(), y, tolerance, **more)


SHAPES = [
    ((1, 64, 13, 14), (3, 3), dict(strides=(2, 2), pads=(1, 1, 1, 1))),
    ((2, 70, 6, 5), (2, 2), dict(strides=(2, 2))),
    ((1, 5, 7, 8), (3, 2), dict(pads=(1, 0, 2, 1), strides=(1, 3))),
    ((1, 33, 9, 9), (3, 3), dict(ceil=1, strides=(2, 2))),
    ((1, 16, 8, 8), (3, 3), dict(ceil=1, strides=(3, 3), pads=(1, 1, 1, 1))),
    ((1, 18, 12, 11), (3, 3), dict(dilations=(2, 3), pads=(2, 2, 1, 3))),
    ((1, 90, 9, 9), (7, 7), dict(pads=(3, 3, 3, 3))),
    ((2, 7, 30), (4,), dict(strides=(3,), pads=(1, 2))),
    ((1, 20, 4, 5, 6), (2, 3, 2), dict(pads=(1, 1, 0, 0, 1, 1))),
]


ROWS = "pooling of rows"


@pytest.mark.parametrize("kind", ["Max", "Average"])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("chosen", ["", ROWS])
def test_windows(kind, gaps, chosen):
    rng = np.random.default_rng(4)
    cases = [pool_case(rng, kind, shape, kernel, chosen=chosen, **rest) for shape, kernel, rest in SHAPES]
    if kind == "Average":
        cases += [
            pool_case(rng, kind, shape, kernel, include=1, chosen=chosen, **rest) for shape, kernel, rest in SHAPES[:6]
        ]
    if not chosen:
        cases += [global_case(rng, kind, shape) for shape in ((1, 150, 7, 7), (2, 3, 5), (1, 16, 2, 3, 4))]
    run(cases, rng=np.random.default_rng(5) if gaps else None)


@pytest.mark.parametrize("width", [1, 3, 15, 16, 17, 31, 33, 64])
def test_rows_of_every_width(width):
    rng = np.random.default_rng(9)
    cases = []
    for kind in ("Max", "Average"):
        for size, stride, pads in ((1, 1, 0), (3, 1, 1), (2, 2, 1), (5, 3, 2)):
            if width + 2 * pads >= size:
                shape, around = (1, 3, 9, width), (pads,) * 4
                cases.append(pool_case(rng, kind, shape, (size,) * 2, strides=(stride,) * 2, pads=around, chosen=ROWS))
    run(cases)


@pytest.mark.parametrize("chosen", ["", ROWS])
def test_epilogue(chosen):
    rng = np.random.default_rng(6)
    case = pool_case(rng, "Average", (1, 21, 6, 6), (2, 2), chosen=chosen)
    other = rng.standard_normal(case.expected.shape).astype(np.float32)
    case.operands, case.steps = [other], [step("Add", 0, 1), step("Relu", 2)]
    case.tolerance = case.tolerance + 2 * UNIT * (np.abs(case.expected) + np.abs(other))
    case.expected = np.maximum(case.expected + other, 0)
    run([case])


@pytest.mark.parametrize("chosen", ["", ROWS])
def test_nan_is_the_maximum(chosen):
    rng = np.random.default_rng(7)
    case = pool_case(rng, "Max", (1, 19, 8, 8), (3, 3), pads=(1, 1, 1, 1), chosen=chosen)
    x = np.asarray(case.inputs[0])
    x[0, 3, 2, 2] = x[0, 17, 7, 7] = np.nan
    case.expected = pooled(x, "Max", (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), (8, 8), 0)
    assert np.isnan(case.expected).sum() == 13
    run([case])
