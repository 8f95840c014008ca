"""Maps: Python's dictionaries from numbers or strings to numbers or strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.ops.kernel import Attributes
from eqsat.ops.registry import declare
from eqsat.ops.traits import FORWARDS, MOVES

_ML = "ai.onnx.ml"


def zip_map(attrs: Attributes, x: np.ndarray) -> list[dict[Any, float]]:
    """A map for each row, from labels to its elements, in the order of the labels as ONNX Runtime's."""
    labels = attrs.get("classlabels_int64s") or attrs.get("classlabels_strings") or ()
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    if x.ndim not in (1, 2) or rows.shape[1] != len(labels):
        raise ValueError(f"rows of {len(labels)} elements are required, one for each label")
    return [dict(sorted(zip(labels, row, strict=True))) for row in rows.tolist()]


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("ZipMap", domain=_ML, numpy=zip_map, traits=MOVES | FORWARDS)
