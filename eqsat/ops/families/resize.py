"""Resize and Upsample: separable interpolation, one axis at a time.

For each axis and output position a few input positions (taps) and weights are computed; nearest-neighbour
resizing is one tap, linear two, cubic four, and antialiasing widens the filter when shrinking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import normal
from eqsat.ops.checks import attributes, lengths, movement
from eqsat.ops.families.shaping import ints
from eqsat.ops.need_by_parameters import need_resize
from eqsat.ops.numpy_kernel import HALF_TYPES
from eqsat.ops.quantization_role import DATA, Operands, Role
from eqsat.ops.registry import declare
from eqsat.ops.sampling import resampling as sample
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.attributes import attr
from eqsat.schema.types import Attributes


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """Resizing of one axis.

    Attributes:
        axis: Which one.
        scale: Output length by input length, not rounded.
        size: Output length.
        roi: Part of the input, from 0 to 1, that ``tf_crop_and_resize`` takes.
    """

    axis: int
    scale: float
    size: int
    roi: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ResizeRule:
    """How positions are mapped and values are made.

    Attributes:
        mode: ``nearest``, ``linear`` or ``cubic``.
        transform: ``coordinate_transformation_mode``.
        nearest: ``nearest_mode``.
        cubic: ``cubic_coeff_a``.
        exclude_outside: Whether what lies outside has no weight, instead of being the border.
        antialias: Whether the filter widens when shrinking.
    """

    mode: str
    transform: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """The steps of a resizing of an input of known shape.

    Attributes:
        axes: Axes that change, in the order in which they are resized.
        shape: The output's.
        rule: How positions are mapped and values are made.
    """

    axes: tuple[ResizedAxis, ...]
    shape: tuple[int, ...]
    rule: ResizeRule


def resize_plan(
    attrs: Attributes,
    shape: tuple[int, ...],
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> ResizePlan:
    """Determines the axes that are resized, and their scales.

    Raises:
        ValueError: Neither scales nor sizes are given.
    """
    chosen = [a % len(shape) for a in attrs.get("axes") or range(len(shape))]
    factors: list[float]
    if sizes is not None and sizes.size:
        wanted = list(ints(sizes))
        factors = [size / shape[a] for size, a in zip(wanted, chosen, strict=True)]
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            common = min(factors) if policy == "not_larger" else max(factors)
            factors = [common] * len(factors)
            wanted = [math.floor(common * shape[a] + 0.5) for a in chosen]
    elif scales is not None and scales.size:
        factors = [float(f) for f in scales]
        wanted = [math.floor(np.float32(f) * np.float32(shape[a])) for f, a in zip(factors, chosen, strict=True)]
    else:
        raise ValueError("scales or sizes are required")
    region = [0.0] * len(chosen) + [1.0] * len(chosen) if roi is None or not roi.size else [float(v) for v in roi]
    rule = ResizeRule(
        str(attrs["mode"]),
        str(attrs.get("coordinate_transformation_mode", "half_pixel")),
        str(attrs.get("nearest_mode", "round_prefer_floor")),
        float(attrs.get("cubic_coeff_a", -0.75)),
        bool(attrs.get("exclude_outside", 0)),
        bool(attrs.get("antialias", 0)),
    )
    crop = rule.transform == "tf_crop_and_resize"
    out = list(shape)
    axes = []
    for i, (axis, factor, size) in enumerate(zip(chosen, factors, wanted, strict=True)):
        out[axis] = size
        if crop or size != shape[axis] or factor != 1.0:
            axes.append(ResizedAxis(axis, factor, size, (region[i], region[i + len(chosen)])))
    # Axes that shrink come first, so that the others have less to do.
    return ResizePlan(tuple(sorted(axes, key=lambda p: p.scale)), tuple(out), rule)


def resize(
    attrs: Attributes,
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> np.ndarray:
    """Resize to given scales or sizes of all or some axes."""
    return _resize(x, resize_plan(attrs, x.shape, roi, scales, sizes), attrs)


def resize_first(attrs: Attributes, x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """In version 10 positions are scaled without an offset and rounded down."""
    return resize({**_ASYMMETRIC, "mode": attrs["mode"]}, x, None, scales)


def upsample(attrs: Attributes, x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The predecessor of Resize, with the same rule as its first version."""
    return resize_first(attrs, x, scales)


