"""Running sums and products in C: they sum several lines at once, so every number of lines and every layout counts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from eqsat.ops.schemas import defaults
from eqsat.schema.types import OpKey
from tests.codegen.kernels.loops import harness
from tests.codegen.kernels.loops.judge import numpy_result, same
from tests.ops.oracle import canonical

SHAPES = [(7,), (1,), (5, 1), (1, 6), (3, 9), (4, 4), (2, 3, 8), (3, 1, 5), (2, 5, 1025), (6, 2100), (2, 3, 2, 13)]
"""One line and many; fewer lines than are summed together, as many, and some more."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.float16])
@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
def test_every_axis_of_every_shape(operator: str, dtype: Any):
    rng = np.random.default_rng(1)
    op = OpKey("", operator)
    cases, wanted = [], []
    for shape in SHAPES:
        for axis, (reverse, exclusive) in itertools.product(range(len(shape)), itertools.product((0, 1), repeat=2)):
            x = rng.integers(1, 3, shape).astype(dtype) if operator == "CumProd" else rng.normal(0, 9, shape)
            if operator == "CumProd" and np.dtype(dtype).kind == "f":
                x = x ** rng.choice([-1, 1], shape)  # products that stay in the range of their type
            inputs = [x.astype(dtype), np.array(axis)]
            full = {**defaults(op), **canonical({"reverse": reverse, "exclusive": exclusive})}
            (result,) = numpy_result(op, full, inputs)
            for laid in (None, rng):
                made = harness.case(
                    f"case{len(cases)}", op, full, inputs, [(result.shape, result.dtype)], constant=[1], rng=laid
                )
                assert made is not None
                cases.append(made)
                wanted.append((result, f"{shape} {axis} {reverse} {exclusive}"))
    for (found,), (result, message) in zip(harness.run(cases), wanted, strict=True):
        assert found is not None
        # Sums of float16 are kept in float32.
        same(found, result, message, units=64 if dtype is np.float16 else 1)
