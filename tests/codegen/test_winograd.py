"""Winograd convolution in C for every instruction set, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eqsat.codegen.kernels import find
from eqsat.codegen.kernels.winograd import ASKED, KERNEL, pays
from tests.codegen.test_direct_convolution import conv_case
from tests.codegen.vector_harness import UNIT, run, step


def winograd_case(rng, shape, outputs, pads, **more):
    case = conv_case(rng, shape, outputs, (3, 3), pads=pads, rank=15, **more)
    case.attributes = {**case.attributes, ASKED: 1}
    # Factors of the transforms amplify errors: a larger multiple of the sum of absolute products, and not of that of
    # one window alone but of all that share a tile.
    case.tolerance = 60 * UNIT * float(np.max(case.tolerance)) / (UNIT * (4 + 2 * np.sqrt(shape[1] * 9 + 2)))
    return case


def test_transform_of_weights():
    """The transforms multiply to a convolution: A^T [(G g) (B^T d)] is exact in rationals."""
    b = np.array(
        [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
         [0, 4, 0, -5, 0, 1]]
    )  # fmt: skip
    a = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    rng = np.random.default_rng(0)
    d, g = rng.standard_normal(6), rng.standard_normal(3)
    np.testing.assert_allclose(a @ ((KERNEL @ g) * (b @ d)), np.correlate(d, g, "valid"), rtol=1e-12)


@pytest.mark.parametrize("gaps", [False, True])
def test_shapes(gaps):
    rng = np.random.default_rng(1)
    cases = [
        winograd_case(rng, (1, 16, 8, 8), 32, (1, 1, 1, 1)),
        winograd_case(rng, (2, 21, 7, 9), 19, (1, 1, 1, 1)),
        winograd_case(rng, (1, 5, 6, 4), 3, (0, 1, 2, 1)),
        winograd_case(rng, (1, 32, 30, 30), 16, (0, 0, 0, 0), bias=False),
    ]
    run(cases, rng=np.random.default_rng(2) if gaps else None, optimization="-O1")


def test_epilogue():
    rng = np.random.default_rng(3)
    case = winograd_case(rng, (1, 17, 9, 10), 20, (1, 1, 1, 1))
    other = rng.standard_normal(case.expected.shape).astype(np.float32)
    case.operands, case.steps = [other], [step("Add", 0, 1), step("Relu", 2)]
    case.expected = np.maximum(case.expected + other, 0)
    run([case])


def test_only_where_asked_for():
    case = winograd_case(np.random.default_rng(4), (1, 64, 56, 56), 64, (1, 1, 1, 1))
    family, task = case.build(None)
    assert family.name == "Winograd convolution"
    assert pays(task)
    plain = replace(task, attributes={k: v for k, v in task.attributes.items() if k != ASKED})
    direct = find(plain)
    assert direct is not None
    assert direct.name == "direct convolution"
    small = winograd_case(np.random.default_rng(5), (1, 8, 4, 4), 8, (1, 1, 1, 1)).build(None)[1]
    assert not pays(small)
