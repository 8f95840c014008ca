"""What is drawn for the leaves of a piece: rows that a mask hides as a whole, ties, and rows of one number."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.schema.types import TensorType
from eqsat.verify.leaf_samples import EQUAL, MIXED, ORDINARY, ZEROS, Style, draw


def drawn(dtype: ir.DataType, style: Style, shape: tuple[int, ...] = (2, 16, 64)) -> np.ndarray:
    found = draw(TensorType(dtype, shape), style, (0.5,), 0, "x")
    assert found is not None and found.shape == shape and found.dtype == dtype.numpy()
    return found


def test_masks_hide_whole_rows_and_parts_of_others() -> None:
    rows = drawn(ir.DataType.BOOL, MIXED)
    whole, none = rows.all(-1), (~rows).all(-1)
    assert whole.any() and none.any() and not (whole | none).all()
    assert drawn(ir.DataType.BOOL, EQUAL).all() and not drawn(ir.DataType.BOOL, ZEROS).any()
    ordinary = drawn(ir.DataType.BOOL, ORDINARY)
    assert not ordinary.all(-1).any() and ordinary.any(-1).all()


@pytest.mark.parametrize(
    "dtype", [ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE, ir.DataType.INT64]
)
def test_some_rows_have_one_number(dtype: ir.DataType) -> None:
    rows = drawn(dtype, MIXED).astype(np.float64)
    equal = (rows == rows[..., :1]).all(-1)
    assert 0 < equal.mean() < 0.6


@pytest.mark.parametrize("shape", [(), (5,), (0,), (3, 0), (0, 3), (1, 1)])
def test_small_and_empty_tensors(shape: tuple[int, ...]) -> None:
    for dtype in (ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT8):
        drawn(dtype, MIXED, shape)
