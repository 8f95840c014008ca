"""Random convolutions with random epilogues in C for every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.codegen.isa import SCALAR
from eqsat.codegen.kernels.vectors.winograd import ASKED
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run, step
from tests.codegen.kernels.vectors.test_direct_convolution import conv_case


def random_convolution(rng: np.random.Generator) -> Case:
    """Shapes around the sizes of vectors and panels, windows that reach into the padding, all kinds of groups."""
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    kernel = tuple(int(k) for k in rng.integers(1, 5, rank))
    dilations = tuple(int(d) for d in rng.integers(1, 3, rank))
    strides = tuple(int(s) for s in rng.integers(1, 4, rank))
    pads = tuple(int(p) for p in rng.integers(0, 3, 2 * rank))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    space = [int(rng.integers(max(e - pads[i] - pads[rank + i], 1), e + 12)) for i, e in enumerate(extent)]
    if rng.random() < 0.25:
        channels = outputs = group = int(rng.integers(2, 40))
    else:
        group = int(rng.choice([1, 1, 1, 2, 3]))
        channels = group * int(rng.integers(1, 24))
        outputs = group * int(rng.choice([1, 3, 8, 15, 16, 17, 24, 31, 33, 50]))
    case = conv_case(
        rng, (int(rng.integers(1, 3)), channels, *space), outputs, kernel,
        strides=strides, dilations=dilations, pads=pads, group=group, bias=bool(rng.integers(2)),
    )  # fmt: skip
    return with_epilogue(rng, case)


def with_epilogue(rng: np.random.Generator, case: Case) -> Case:
    """The case with some of: a sum with another tensor, a product per channel, an activation."""
    y, tolerance = case.expected, np.asarray(case.tolerance)
    steps, operands, constants, last = [], [], set(), 0
    count = int(rng.integers(0, 3)) + int(rng.integers(0, 2))
    channels = (1, -1, *[1] * (y.ndim - 2))
    plan = []
    for _ in range(count):
        kind = str(rng.choice(["residual", "scale", "constant"]))
        shape = y.shape if kind == "residual" else (y.shape[1], *[1] * (y.ndim - 2)) if kind == "scale" else ()
        operands.append(rng.uniform(-2, 2, shape).astype(np.float32))
        if kind != "residual" and rng.integers(2):
            constants.add(len(operands) - 1)
        plan.append((kind, len(operands)))
    number = len(operands)
    for kind, operand in plan:
        value = operands[operand - 1].astype(np.float64)
        value = value.reshape(channels) if kind == "scale" else value
        number += 1
        if kind == "residual":
            steps.append(step("Add", last, operand) if rng.integers(2) else step("Add", operand, last))
            y = y + value
        else:
            steps.append(step("Mul", last, operand))
            y, tolerance = y * value, tolerance * np.abs(value)
        tolerance = tolerance + 2 * UNIT * (np.abs(y) + np.abs(value))
        last = number
    activation = str(rng.choice(["", "Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "Tanh"]))
    if activation == "Relu":
        steps.append(step("Relu", last))
        y = np.maximum(y, 0)
    elif activation == "LeakyRelu":
        steps.append(step("LeakyRelu", last, alpha=0.25))
        y = np.where(y < 0, 0.25 * y, y)
    elif activation == "Sigmoid":
        steps.append(step("Sigmoid", last))
        y, tolerance = 1 / (1 + np.exp(-y)), tolerance + 8 * UNIT
    elif activation == "Tanh":
        steps.append(step("Tanh", last))
        y, tolerance = np.tanh(y), tolerance + 8 * UNIT
    elif activation == "HardSwish":
        steps.append(step("HardSwish", last))
        slope = 1 + np.abs(y)
        y, tolerance = y * np.clip(y / 6 + 0.5, 0, 1), tolerance * slope + 4 * UNIT * slope
    elif activation == "Clip":
        # Its bounds stand after all other operands, whose steps count on from there.
        operands += [np.array(0, np.float32), np.array(6, np.float32)]
        own = len(operands) - 2
        moved = [step(s.operator.name, *(i + 2 if i is not None and i > own else i for i in s.inputs)) for s in steps]
        steps = [*moved, step("Clip", last + 2 if last else 0, own + 1, own + 2)]
        constants |= {own, own + 1}
        y = np.clip(y, 0, 6)
    case.steps, case.operands, case.constant_operands = steps, operands, frozenset(constants)
    case.expected, case.tolerance = y, tolerance
    return case


@pytest.mark.parametrize("seed", range(2))
def test_random(seed):
    rng = np.random.default_rng([3, seed])
    run([random_convolution(rng) for _ in range(8)], rng=rng)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(16))
def test_many(seed):
    rng = np.random.default_rng([4, seed])
    cases = [random_convolution(rng) for _ in range(12)]
    run(cases, rng=rng if seed % 2 else None, optimization="-O2" if seed % 3 else "-O3")


@pytest.mark.slow
def test_undefined_behaviour():
    rng = np.random.default_rng(5)
    cases = [random_convolution(rng) for _ in range(3)]
    winograd = conv_case(rng, (1, 18, 9, 7), 20, (3, 3), pads=(1, 1, 1, 1), rank=15)
    winograd.attributes = {**winograd.attributes, ASKED: 1}
    winograd.tolerance = 20 * winograd.tolerance
    run([*cases, winograd], rng=rng, optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c():
    rng = np.random.default_rng(6)
    cases = [random_convolution(rng) for _ in range(4)]
    run(cases, rng=rng, isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wshadow", "-Wconversion"])
