"""Scales and zero points, as ONNX defines linear quantization: ``q = saturate(round(x / scale) + zero)``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.ops.families.quantization import dequantize_linear, integer_range, quantize_linear, spread
from eqsat.quantization.ranges import Range

_TINY = float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)
BIAS_LIMIT = 2**30
"""Largest bias as an integer: half of int32; the other half is for the sum of products."""


@dataclass(frozen=True, eq=False)
class Quantizer:
    """Integers for one tensor.

    Attributes:
        scale: float32, a scalar or one value per index of ``axis``.
        zero: Of the same shape and of the integers' type.
        axis: None if one scale serves all.
    """

    scale: np.ndarray
    zero: np.ndarray
    axis: int | None = None

    @property
    def dtype(self) -> np.dtype:
        """Type of the integers."""
        return self.zero.dtype

    @property
    def key(self) -> tuple[bytes, bytes, str, int | None]:
        """Equal for equal quantizers."""
        return self.scale.tobytes(), self.zero.tobytes(), self.dtype.name, self.axis

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """The integers of a float32 array."""
        axis = 0 if self.axis is None else self.axis
        if self.dtype != np.int32:
            return quantize_linear({"axis": axis}, x, self.scale, self.zero)
        # QuantizeLinear does not make 32-bit integers, whose values float32 could not hold either.
        scale = spread(self.scale, x.shape, axis).astype(np.float64)
        return np.clip(np.rint(x / scale), -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32)

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        """The real numbers that integers represent, as float32."""
        return dequantize_linear({"axis": 0 if self.axis is None else self.axis}, q, self.scale, self.zero)

    def round_trip(self, x: np.ndarray) -> np.ndarray:
        """``DequantizeLinear(QuantizeLinear(x))``."""
        return self.dequantize(self.quantize(x))


def activation_quantizer(found: Range, dtype: str, *, symmetric: bool) -> Quantizer:
    """The quantizer for a range.

    A tensor that was always zero gets scale 1; one that was always the same value represents it exactly.

    Args:
        found: The range.
        dtype: ``"uint8"`` or ``"int8"``.
        symmetric: Zero point in the middle: 0 for int8, 128 for uint8.
    """
    kind = np.dtype(dtype)
    limits = integer_range(kind)
    assert limits is not None
    least, greatest = limits
    middle = (least + greatest + 1) // 2
    if symmetric:
        largest = min(max(-found.low, found.high), 0.99 * _LARGEST)
        return Quantizer(_scale(largest / (greatest - middle)), np.array(middle, kind))
    # The ends are met except for half a step, and must not become infinite.
    low, high = max(found.low, -0.99 * _LARGEST), min(found.high, 0.99 * _LARGEST)
    scale = _scale(high / (greatest - least) - low / (greatest - least))
    zero = np.clip(np.rint(least - low / float(scale)), least, greatest)
    return Quantizer(scale, np.array(zero, kind))


def weight_quantizer(weight: np.ndarray, axis: int | None) -> Quantizer:
    """Symmetric int8 from -127 to 127 for finite weights, with a scale for each index of ``axis``.

    Channels of zeros get scale 1.
    """
    axes = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight.astype(np.float64)).max(axis=axes, initial=0.0)
    return _symmetric(largest / 127, axis)


def weight_quantizer_with_bias(weight: np.ndarray, axis: int | None, bias: np.ndarray, input_scale: float) -> Quantizer:
    """As :func:`weight_quantizer`, with scales wide enough for the bias.

    The bias has the scale of the products, ``input_scale * weight_scale``. Where the weights of a channel are so
    small that its bias would not fit 31 bits, they get a larger scale; a channel of zeros gets the scale that
    represents its bias with 16 bits.
    """
    plain = weight_quantizer(weight, axis)
    needed = np.abs(bias.astype(np.float64)) / input_scale
    axes = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    empty = ~np.any(weight, axis=axes)
    scale = plain.scale.astype(np.float64)
    if axis is None:
        needed = needed.max(initial=0.0)
    scale = np.where(empty & (needed > 0), needed / 2**16, np.maximum(scale, needed / BIAS_LIMIT))
    # The product must be a normal number as well.
    return _symmetric(np.maximum(scale, 2 * _TINY / input_scale), axis)


def bias_quantizer(input_scale: np.ndarray, weight_scale: np.ndarray, length: int) -> Quantizer:
    """int32 with the scale of the products it is added to, one for each output channel."""
    product = np.minimum(weight_scale.astype(np.float64) * float(input_scale), _LARGEST)
    scale = np.broadcast_to(product, (length,)).astype(np.float32)
    return Quantizer(scale, np.zeros(length, np.int32), 0)


def _symmetric(step: np.ndarray, axis: int | None) -> Quantizer:
    step = np.where(step > 0, np.clip(step, _TINY, _LARGEST), 1.0)
    scale = step.astype(np.float32).reshape(() if axis is None else -1)
    return Quantizer(scale, np.zeros(scale.shape, np.int8), axis)


def _scale(step: float) -> np.ndarray:
    return np.array(max(step, _TINY) if step > 0 else 1.0, np.float32)
