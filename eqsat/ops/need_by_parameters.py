"""Needs of operators whose parameters determine the size of the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.ops.need import SLOW, GivenOperands, Need, broadcast_size, made, numbers, size_of
from eqsat.ops.windows import integers
from eqsat.schema.types import Attributes


def need_expand(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(broadcast_size([inputs[0].shape, numbers(inputs[1])]))


def need_tile(attrs: Attributes, inputs: GivenOperands) -> Need:
    x = inputs[0]
    if len(inputs) > 2:  # before version 6: a count and an axis
        return made(size_of(x) * max(numbers(inputs[1])[0], 0))
    return made(size_of(x) * math.prod(max(n, 0) for n in numbers(inputs[1])))


def need_constant_of_shape(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(math.prod(max(d, 0) for d in numbers(inputs[0])))


def need_range(attrs: Attributes, inputs: GivenOperands) -> Need:
    start, limit, delta = (np.asarray(x).reshape(-1)[0].item() for x in inputs[:3])
    count = (limit - start) / delta if delta else math.inf
    return made(max(math.ceil(count), 0) if math.isfinite(count) else 1 << 62)


def need_pad(attrs: Attributes, inputs: GivenOperands) -> Need:
    shape = list(inputs[0].shape)
    given = attrs.get("pads") or attrs.get("paddings")
    pads = list(given) if given else numbers(inputs[1])
    axes = numbers(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else list(range(len(shape)))
    for k, axis in enumerate(axes):
        shape[axis] += pads[k] + pads[k + len(axes)]
    return made(math.prod(max(d, 0) for d in shape))


def need_resize(attrs: Attributes, inputs: GivenOperands) -> Need:
    shape = list(inputs[0].shape)
    axes = [a % len(shape) for a in attrs.get("axes") or range(len(shape))]
    sizes = inputs[3] if len(inputs) > 3 else None
    scales = inputs[2] if len(inputs) > 2 else None
    factors: Sequence[float] = attrs.get("scales") or ()
    if sizes is not None and size_of(sizes):
        wanted = numbers(sizes)
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [w / shape[a] for w, a in zip(wanted, axes, strict=True)]
            wanted = [math.ceil(max(ratios) * shape[a]) for a in axes]
    else:
        if scales is None or not size_of(scales):
            scales = inputs[1] if len(inputs) == 2 else scales
        factors = factors or [float(f) for f in np.asarray(scales).reshape(-1).tolist()]
        if not all(math.isfinite(f) for f in factors):
            return made(1 << 62)
        wanted = [math.ceil(f * shape[a]) for f, a in zip(factors, axes, strict=True)]
    for axis, size in zip(axes, wanted, strict=True):
        shape[axis] = max(size, 0)
    # One axis after the other; antialiasing has a matrix for each.
    matrices = sum(n * m for n, m in zip(inputs[0].shape, shape, strict=True)) if attrs.get("antialias") else 0
    return made(2 * math.prod(shape) + matrices)


def need_one_hot(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(size_of(inputs[0]) * max(numbers(inputs[1])[0], 0))


def need_of_shape_attribute(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(math.prod(max(d, 0) for d in attrs.get("shape") or ()))


def need_multinomial(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(size_of(inputs[0]) + inputs[0].shape[0] * max(attrs.get("sample_size", 1), 0))


def need_window_function(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(max(numbers(inputs[0])[0], 0))


def need_mel_weights(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(max(numbers(inputs[0])[0], 0) * max(numbers(inputs[1])[0] // 2 + 1, 0))


def need_affine_grid(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(4 * math.prod(max(d, 0) for d in numbers(inputs[1])))


def need_center_crop_pad(attrs: Attributes, inputs: GivenOperands) -> Need:
    shape = list(inputs[0].shape)
    axes = attrs.get("axes") or range(len(shape))
    for axis, size in zip(axes, numbers(inputs[1]), strict=False):
        shape[axis] = max(size, 0)
    return made(math.prod(shape))


def need_col2im(attrs: Attributes, inputs: GivenOperands) -> Need:
    x, image = inputs[0], numbers(inputs[1])
    pads = sum(abs(p) for p in attrs.get("pads") or ())
    return made(size_of(x) + math.prod(x.shape[:2]) * math.prod(max(d, 0) + pads for d in image))


def need_fourier(attrs: Attributes, inputs: GivenOperands) -> Need:
    x = inputs[0]
    length = numbers(inputs[1])[0] if len(inputs) > 1 and inputs[1] is not None else 0
    axis = numbers(inputs[2])[0] if len(inputs) > 2 and inputs[2] is not None else attrs.get("axis", 1)
    size = 2 * size_of(x)
    if length > 0 and x.shape[axis]:
        size = size // x.shape[axis] * length + 2 * size_of(x)
    return Need(2 * size, SLOW * 64 * size)


def need_short_fourier(attrs: Attributes, inputs: GivenOperands) -> Need:
    signal, step = inputs[0], max(numbers(inputs[1])[0], 1)
    window = inputs[2] if len(inputs) > 2 else None
    length = inputs[3] if len(inputs) > 3 else None
    frame = size_of(window) if window is not None else numbers(length)[0]
    size = 2 * size_of(signal) * max(frame, 1) // step + size_of(signal)
    return Need(size, SLOW * 64 * size)


def need_roi_align(attrs: Attributes, inputs: GivenOperands) -> Need:
    size = inputs[1].shape[0] * inputs[0].shape[1]
    size *= max(attrs.get("output_height", 1), 1) * max(attrs.get("output_width", 1), 1)
    return Need(size, SLOW * 4 * size * max(attrs.get("sampling_ratio", 0), 1) ** 2)


def need_max_roi_pool(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(inputs[1].shape[0] * inputs[0].shape[1] * math.prod(attrs.get("pooled_shape") or ()))


def need_support_vectors(attrs: Attributes, inputs: GivenOperands) -> Need:
    rows = inputs[0].shape[0] if len(inputs[0].shape) > 1 else 1
    return made(rows * len(attrs.get("support_vectors") or ()))


def need_trees(attrs: Attributes, inputs: GivenOperands) -> Need:
    """Counts as if each row met all nodes: to count the trees, long lists would have to be read."""
    x = inputs[0]
    rows = x.shape[0] if len(x.shape) > 1 else 1
    labels = attrs.get("classlabels_int64s") or attrs.get("classlabels_strings") or ()
    return Need(
        rows * max(attrs.get("n_targets") or 0, len(labels), 1), rows * len(attrs.get("nodes_featureids") or ())
    )


def need_max_unpool(attrs: Attributes, inputs: GivenOperands) -> Need:
    shape = inputs[0].shape
    size = math.prod(shape[:2])
    strides, kernel = integers(attrs, "strides", (1,) * (len(shape) - 2)), integers(attrs, "kernel_shape", ())
    for d, s, k in zip(shape[2:], strides, kernel, strict=True):
        size *= max((d - 1) * s + k, 0)
    if len(inputs) > 2 and inputs[2] is not None:
        size += math.prod(max(d, 0) for d in numbers(inputs[2]))
    return made(size)


def need_split_to_sequence(attrs: Attributes, inputs: GivenOperands) -> Need:
    x = inputs[0]
    pieces = max(x.shape[attrs.get("axis", 0)], 1) if len(x.shape) else 1
    if len(inputs) > 1 and inputs[1] is not None and not inputs[1].shape:
        pieces = -(-pieces // max(numbers(inputs[1])[0], 1))
    return made(size_of(x) + 16 * pieces)


def need_string_concat(attrs: Attributes, inputs: GivenOperands) -> Need:
    """Counts characters instead of elements: even a few strings may grow."""
    size = broadcast_size([x.shape for x in inputs])
    return made(size * (8 + sum(_longest(x) for x in inputs) // 8))


def _longest(x: Any) -> int:
    return max((len(s) for s in np.asarray(x).reshape(-1).tolist()), default=0) if size_of(x) else 0
