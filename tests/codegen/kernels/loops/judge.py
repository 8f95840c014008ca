"""The numpy executor as judge of single kernels, and how near to it C must come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.ops.evaluate import operation
from eqsat.schema.types import OpKey
from tests.ops.oracle import canonical, protos

UNITS = 8
"""Allowed distance to the executor's floats: in units in the last place of the largest element of the result."""


def numpy_result(
    op: OpKey, attributes: dict[str, Any], inputs: Sequence[np.ndarray | None], outputs: int = 1
) -> list[Any]:
    with np.errstate(all="ignore"):
        run = operation(op, canonical(attributes), None, outputs, lambda: protos(op, attributes))
        return list(run(inputs))[:outputs]


def same(found: np.ndarray, wanted: np.ndarray, message: str, units: float = UNITS, signs: bool = False) -> None:
    assert found.dtype == wanted.dtype, message
    assert found.shape == wanted.shape, message
    if wanted.dtype.name.startswith(("bool", "int", "uint")):
        # Integers of two and four bits are not numbers to numpy.
        np.testing.assert_array_equal(found.astype(np.int64), wanted.astype(np.int64), message)
        return
    eps = float(ml_dtypes.finfo(wanted.dtype).eps) if wanted.dtype.kind == "V" or wanted.dtype.itemsize < 4 else None
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite], message)
    if signs:
        np.testing.assert_array_equal(np.signbit(a[finite]), np.signbit(b[finite]), message)
    largest = np.abs(b[finite]).max(initial=0)
    step = (eps if eps is not None else float(np.finfo(wanted.dtype).eps)) * largest
    np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=units * step, err_msg=message)
