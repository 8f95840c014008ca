"""Elementwise chains and copies in C for every instruction set, against float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from eqsat.codegen.isa import AVX2, AVX512, PORTABLE, SCALAR
from eqsat.codegen.kernels.vectors import elementwise
from eqsat.codegen.kernels.vectors.epilogue import preceded
from eqsat.codegen.kernels.vectors.transposing_chain import Crossing, crossing
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNIT, Case, run, runnable, step

IDENTITY = OpKey("", "Identity")
erf = np.vectorize(math.erf, otypes=[np.float64])


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def chain(x, steps, expected, operands=(), constants=(), ulps=4.0):
    expected = np.asarray(expected, np.float64)
    scale = np.maximum(np.abs(expected), 1.0)
    return Case(
        IDENTITY,
        {},
        [x],
        frozenset(),
        expected,
        2 * UNIT * ulps * scale,
        steps=steps,
        operands=list(operands),
        constant_operands=frozenset(constants),
    )


UNARY = {
    "Abs": (np.abs, {}),
    "Neg": (np.negative, {}),
    "Relu": (lambda x: np.maximum(x, 0), {}),
    "LeakyRelu": (lambda x: np.where(x < 0, 0.1 * x, x), {"alpha": 0.1}),
    "Elu": (lambda x: np.where(x < 0, 1.5 * np.expm1(x), x), {"alpha": 1.5}),
    "Exp": (np.exp, {}),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), {}),
    "Tanh": (np.tanh, {}),
    "Erf": (erf, {}),
    "HardSigmoid": (lambda x: np.clip(0.3 * x + 0.4, 0, 1), {"alpha": 0.3, "beta": 0.4}),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    "Reciprocal": (lambda x: 1 / x, {}),
    "Softplus": (lambda x: np.log1p(np.exp(x)), {}),
    "Sin": (np.sin, {}),
    "Softsign": (lambda x: x / (1 + np.abs(x)), {}),
    "Gelu": (lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), {"approximate": "none"}),
    "Floor": (np.floor, {}),
}


def test_unary():
    rng = np.random.default_rng(1)
    x = draw(rng, 3, 37) * 3
    run([chain(x, [step(name, 0, **a)], f(x.astype(np.float64))) for name, (f, a) in UNARY.items()])


def test_binary_and_more():
    rng = np.random.default_rng(2)
    x, y, row, one = draw(rng, 4, 5, 18), draw(rng, 4, 5, 18), draw(rng, 5, 1), draw(rng)
    a, b = x.astype(np.float64), y.astype(np.float64)
    low, high = np.array(-0.5, np.float32), np.array(1.0, np.float32)
    cases = [
        chain(x, [step("Add", 0, 1)], a + b, [y]),
        chain(x, [step("Sub", 1, 0)], b - a, [y]),
        chain(x, [step("Mul", 0, 1)], a * row, [row]),
        chain(x, [step("Mul", 0, 1)], a * row, [row], [0]),
        chain(x, [step("Div", 0, 1)], a / one, [one]),
        chain(x, [step("Div", 0, 1)], a / one, [one], [0]),
        chain(x, [step("Max", 0, 1, 2)], np.maximum(np.maximum(a, b), one), [y, one], [1]),
        chain(x, [step("Min", 0, 1)], np.minimum(a, b), [y]),
        chain(x, [step("Sum", 0, 1, 0)], a + b + a, [y]),
        chain(x, [step("Clip", 0, 1, 2)], np.clip(a, low, high), [low, high], [0, 1]),
        chain(x, [step("Clip", 0, None, 1)], np.minimum(a, high), [high], [0]),
        chain(x, [step("Clip", 0, 1)], np.maximum(a, low), [low]),
        chain(x, [step("PRelu", 0, 1)], np.where(a < 0, a * row, a), [row], [0]),
        chain(x, [step("Pow", 0, 1)], a**2, [np.array(2, np.float32)], [0]),
        # Sigmoid twice used, an operand twice used.
        chain(x, [step("Add", 0, 1), step("Sigmoid", 2), step("Mul", 2, 3), step("Mul", 4, 1)],
              (a + b) / (1 + np.exp(-a - b)) * b, [y], ulps=12),
        chain(x[:, :1], [step("Add", 0, 1)], a[:, :1] + b, [y]),
    ]  # fmt: skip
    for gaps in (None, np.random.default_rng(3)):
        run(cases, rng=gaps)


def test_relu_keeps_nan_and_large_values():
    x = np.array([[np.nan, -np.inf, np.inf, -1.0, -0.0, 3.5] * 3], np.float32)
    run([chain(x, [step("Relu", 0)], np.maximum(x, 0)), chain(x, [step("Neg", 0)], -x)])


@pytest.mark.parametrize("shape", [(1, 3, 9, 10), (2, 16, 5, 4), (1, 33, 6, 7), (5,), (4, 9)])
def test_copies_between_layouts(shape):
    rng = np.random.default_rng(5)
    cases = []
    for _ in range(6):
        x = draw(rng, *shape)
        cases.append(chain(x, [], x, ulps=0.0))
    run(cases, rng=rng)


@pytest.mark.parametrize("shape", [(1, 33, 6, 70), (2, 35, 9, 31), (19, 131), (64, 16), (5, 4, 70), (17, 1, 67)])
def test_operands_that_lie_across_the_result(shape, monkeypatch: pytest.MonkeyPatch):
    seen: list[Crossing] = []

    def watched(*given: Any) -> Crossing | None:
        found = crossing(*given)
        if found is not None:
            seen.append(found)
        return found

    monkeypatch.setattr(elementwise, "crossing", watched)
    rng = np.random.default_rng(sum(shape))
    cases = []
    for k in range(4):
        x, y, row, one = draw(rng, *shape), draw(rng, *shape), draw(rng, *shape[1:]), draw(rng)
        x.ravel()[:4] = np.nan, np.inf, -np.inf, -0.0
        a, b = x.astype(np.float64), y.astype(np.float64)
        cases += [
            chain(x, [step("Mul", 0, 1), step("Add", 3, 2)], a * row + one, [row, one], [0, 1] if k % 2 else []),
            chain(x, [step("Sub", 0, 1), step("Relu", 2)], np.maximum(a - b, 0), [y], [0] if k % 2 else []),
            chain(x, [step("Neg", 0), step("Floor", 1)], np.floor(-a)),
        ]
    run(cases, rng=rng)
    assert seen, "no operand lay across"


def test_steps_before_an_epilogue():
    rng = np.random.default_rng(6)
    x, y, z = draw(rng, 3, 20), draw(rng, 3, 20), draw(rng, 20)
    case = chain(x, [step("Sub", 1, 0), step("Mul", 2, 0)], 0)
    case.operands, a, b = [y, z], x.astype(np.float64), y.astype(np.float64)
    case.expected = (b - (2 * a + z)) * (2 * a + z)
    case.tolerance = 32 * UNIT * np.maximum(np.abs(case.expected), 4)
    _family, task = case.build(None)
    extended = preceded(
        type(task.epilogue)(task.epilogue.dtype, task.epilogue.operands[:1], tuple(case.steps)),
        [("Mul", np.array(2, np.float32)), ("Add", z)],
    )
    case.steps, case.operands = list(extended.steps), [y, np.array(2, np.float32), z]
    case.constant_operands = frozenset({1, 2})
    run([case])


@pytest.mark.parametrize(
    "shape", [(70, 512), (512, 75), (512, 1024), (2, 1030, 37), (3, 67, 129), (2, 512, 3), (130, 66)]
)
def test_copies_that_transpose(shape: tuple[int, ...]):
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    model = load(
        f'<ir_version: 10, opset_import: ["": 21]> g (float{list(shape)} x) => (float{[shape[a] for a in axes]} y) '
        f"{{ y = Transpose<perm = {list(axes)}>(x) }}"
    )
    x = draw(np.random.default_rng(7), *shape)
    for isas in ((AVX512, PORTABLE), (AVX2, PORTABLE), (PORTABLE,), (PORTABLE, SCALAR)):
        if set(isas) - {SCALAR} <= set(runnable()):
            np.testing.assert_array_equal(CModel(model, isas=isas).run({"x": x})["y"], x.transpose(axes))
