"""Dropout: an identity, unless training is asked for."""

from __future__ import annotations

import numpy as np

from eqsat.ops.kernels.registry import Attributes, Fallback, kernel


@kernel("Dropout", since=12, counts_outputs=True)
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


@kernel("Dropout", since=10, counts_outputs=True)
@kernel("Dropout", since=7, counts_outputs=True)
def dropout_by_attribute(attrs: Attributes, x: np.ndarray, *, outputs: int = 1) -> np.ndarray | tuple[np.ndarray, ...]:
    """Before version 12 inference is the only mode."""
    return x if outputs == 1 else (x, np.ones(x.shape, np.bool_))


@kernel("Dropout", since=1, counts_outputs=True)
def dropout_first(attrs: Attributes, x: np.ndarray, *, outputs: int = 1) -> np.ndarray | tuple[np.ndarray, ...]:
    """Before version 7 an attribute says whether it is inference; the mask then has the input's type."""
    if not attrs.get("is_test"):
        raise Fallback
    return x if outputs == 1 else (x, np.ones(x.shape, x.dtype))
