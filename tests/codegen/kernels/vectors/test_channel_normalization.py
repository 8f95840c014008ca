"""Instance and group normalisation in C for every instruction set, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.codegen.isa import SCALAR
from eqsat.schema.types import OpKey
from tests.codegen.kernels.vectors.harness import UNDEFINED, UNIT, Case, run, step

SHAPES = [
    ((1, 4, 5, 7), 2),
    ((2, 6, 33), 3),
    ((1, 3, 8, 8), 1),
    ((2, 8, 3, 4, 5), 4),
    ((1, 64, 9), 32),
    ((3, 2, 130), 2),
    ((1, 5, 1, 16), 5),
]


def case(
    rng: np.random.Generator, shape: tuple[int, ...], groups: int | None, *, given: bool = False, offset: float = 0.0
) -> Case:
    """GroupNormalization, or InstanceNormalization without groups.

    Args:
        rng: For the data.
        shape: Of the data.
        groups: How many.
        given: Whether scale and bias are not constants.
        offset: Of the data from 0.
    """
    x = (rng.standard_normal(shape) + offset).astype(np.float32)
    scale, bias = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(2))
    epsilon = float(rng.choice([1e-5, 1e-2]))
    parts = x.astype(np.float64).reshape(shape[0], groups or shape[1], -1)
    centred = parts - parts.mean(-1, keepdims=True)
    normal = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)).reshape(shape)
    columns = (shape[1], *[1] * (len(shape) - 2))
    w, b = scale.reshape(columns).astype(np.float64), bias.reshape(columns)
    y = normal * w + b
    tolerance = UNIT * (8 + np.sqrt(parts.shape[-1])) * (np.abs(normal) + 1 + abs(offset)) * np.abs(w) + UNIT * np.abs(
        b
    )
    name = "InstanceNormalization" if groups is None else "GroupNormalization"
    attributes = {"epsilon": epsilon, **({} if groups is None else {"num_groups": groups, "stash_type": 1})}
    constant = frozenset() if given else frozenset({1, 2})
    return Case(OpKey("", name), attributes, [x, scale, bias], constant, y, tolerance)


def cases(seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    return [
        case(rng, shape, g, given=bool(rng.integers(2)), offset=float(rng.choice([0.0, 20.0])))
        for shape, groups in SHAPES
        for g in (None, groups)
    ]


@pytest.mark.parametrize("gaps", [False, True])
def test_values(gaps: bool):
    run(cases(1), rng=np.random.default_rng(2) if gaps else None)


def test_epilogues():
    rng = np.random.default_rng(3)
    made = []
    for shape, groups in SHAPES[:4]:
        plain = case(rng, shape, groups)
        image = rng.standard_normal(shape).astype(np.float32)
        channel = rng.standard_normal((shape[1], *[1] * (len(shape) - 2))).astype(np.float32)
        plain.operands, plain.constant_operands = [image, channel], frozenset({1})
        plain.steps = [step("Add", 0, 1), step("Mul", 3, 2), step("Relu", 4)]
        plain.expected = np.maximum((plain.expected + image) * channel, 0)
        plain.tolerance = np.asarray(plain.tolerance) * np.abs(channel) + 8 * UNIT * (np.abs(image) + 2) * np.abs(
            channel
        )
        made.append(plain)
    run(made)


def test_undefined_behaviour():
    run(cases(4), rng=np.random.default_rng(5), optimization="-O1", flags=UNDEFINED)


def test_scalar_kernels_are_standard_c():
    run(cases(6), isas=[SCALAR], optimization="-O3", flags=["-pedantic", "-Wconversion"])


def test_short_rows_are_left_to_loops():
    rng = np.random.default_rng(7)
    with pytest.raises(AssertionError, match="normalisation loops"):
        run([case(rng, (1, 4, 3), 2)])
