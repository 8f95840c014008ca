"""Reductions in C for every instruction set, against float64: over any axes, in any order of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eqsat.codegen.isa import AVX2, SCALAR
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run, step

_ALL = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
_NUMPY: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "GlobalAveragePool": np.mean,
    "ReduceMax": np.max,
    "GlobalMaxPool": np.max,
    "ReduceMin": np.min,
    "ReduceL1": lambda a, **more: np.abs(a).sum(**more),
    "ReduceL2": lambda a, **more: np.sqrt((a**2).sum(**more)),
    "ReduceSumSquare": lambda a, **more: (a**2).sum(**more),
}
SHAPES = [
    ((3, 40), (1,)),
    ((3, 40), (0,)),
    ((7, 33, 5, 19), (0, 2)),
    ((7, 33, 5, 19), (1, 3)),
    ((2, 5, 16, 3), (2, 3)),
    ((2, 5, 13, 17), (1,)),
    ((1, 1000), (1,)),
    ((131, 2), (0,)),
    ((4, 6, 9), (0, 1, 2)),
    ((5,), (0,)),
    ((6, 1, 300), (1,)),
    ((3, 100, 3), (2,)),
    ((1001, 5), (1,)),
    ((3, 50, 2, 4), (2, 3)),
    ((2, 3, 40, 7), (1, 3)),
    ((77, 4, 6), (1, 2)),
    ((2, 90, 3), (1,)),
]


def case(name: str, x: np.ndarray, axes: tuple[int, ...], *, keep: bool = True) -> Case:
    a = x.astype(np.float64)
    pool = name.startswith("Global")
    with np.errstate(invalid="ignore"):
        y = np.asarray(_NUMPY[name](a, axis=axes, keepdims=keep or pool))
        size = np.sqrt(np.prod([x.shape[i] for i in axes]))
        scale = np.asarray(
            np.abs(_NUMPY["ReduceL2" if name == "ReduceL2" else "ReduceL1"](a, axis=axes, keepdims=True))
        )
        scale = np.sum(a**2, axis=axes, keepdims=True) if name == "ReduceSumSquare" else scale
        scale = (scale / size**2 if name in ("ReduceMean", "GlobalAveragePool") else scale).reshape(y.shape)
    exact = name in ("ReduceMax", "ReduceMin", "GlobalMaxPool")
    tolerance = 0.0 if exact else UNIT * (4 + size) * scale
    inputs: list[np.ndarray | None] = [x] if pool else [x, np.array(axes, np.int64)]
    attributes = {} if pool else {"keepdims": int(keep), "noop_with_empty_axes": 0}
    return Case(OpKey("", name), attributes, inputs, frozenset({1}), y, tolerance)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_any_axes(gaps: bool, keep: bool):
    rng = np.random.default_rng(1)
    cases = [
        case(_ALL[(i + k) % len(_ALL)], rng.standard_normal(shape).astype(np.float32), axes, keep=keep)
        for i, (shape, axes) in enumerate(SHAPES)
        for k in (0, 3)
    ]
    run(cases, rng=np.random.default_rng(2) if gaps else None)


@pytest.mark.parametrize("name", _ALL)
def test_all_reductions(name: str):
    rng = np.random.default_rng(3)
    run([case(name, rng.standard_normal((9, 83)).astype(np.float32), axes) for axes in ((0,), (1,))])


@pytest.mark.parametrize("seed", range(4))
def test_random_axes(seed: int):
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(8):
        shape = tuple(int(n) for n in rng.integers(1, 20, int(rng.integers(1, 5))))
        axes = tuple(sorted(int(a) for a in rng.permutation(len(shape))[: int(rng.integers(1, len(shape) + 1))]))
        name = _ALL[int(rng.integers(len(_ALL)))]
        cases.append(case(name, rng.standard_normal(shape).astype(np.float32), axes, keep=bool(rng.integers(2))))
    run(cases, rng=rng)


def test_planes_in_both_layouts():
    rng = np.random.default_rng(4)
    for shape in ((2, 5, 13, 11), (1, 37, 3), (1, 2, 3, 4, 5)):
        x = rng.standard_normal(shape).astype(np.float32)
        run([case(name, x, tuple(range(2, x.ndim))) for name in ("GlobalAveragePool", "GlobalMaxPool")])


def test_what_is_not_a_number():
    x = np.random.default_rng(5).standard_normal((6, 21)).astype(np.float32)
    x[0, 3], x[1, 20], x[2, 0], x[3, 7], x[4] = np.nan, np.nan, np.inf, -np.inf, -np.inf
    run([case(name, x, axes) for name in ("ReduceMax", "ReduceMin", "ReduceSum") for axes in ((0,), (1,))])


def test_epilogues():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 18, 7)).astype(np.float32)
    cases = []
    for axes, keep in (((1,), True), ((2,), False), ((0,), False)):
        made = case("ReduceMean", x, axes, keep=keep)
        other = rng.standard_normal(made.expected.shape).astype(np.float32)
        weight = rng.standard_normal(made.expected.shape[-1:]).astype(np.float32)
        made.operands, made.steps = [other, weight], [step("Add", 0, 1), step("Mul", 3, 2), step("Relu", 4)]
        made.constant_operands = frozenset({1})
        made.expected = np.maximum((made.expected + other) * weight, 0)
        made.tolerance = made.tolerance * np.abs(weight) + UNIT * 8 * np.abs(weight)
        cases.append(made)
    run(cases)


@pytest.mark.parametrize(("columns", "shares"), [(3, True), (8, True), (9, False), (40, False)])
def test_short_rows_share_vectors(columns: int, shares: bool):
    """Then no sum of lanes ends a row."""
    family, task = case("ReduceSum", np.ones((1001, columns), np.float32), (1,)).build(None)
    assert ("total" not in family.generate(task, AVX2).body) == shares


def _mixed(seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    return [
        case(name, rng.standard_normal(shape).astype(np.float32), axes)
        for name, (shape, axes) in zip(_ALL, SHAPES, strict=False)
    ]


def test_undefined_behaviour():
    run(_mixed(7), rng=np.random.default_rng(8), optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c():
    run(_mixed(9), isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wconversion"])
