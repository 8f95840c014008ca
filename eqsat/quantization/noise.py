"""Measures the effect of quantizing each tensor alone on the outputs, so that sums predict the effect of several.

The model is additive noise: rounding errors of different tensors are assumed to be independent with mean zero, and the
outputs to be linear in errors this small. Then powers add up, and the output's ratio of signal to quantization noise is
``1 / SQNR = sum of 1 / SQNR_i`` over the quantized tensors (Lin, Talathi, Annapureddy, "Fixed point quantization of
deep convolutional networks", 2016, section 3; Sakr, Kim, Shanbhag, "Analytical guarantees on numerical precision of
deep neural networks", 2017, bound the error by a like sum with gains from derivatives). Here each term is measured: the
tensor's own rounding error on calibration samples goes through the network, all else being exact. That takes no
derivatives and sees what Relu and saturation do to this very error.

Limits: errors of one sample through a common path are not independent, a mean that is not zero adds up in amplitude
and not in power, and saturating functions (Softmax, Sigmoid) damp two errors together more than each alone. Terms far
above
-20 dB leave the linear regime. On the networks of the tests the prediction is within 1.3 dB of the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.errors import QuantizationError
from eqsat.execute.trace import Trace
from eqsat.quantization.calibrate import CalibrationProgress, is_float
from eqsat.quantization.calibration_data import CalibrationData, DataSource, first_samples
from eqsat.quantization.insert import with_taps
from eqsat.quantization.scheme import Scheme


@dataclass(frozen=True)
class Noise:
    """Noise that each tensor of a scheme adds to each output, relative to the power of that output.

    Attributes:
        scheme: The scheme that was measured.
        outputs: Names of the float outputs.
        weights: float64[tensors, outputs]. 0 for tensors that follow another one: they are rounded with it. An output
            that is always zero counts with the plain mean square of its error.
        samples: How many samples were used.
    """

    scheme: Scheme
    outputs: tuple[str, ...]
    weights: np.ndarray
    samples: int

    def predict(self, tensors: Iterable[int] | None = None) -> dict[str, float]:
        """SQNR of each output in dB if these tensors (by position in the scheme; by default all) are quantized."""
        chosen = list(range(len(self.weights)) if tensors is None else tensors)
        return {name: decibel(float(self.weights[chosen, j].sum())) for j, name in enumerate(self.outputs)}


def measure_noise(
    model: ir.Model,
    scheme: Scheme,
    data: DataSource | CalibrationData,
    *,
    limit: int | None = 4,
    progress: Callable[[CalibrationProgress], None] | None = None,
) -> Noise:
    """Measure the noise of every tensor of a scheme.

    For each sample and tensor, the nodes that depend on the tensor run once; memory is that of all tensors for one
    sample.

    Args:
        model: The model that the scheme is for.
        scheme: The quantization.
        data: Samples.
        limit: Samples to use at most; None for all.
        progress: Called after each run.

    Raises:
        QuantizationError: The data do not fit the model, or there are none.
        ExecutionError: The model cannot be executed.
    """
    samples = first_samples(data, model, limit)
    tapped, taps = with_taps(model, scheme)
    trace = Trace(tapped)
    measured = [(i, tap, t) for i, (tap, t) in enumerate(zip(taps, scheme.tensors, strict=True)) if t.follows is None]
    outputs = [v.name or "" for v in model.graph.outputs if v.dtype is not None and v.dtype.is_floating_point()]
    noise = np.zeros((len(taps), len(outputs)))
    signal = np.zeros(len(outputs))
    elements = np.zeros(len(outputs))
    count = done = 0
    for sample in samples:
        state = trace.run(sample)
        exact = [trace.value(state, name) for name in outputs]
        signal += [power(y) for y in exact]
        elements += [y.size for y in exact]
        for i, tap, tensor in measured:
            value = trace.value(state, tap)
            rounded = tensor.round_trip(value)
            if not np.array_equal(rounded, value):
                changed = trace.run_again(state, tap, rounded)
                noise[i] += [error_power(trace.value(changed, n), y) for n, y in zip(outputs, exact, strict=True)]
            done += 1
            if progress is not None:
                progress(CalibrationProgress("measure", done, None if limit is None else limit * len(measured)))
        count += 1
    return Noise(scheme, tuple(outputs), noise / np.where(signal > 0, signal, np.maximum(elements, 1)), count)


def measure_sqnr(
    model: ir.Model, other: ir.Model, data: DataSource | CalibrationData, *, limit: int | None = None
) -> dict[str, float]:
    """The distance of a quantized model from the original: ratio of signal to noise in dB for each float output.

    Args:
        model: The original.
        other: A model with the same inputs and outputs.
        data: Samples.
        limit: Samples to use at most.

    Raises:
        QuantizationError: The data do not fit the model, there are none, or the outputs differ.
        ExecutionError: A model cannot be executed.
    """
    samples = first_samples(data, model, limit)
    first, second = Trace(model), Trace(other)
    if first.output_names != second.output_names:
        raise QuantizationError(
            f"outputs {', '.join(first.output_names)} are required", actual=", ".join(second.output_names) or "none"
        )
    noise: dict[str, float] = {}
    signal: dict[str, float] = {}
    for sample in samples:
        exact, rounded = first.outputs(first.run(sample)), second.outputs(second.run(sample))
        for name, y in exact.items():
            if is_float(y):
                signal[name] = signal.get(name, 0.0) + power(y)
                noise[name] = noise.get(name, 0.0) + error_power(rounded[name], y)
    return {name: decibel(noise[name] / s if s else noise[name]) for name, s in signal.items()}


def power(y: np.ndarray) -> float:
    """Sum of squares of the finite elements."""
    wide = y.astype(np.float64).ravel()
    wide = wide[np.isfinite(wide)]
    return float(np.dot(wide, wide))


def error_power(rounded: np.ndarray, exact: np.ndarray) -> float:
    """Sum of squared errors; infinite where a finite element became infinite or NaN."""
    a, b = rounded.astype(np.float64).ravel(), exact.astype(np.float64).ravel()
    finite = np.isfinite(b)
    error = a[finite] - b[finite]
    return float(np.dot(error, error)) if np.isfinite(error).all() else math.inf


def decibel(noise: float) -> float:
    """The ratio of signal to noise in dB, for noise relative to the signal; infinite without noise."""
    if not noise:
        return math.inf
    return -10 * math.log10(noise) if math.isfinite(noise) else -math.inf
