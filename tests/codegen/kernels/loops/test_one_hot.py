"""OneHot in C on every axis: it fills first and sets elements afterwards, so no index may reach a neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat.ops.schemas import defaults
from eqsat.schema.types import OpKey
from tests.codegen.kernels.loops import harness
from tests.ops.oracle import canonical

SHAPES = [(), (1,), (7,), (3, 4), (2, 1, 5), (2, 3, 2, 3)]
DEPTHS = [1, 2, 9]


def brute_force(indices: np.ndarray, depth: int, values: np.ndarray, axis: int) -> np.ndarray:
    made = np.full((*indices.shape[:axis], depth, *indices.shape[axis:]), values[0])
    for place in np.ndindex(*indices.shape):
        given = int(indices[place])
        if -depth <= given < depth:
            made[(*place[:axis], given % depth, *place[axis:])] = values[1]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("index", [np.int64, np.int32, np.float32])
def test_every_axis(index: Any, kind: Any):
    rng = np.random.default_rng(1)
    op = OpKey("", "OneHot")
    cases, wanted = [], []
    for shape in SHAPES:
        for depth in DEPTHS:
            for axis in range(-1, len(shape) + 1):
                where = rng.integers(-2 * depth, 2 * depth, shape).astype(index)
                values = np.array([0, 1] if kind is np.bool_ else [3, -5]).astype(kind)
                result = brute_force(where, depth, values, len(shape) if axis < 0 else axis)
                full = {**defaults(op), **canonical({"axis": axis})}
                for laid in (None, rng):
                    made = harness.case(
                        f"case{len(cases)}",
                        op,
                        full,
                        [where, np.array(depth), values],
                        [(result.shape, result.dtype)],
                        constant=[1],
                        rng=laid,
                    )
                    assert made is not None
                    cases.append(made)
                    wanted.append((result, f"{shape} {depth} {axis}"))
    for (found,), (result, message) in zip(harness.run(cases), wanted, strict=True):
        np.testing.assert_array_equal(found, result, err_msg=message)
