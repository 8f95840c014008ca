"""Signal processing: Fourier transforms and the windows that go with them.

The last axis holds the parts of a number: one of real ones, two of complex ones. Transforms have the precision of their
operand, or single precision for half precision, as in ``onnx.reference``. Windows and mel weights are evaluated by
``onnx.reference``.
"""

from __future__ import annotations

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops.need_by_parameters import need_fourier, need_mel_weights, need_short_fourier, need_window_function
from eqsat.ops.numpy_kernel import HALF_TYPES
from eqsat.ops.registry import declare
from eqsat.ops.sampling import signals as sample
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.types import Attributes


def dft(
    attrs: Attributes, x: np.ndarray, length: np.ndarray | None = None, axis: np.ndarray | None = None
) -> np.ndarray:
    """The discrete Fourier transform along an axis, the one before the last if it is not given."""
    return _transformed(attrs, x, length, -2 if axis is None else int(axis.item()))


def dft_by_attribute(attrs: Attributes, x: np.ndarray, length: np.ndarray | None = None) -> np.ndarray:
    """Before version 20 the axis is an attribute."""
    return _transformed(attrs, x, length, attrs["axis"])


def stft(
    attrs: Attributes,
    signal: np.ndarray,
    step: np.ndarray,
    window: np.ndarray | None = None,
    length: np.ndarray | None = None,
) -> np.ndarray:
    """The transform of each frame of a signal, times a window: batch, frames, frequencies, parts.

    Real signals may leave out their last axis, as they do in ONNX Runtime.
    """
    found = _complex(signal[..., np.newaxis] if signal.ndim == 2 else signal)
    size = int(length.item()) if length is not None else found.shape[1] if window is None else len(window)
    frames = np.lib.stride_tricks.sliding_window_view(found, size, axis=1)[:, :: int(step.item())]
    if window is not None:
        shaped = np.zeros(size, np.real(found).dtype)
        shaped[: len(window)] = window[:size]
        frames = frames * shaped
    one_sided = bool(attrs["onesided"])
    return _parts(_forward(frames, size, -1, one_sided), signal.dtype)


def _transformed(attrs: Attributes, x: np.ndarray, length: np.ndarray | None, axis: int) -> np.ndarray:
    values, axis = _complex(x), axis % x.ndim
    one_sided, inverse = bool(attrs["onesided"]), bool(attrs["inverse"])
    size = values.shape[axis] if length is None else int(length.item())
    if not inverse:
        return _parts(_forward(values, size, axis, one_sided), x.dtype)
    if not one_sided:
        return _parts(np.fft.ifft(values, size, axis), x.dtype)
    # Half of the frequencies suffice for real values.
    whole = 2 * (values.shape[axis] - 1) if length is None else size
    return np.fft.irfft(values, whole, axis)[..., np.newaxis].astype(x.dtype)


def _forward(values: np.ndarray, size: int, axis: int, one_sided: bool) -> np.ndarray:
    found = np.fft.fft(values, size, axis)
    return np.take(found, range(size // 2 + 1), axis) if one_sided else found


def _complex(x: np.ndarray) -> np.ndarray:
    """Values whose real and imaginary parts are in the last axis."""
    wide = x.astype(np.float32) if x.dtype in HALF_TYPES else x
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.stack((np.real(values), np.imag(values)), -1).astype(dtype)


# ---- declarations ----------------------------------------------------------------------------------

declare(
    "BlackmanWindow",
    "HammingWindow",
    "HannWindow",
    traits=PARAMETRIC,
    shaped_by=(0,),
    need=need_window_function,
    sampling=sample.window,
)
declare(
    "DFT",
    numpy={20: dft, 17: dft_by_attribute},
    traits=PARAMETRIC,
    shaped_by=(1, 2),
    macs=count.fourier,
    need=need_fourier,
)
declare("MelWeightMatrix", traits=PARAMETRIC, shaped_by=(0, 1), need=need_mel_weights)
declare(
    "STFT", numpy=stft, traits=PARAMETRIC, shaped_by=(1, 3), need=need_short_fourier, sampling=sample.short_time_fourier
)
