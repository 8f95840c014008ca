"""Depthwise convolution: sums of shifted products, because BLAS gains nothing with one channel per group.

Numpy is fast where the innermost axis is long and contiguous. Wide images are therefore processed in their layout,
after strides are removed by splitting into phases; small images with many channels are processed channels-last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from eqsat.ops.windows import Windows, padded, taps

_BLOCK_BYTES = 1 << 18
_WIDE = 32


def depthwise(x: np.ndarray, w: np.ndarray, at: Windows) -> np.ndarray:
    """Convolution with one input channel a group.

    Args:
        x: Input (N, C, *spatial).
        w: Weights (C * multiplier, 1, *kernel).
        at: The windows.

    Returns:
        Output (N, C * multiplier, *out).
    """
    n, channels = x.shape[:2]
    many = w.shape[0] // channels
    x = padded(x, at)
    y = np.empty((n, channels, many, *at.out), x.dtype)
    kernel = w.reshape(channels, many, -1)
    run = _channels_last if at.out[-1] < _WIDE <= channels else _channels_first
    for i in range(n):
        run(x[i], kernel, at, y[i])
    return y.reshape(n, channels * many, *at.out)


def _channels_first(x: np.ndarray, kernel: np.ndarray, at: Windows, y: np.ndarray) -> None:
    """A few channels at a time: for each tap, add the shifted input times its weight."""
    channels, many = y.shape[:2]
    step = max(1, _BLOCK_BYTES // max(1, many * math.prod(at.out) * x.itemsize))
    ones = (1,) * len(at.kernel)
    for start in range(0, channels, step):
        block = slice(start, min(start + step, channels))
        sums = y[block]
        scratch = np.empty_like(sums)
        for k, shifted in enumerate(_shifted(x[block], at)):
            weights = kernel[block, :, k].reshape(-1, many, *ones)
            if k == 0:
                np.multiply(shifted[:, None], weights, out=sums)
            else:
                np.multiply(shifted[:, None], weights, out=scratch)
                sums += scratch


def _shifted(x: np.ndarray, at: Windows) -> Iterator[np.ndarray]:
    """For each tap, the elements that it meets; strided ones are read from contiguous phases of the input."""
    rank = len(at.kernel)
    phases: dict[tuple[int, ...], np.ndarray] = {}
    for index in np.ndindex(*at.kernel):
        starts = [k * d for k, d in zip(index, at.dilations, strict=True)]
        phase = tuple(s % t for s, t in zip(starts, at.strides, strict=True))
        if phase not in phases:
            part = x[(..., *(slice(p, None, t) for p, t in zip(phase, at.strides, strict=True)))]
            phases[phase] = part if all(t == 1 for t in at.strides[-1:]) else np.ascontiguousarray(part)
        offset = [s // t for s, t in zip(starts, at.strides, strict=True)]
        yield phases[phase][(..., *(slice(offset[i], offset[i] + at.out[i]) for i in range(rank)))]


def _channels_last(x: np.ndarray, kernel: np.ndarray, at: Windows, y: np.ndarray) -> None:
    """All channels at once, innermost, and a few rows at a time."""
    channels, many = y.shape[:2]
    image = np.ascontiguousarray(np.moveaxis(x, 0, -1))
    weights = np.ascontiguousarray(kernel.transpose(2, 1, 0))
    rows = at.out[0]
    step = max(1, _BLOCK_BYTES // max(1, math.prod(at.out[1:]) * channels * x.itemsize))
    places = [taps(at, axis) for axis in range(len(at.kernel))]
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        for m in range(many):
            sums: np.ndarray | None = None
            scratch: np.ndarray | None = None
            for k, index in enumerate(np.ndindex(*at.kernel)):
                first = index[0] * at.dilations[0] + start * at.strides[0]
                along = slice(first, first + (stop - start - 1) * at.strides[0] + 1, at.strides[0])
                shifted = image[(along, *(places[axis + 1][j] for axis, j in enumerate(index[1:])))]
                if sums is None:
                    sums = shifted * weights[k, m]
                    scratch = np.empty_like(sums)
                else:
                    np.multiply(shifted, weights[k, m], out=scratch)
                    sums += scratch
            if sums is not None:
                y[:, m, start:stop] = np.moveaxis(sums, -1, 0)
