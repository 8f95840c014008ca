"""Integer arithmetic of ONNX and C, for type inference and kernels."""

from __future__ import annotations

import numpy as np


def divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients rounded towards zero, to the bit: float64 would not hold 64 bits.

    The least integer divided by -1 wraps around to itself, as two's complement has it; by zero everything is 0.
    """
    with np.errstate(all="ignore"):
        quotient = np.asarray(a // b)
        if quotient.dtype.kind == "i":
            quotient = quotient + (((a % b) != 0) & ((a < 0) != (b < 0)))
    return quotient
