"""Outputs of two runs of ordinary float32 networks that must be near each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fuzz.judge import DisagreementError

TOLERANCE = 2e-4
"""Relative to the largest magnitude of a tensor: rules reorder float32 arithmetic, some graphs cancel."""


def compare(place: str, expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    """Equal names, types and shapes; equal integers; floats within the tolerance."""
    if list(expected) != list(found):
        raise DisagreementError(f"{place}: outputs {list(found)} instead of {list(expected)}")
    for name, right in expected.items():
        other = found[name]
        if other.shape != right.shape or other.dtype != right.dtype:
            raise DisagreementError(f"{place}: {name} is {other.dtype}{other.shape}, not {right.dtype}{right.shape}")
        if right.dtype.kind != "f":
            if not np.array_equal(right, other):
                raise DisagreementError(f"{place}: {name} differs")
            continue
        scale = max(float(np.abs(right).max(initial=0.0)), 1e-3)
        error = float(np.abs(right.astype(np.float64) - other.astype(np.float64)).max(initial=0.0)) / scale
        if not error <= TOLERANCE:
            raise DisagreementError(f"{place}: {name} differs by {error:.3g} of its magnitude {scale:.3g}")