def upsample_by_attribute(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 9 the scales are an attribute."""
    return resize_first(attrs, x, np.array(attrs["scales"]))


def upsample_planes(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """In version 1 there is a scale for height and one for width."""
    mode = "linear" if attrs["mode"] == "bilinear" else attrs["mode"]
    return resize_first({"mode": mode}, x, np.array([1, 1, attrs["height_scale"], attrs["width_scale"]]))


_ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_OF_TENSORFLOW = "tf_half_pixel_for_nn"
"""Named by ONNX until version 13; ONNX Runtime knows it in all, and exporters write it."""
_FLOOR_OF_TENSORFLOW = {"coordinate_transformation_mode": _NEAREST_OF_TENSORFLOW, "nearest_mode": "floor"}
_NEAREST_BY_CENTRE = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def _resize(x: np.ndarray, plan: ResizePlan, attrs: Attributes) -> np.ndarray:
    if any(not p.size for p in plan.axes):
        return np.zeros(plan.shape, x.dtype)
    y = x
    if plan.rule.mode != "nearest" and (x.dtype.kind != "f" or x.dtype in HALF_TYPES):
        y = x.astype(np.float32)
    outside: list[tuple[int, np.ndarray]] = []
    for p in plan.axes:
        index, weights, beyond = axis_taps(p, x.shape[p.axis], plan.rule)
        y = np.take(y, index, p.axis) if weights is None else _interpolate(y, p.axis, index, weights)
        if beyond is not None:
            outside.append((p.axis, beyond))
    y = y.astype(x.dtype, copy=False)
    for axis, where in outside:
        if where.any():
            y = np.array(y)
            y[(slice(None),) * axis + (where,)] = attrs.get("extrapolation_value", 0.0)
    return y


@lru_cache(maxsize=256)
def axis_taps(p: ResizedAxis, length: int, rule: ResizeRule) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Input positions, weights (None for the nearest neighbour), and the outputs that lie outside (None if none
    can).
    """
    # The nearest neighbour of a tie depends on rounding, which is that of ONNX Runtime here.
    at = _positions(p, length, rule.transform, np.float32 if rule.mode == "nearest" else np.float64)
    beyond = (at < 0) | (at > length - 1) if rule.transform == "tf_crop_and_resize" else None
    if rule.mode == "nearest":
        return np.clip(_nearest(at, rule.nearest), 0, length - 1), None, beyond
    return (*_taps(at, p, length, rule), beyond)


def _positions(p: ResizedAxis, length: int, mode: str, kind: type[np.floating]) -> np.ndarray:
    """The position in the input for each output, computed in a floating-point type; may be outside."""
    i = np.arange(p.size, dtype=kind)
    scale, half, last = kind(p.scale), kind(0.5), kind(length - 1)
    real_size = scale * kind(length)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and real_size != 1):
        return (i + half) / scale - half
    if mode == "pytorch_half_pixel":
        return np.full(p.size, -half)
    if mode == "half_pixel_symmetric":
        offset = kind(length) / kind(2) * (kind(1) - kind(p.size) / real_size)
        return offset + (i + half) / scale - half
    if mode == "align_corners":
        return i * last / (real_size - kind(1)) if real_size != 1 else np.zeros(p.size, kind)
    if mode == "asymmetric":
        return i / scale
    if mode == _NEAREST_OF_TENSORFLOW:
        return (i + half) / scale
    if mode == "tf_crop_and_resize":
        start, end = kind(p.roi[0]), kind(p.roi[1])
        if real_size == 1:
            return np.full(p.size, (start + end) * last * half)
        return start * last + i * (end - start) * last / (real_size - kind(1))
    raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")


