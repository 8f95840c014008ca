"""Dropout: an identity, except in training mode."""

from __future__ import annotations

import numpy as np

from eqsat.ops import normal
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.registry import declare
from eqsat.ops.sampling import movement as sample
from eqsat.ops.traits import RANDOM
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes


def dropout(
    attrs: Attributes,
    x: np.ndarray,
    ratio: np.ndarray | None = None,
    training: np.ndarray | None = None,
    *,
    outputs: int = 1,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """The input and an all-true mask; training is left to the reference."""
    if training is not None and training.reshape(()):
        raise Fallback
    return x if outputs == 1 else (x, np.ones(x.shape, np.bool_))


def dropout_by_attribute(attrs: Attributes, x: np.ndarray, *, outputs: int = 1) -> np.ndarray | tuple[np.ndarray, ...]:
    """Before version 12 inference is the only mode."""
    return x if outputs == 1 else (x, np.ones(x.shape, np.bool_))


def dropout_first(attrs: Attributes, x: np.ndarray, *, outputs: int = 1) -> np.ndarray | tuple[np.ndarray, ...]:
    """Before version 7 an attribute tells whether it is inference; the mask then has the input's type."""
    if not attrs.get("is_test"):
        raise Fallback
    return x if outputs == 1 else (x, np.ones(x.shape, x.dtype))


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Dropout", numpy={12: dropout, 10: dropout_by_attribute, 7: dropout_by_attribute, 1: dropout_first},
    normal_form=(normal.seed_in_training,), sampling=sample.dropout)
declare("BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", domain=MICROSOFT, traits=RANDOM)
