"""A tensor in several worlds (see ``worlds.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Value:
    """One tensor.

    Attributes:
        dtype: Its element type in the model.
        worlds: What it is in each world (a list for a sequence).
        left: Whether a number of float64 that it depends on has left the range: there is no wider world to show it.
    """

    dtype: np.dtype | None
    worlds: tuple[Any, ...]
    left: bool = False

    @property
    def exact(self) -> Any:
        return self.worlds[0]

    @property
    def typed(self) -> Any:
        return self.worlds[-1]

    def spread(self) -> np.ndarray:
        """How far the shaken worlds stray from the exact one, for each element."""
        return spread(self.worlds)


def spread(worlds: Sequence[np.ndarray]) -> np.ndarray:
    if worlds[0].dtype.kind in "OUS":
        changed = [w.shape != worlds[0].shape or bool(np.any(w != worlds[0])) for w in worlds[1:-1]]
        return np.full(worlds[0].shape, np.inf if any(changed) else 0.0)
    with np.errstate(all="ignore"):
        center = worlds[0].astype(np.float64)
        far = np.zeros(center.shape)
        for other in worlds[1:-1]:
            if other.shape != center.shape:
                return np.full(center.shape, np.inf)
            step = np.abs(other.astype(np.float64) - center)
            far = np.maximum(far, np.where(other == worlds[0], 0.0, np.where(np.isnan(step), np.inf, step)))
    return far


def step_of(dtype: np.dtype) -> tuple[float, float, float]:
    """Half a unit in the last place of 1, the least subnormal and the least normal number."""
    info = ml_dtypes.finfo(dtype) if dtype not in (np.float32, np.float64) else np.finfo(dtype)
    return float(info.eps) / 2, float(info.smallest_subnormal), float(info.smallest_normal)