def _nearest(at: np.ndarray, mode: str) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(at - 0.5).astype(np.int64)
    if mode == "round_prefer_ceil":
        return np.floor(at + 0.5).astype(np.int64)
    if mode == "floor":
        return np.floor(at).astype(np.int64)
    if mode == "ceil":
        return np.ceil(at).astype(np.int64)
    raise ValueError(f"unknown nearest_mode {mode!r}")


def _taps(at: np.ndarray, p: ResizedAxis, length: int, rule: ResizeRule) -> tuple[np.ndarray, np.ndarray]:
    """Input positions and weights for each output position, both (size, taps)."""
    cubic = rule.mode == "cubic"
    squeeze = min(p.scale, 1.0) if rule.antialias else 1.0
    reach = math.ceil((2 if cubic else 1) / squeeze)
    base = np.ceil(at) - 1  # the last position left of the point
    index = base[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(index - at[:, None]) * squeeze
    weights = _cubic(distance, rule.cubic) if cubic else np.maximum(1 - distance, 0)
    if rule.exclude_outside:
        weights = np.where((index >= 0) & (index < length), weights, 0)
    if rule.exclude_outside or squeeze != 1.0:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(index, 0, length - 1).astype(np.int64), weights


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel (Keys, 1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _interpolate(x: np.ndarray, axis: int, index: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sums of elements along an axis."""
    tail = (1,) * (x.ndim - 1 - axis)
    weights = weights.astype(x.dtype)
    if index.shape[1] > 4:
        matrix = np.zeros((index.shape[0], x.shape[axis]), x.dtype)
        np.add.at(matrix, (np.arange(index.shape[0])[:, None], index), weights)
        return np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    used = np.flatnonzero(weights.any(0))
    y = np.take(x, index[:, used[0]], axis) * weights[:, used[0]].reshape(-1, *tail)
    for k in used[1:]:
        y += np.take(x, index[:, k], axis) * weights[:, k].reshape(-1, *tail)
    return y


def _nearest_of_pixels(given: normal.Given) -> normal.Changes:
    """The element whose pixel holds the centre: floor(c), as TensorFlow says it, is c - 1/2 rounded up from a half."""
    named = {name: attr(given.attrs, name) for name in _NEAREST_BY_CENTRE}
    is_same = attr(given.attrs, "mode", "nearest") == "nearest" and named == _FLOOR_OF_TENSORFLOW
    return _NEAREST_BY_CENTRE if is_same else {}


def _role(attrs: Attributes, operands: Operands) -> Role | None:
    """The nearest element is one of the operand, unless it lies outside of it."""
    if attrs.get("mode", "nearest") != "nearest":
        return DATA
    return Role(data=(0,), moves=attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize")


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
_RESIZE_WORDS = attributes.words(
    mode=("nearest", "linear", "cubic"),
    coordinate_transformation_mode=(
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_crop_and_resize", _NEAREST_OF_TENSORFLOW),
    nearest_mode=("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"),
    keep_aspect_ratio_policy=("stretch", "not_larger", "not_smaller"))
declare("Resize", numpy={11: resize, 10: resize_first}, traits=PARAMETRIC, shaped_by=(1, 2, 3), macs=count.resize,
    need=need_resize, checks=(_RESIZE_WORDS, attributes.resize, movement.parameters(vectors=(1, 2, 3)),
            lengths.per_axis(2, "scales", may_be_empty=True), lengths.per_axis(3, "sizes", may_be_empty=True)),
    normal_form=(normal.axes, _nearest_of_pixels), sampling=sample.resize, quantization=Role(data=(0,), of_node=_role))
declare("Upsample", numpy={9: upsample, 7: upsample_by_attribute, 1: upsample_planes}, traits=PARAMETRIC,
    shaped_by=(1,), macs=count.resize, need=need_resize)
