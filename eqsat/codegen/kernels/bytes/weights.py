"""Weights of integer kernels: zero points folded into the bias, bytes packed for the dot product of 4.

With activations x and weights w of zero points zx and zw, a sum over K products is

    sum (x - zx) (w - zw)  =  sum x w  -  zw sum x  -  zx (sum w - K zw)

The last term is known in advance and goes into the bias. The middle one vanishes where w - zw itself fits into a signed
byte (always for signed weights without zero point, mostly for unsigned ones); otherwise the kernel sums x as well.
128 is added to signed activations and to their zero point, because the instruction requires unsigned ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PANEL = 16
"""Output channels of a panel of weights."""


@dataclass(frozen=True, slots=True, eq=False)
class FoldedWeights:
    """Weights as kernels multiply them.

    Attributes:
        weights: int8 ``[groups, channels, taps, run]``.
        bias: int64 ``[groups, channels]``, without the input's zero point.
        sums: Amount that one unit of the input's zero point subtracts from the bias, int64 ``[groups, channels]``.
        zeros: Factors of the sum of the input; None if it is not needed.
    """

    weights: np.ndarray
    bias: np.ndarray
    sums: np.ndarray
    zeros: np.ndarray | None

    def joined(self) -> FoldedWeights:
        """The weights with all channels in one group."""
        zeros = None if self.zeros is None else self.zeros.reshape(1, -1)
        weights = self.weights.reshape(1, -1, *self.weights.shape[2:])
        return FoldedWeights(weights, self.bias.reshape(1, -1), self.sums.reshape(1, -1), zeros)

    def start(self, zero: int) -> np.ndarray:
        """The int32 start values of sums, for a zero point of the (unsigned) input; call :meth:`fits` first."""
        return (self.bias - zero * self.sums).astype(np.int32)

    def fits(self, zero: int = 255) -> bool:
        """Whether no partial sum leaves 32 bits, for zero points up to this one."""
        terms = np.abs(self.weights.astype(np.int64)).sum((2, 3))
        if self.zeros is not None:
            terms = terms + np.abs(self.zeros) * self.weights.shape[2] * self.weights.shape[3]
        return bool((np.abs(self.bias) + zero * np.abs(self.sums) + 255 * terms).max(initial=0) < 2**31)


def fold(weights: np.ndarray, zero: np.ndarray, bias: np.ndarray | None) -> FoldedWeights:
    """Folds the weights' zero points.

    Args:
        weights: int8 or uint8 ``[groups, channels, taps, run]``.
        zero: One zero point, or one for each ``[groups, channels]``.
        bias: Bias ``[groups, channels]``, or None.
    """
    wide = weights.astype(np.int16)
    groups, channels, taps, run = weights.shape
    zeros = np.broadcast_to(zero.astype(np.int16), (groups, channels))
    start = np.zeros((groups, channels), np.int64) if bias is None else bias.astype(np.int64)
    centred = wide - zeros[..., None, None]
    if centred.min(initial=0) >= -128 and centred.max(initial=0) <= 127:
        return FoldedWeights(centred.astype(np.int8), start, centred.sum((2, 3), dtype=np.int64), None)
    shift = np.int16(128 if weights.dtype == np.uint8 else 0)
    moved, left = wide - shift, (zeros - shift).astype(np.int64)
    sums = moved.sum((2, 3), dtype=np.int64) - taps * run * left
    return FoldedWeights(moved.astype(np.int8), start, sums, left)


def pack(weights: np.ndarray) -> np.ndarray:
    """Weights ``[groups, channels, taps, run]`` in int8 as kernels read them."""
    groups, channels, taps, run = weights.shape
    panels = -(-channels // PANEL)
    full = np.zeros((groups, panels * PANEL, taps, -(-run // 4) * 4), np.int8)
    full[:, :channels, :, :run] = weights
    split_up = full.reshape(groups, panels, PANEL, taps, -1, 4)
    return np.ascontiguousarray(split_up.transpose(0, 1, 3, 4, 2, 5)).ravel()


def by_channel(values: np.ndarray) -> np.ndarray:
    """Numbers ``[groups, channels]`` filled up to panels."""
    groups, channels = values.shape
    full = np.zeros((groups, -(-channels // PANEL) * PANEL), values.dtype)
    full[:, :channels] = values
    return full.ravel()
