"""Means of arrays that may be empty. ONNX leaves open what the mean of no elements is; ONNX Runtime makes it zero."""

from __future__ import annotations

import numpy as np


def mean(x: np.ndarray, axes: tuple[int, ...], keep: bool, dtype: np.dtype | None = None) -> np.ndarray:
    """The mean over axes, zero where these have no elements; numpy alone would warn, and return NaN.

    Args:
        x: The elements.
        axes: The axes that are reduced.
        keep: Whether these remain, with size 1.
        dtype: The type in which sums are kept; by default numpy's choice.
    """
    return (np.mean if x.size else np.sum)(x, axis=axes, keepdims=keep, dtype=dtype)
