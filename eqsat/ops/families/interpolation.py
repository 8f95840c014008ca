"""Elements of images at places between elements: grids, and convolutions whose windows have offsets.

Coordinates are computed in float32, or in float64 where an operand has it, in the order of the generated C.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import reduce

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import equal_axes
from eqsat.ops.checks import attributes, lengths
from eqsat.ops.definition import BodyWriter, number
from eqsat.ops.need_by_parameters import need_affine_grid
from eqsat.ops.need_by_shapes import need_grid_sample
from eqsat.ops.normal_windows import window
from eqsat.ops.numpy_kernel import in_single
from eqsat.ops.registry import declare
from eqsat.ops.sampling import image_regions as sample
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.body import Body
from eqsat.schema.types import Attributes, AttrValue, TensorTypes

_FAR = 1e9
"""Coordinates beyond are this far away, so that they are integers."""
_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names that modes had at first."""
_CUBIC = -0.75
"""The parameter of cubic convolution, as in ONNX Runtime."""


@in_single
def grid_sample(attrs: Attributes, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """``x`` (N, C, axes) at the places of ``grid`` (N, places, one number an axis, the last axis first)."""
    attrs = {**attrs, "mode": _MODES.get(attrs["mode"], attrs["mode"])}
    kind = np.result_type(x.dtype, grid.dtype)
    kind = kind if kind == np.float64 else np.dtype(np.float32)
    given, axes = grid.astype(kind, copy=False), x.ndim - 2
    taps = [
        _taps(attrs, _coordinates(attrs, given[..., axes - 1 - axis], x.shape[2 + axis]), x.shape[2 + axis])
        for axis in range(axes)
    ]
    source = np.moveaxis(x, 1, -1)
    image = np.arange(len(x)).reshape(-1, *(1,) * axes)
    total = np.zeros((*grid.shape[:-1], x.shape[1]), x.dtype)
    for chosen in itertools.product(*taps):
        places, weights, inside = zip(*chosen, strict=True)
        weight = reduce(np.multiply, weights).astype(x.dtype)
        value = source[(image, *places)] * weight[..., None]
        total += np.where(np.logical_and.reduce(inside)[..., None], value, x.dtype.type(0))
    return np.moveaxis(total, -1, 1)


def _coordinates(attrs: Attributes, given: np.ndarray, size: int) -> np.ndarray:
    """Positions along an axis from coordinates between -1 and 1.

    Cubic interpolation keeps those beyond the border, as PyTorch and ONNX Runtime do: its neighbours are at the border.
    """
    kind = given.dtype.type
    p = (given + 1) / 2 * kind(size - 1) if attrs["align_corners"] else ((given + 1) * kind(size) - 1) / 2
    p = np.where(p > -_FAR, np.where(p < _FAR, p, kind(_FAR)), kind(-_FAR))
    p = np.rint(p) if attrs["mode"] == "nearest" else p
    if attrs["padding_mode"] == "border" and attrs["mode"] != "cubic":
        low, high = _ends(attrs, size, kind)
        return np.where((p < low) | (p > high), np.clip(p, 0, size - 1), p)
    return _reflected(attrs, p, size) if attrs["padding_mode"] == "reflection" else p


def _ends(attrs: Attributes, size: int, kind: type) -> tuple[np.floating, np.floating]:
    return (kind(0), kind(size - 1)) if attrs["align_corners"] else (kind(-0.5), kind(size - 0.5))


def _reflected(attrs: Attributes, p: np.ndarray, size: int) -> np.ndarray:
    """Positions that go back and forth between the ends."""
    kind = p.dtype.type
    low, high = _ends(attrs, size, kind)
    span = high - low
    beyond = np.where(p < low, low - p, p - high)
    turns = np.trunc(beyond / span) if span > 0 else np.zeros_like(p)
    rest = beyond - turns * span if span > 0 else np.zeros_like(p)
    from_low = (p < low) == (np.remainder(turns, 2) == 0)
    return np.where((p < low) | (p > high), np.where(from_low, low + rest, high - rest), p)


def _taps(attrs: Attributes, p: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each neighbour along an axis: its place, its weight, and whether it is there."""
    kind, first = p.dtype.type, np.floor(p)
    f = p - first
    if attrs["mode"] == "linear":
        before, weights = 0, [1 - f, f]
    elif attrs["mode"] == "cubic":
        s, g, h, k = kind(_CUBIC), f + 1, 1 - f, 2 - f
        before = 1
        weights = [
            ((s * g - 5 * s) * g + 8 * s) * g - 4 * s,
            ((s + 2) * f - (s + 3)) * f * f + 1,
            ((s + 2) * h - (s + 3)) * h * h + 1,
            ((s * k - 5 * s) * k + 8 * s) * k - 4 * s,
        ]
    else:
        before, weights = 0, [np.ones_like(p)]
    found = []
    for tap, weight in enumerate(weights):
        v = first + kind(tap - before)
        if attrs["padding_mode"] == "reflection":
            v = np.maximum(_reflected(attrs, v, size), 0)
        place = np.clip(np.nan_to_num(v), 0, size - 1).astype(np.int64)
        inside = (v >= 0) & (v < size) if attrs["padding_mode"] == "zeros" else np.ones(p.shape, np.bool_)
        found.append((place, weight, inside))
    return found


@in_single
def deformable_convolution(
    attrs: Attributes,
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> np.ndarray:
    """A convolution of two axes whose taps are next to their places; pixels outside of the image are 0.

    Args:
        attrs: Pads as numbers.
        x: N, C, H, W.
        w: M, C / groups, taps.
        offset: N, offset groups * taps * 2, places of the result.
        b: M.
        mask: N, offset groups * taps, places of the result.
    """
    images, channels, height, width = x.shape
    taps, parts = w.shape[2] * w.shape[3], attrs["offset_group"]
    rows, columns = offset.shape[2:]
    shape = (images, parts, w.shape[2], w.shape[3], rows, columns)
    moved = offset.reshape(images, parts, w.shape[2], w.shape[3], 2, rows, columns)
    kind = x.dtype.type
    pads, strides, dilations = (attrs.get(n) or (k,) * 4 for n, k in (("pads", 0), ("strides", 1), ("dilations", 1)))
    places = []
    for axis, count_of, size in ((0, w.shape[2], rows), (1, w.shape[3], columns)):
        at = np.arange(size) * strides[axis] - pads[axis]
        tap = np.arange(count_of) * dilations[axis]
        tap, at = (tap[:, None, None, None], at[:, None]) if axis == 0 else (tap[:, None, None], at)
        places.append((tap + at).astype(x.dtype) + moved[:, :, :, :, axis])
    v, u = (np.nan_to_num(p, nan=-_FAR) for p in places)
    inside = (v > -1) & (v < height) & (u > -1) & (u < width)
    v0, u0 = np.floor(v), np.floor(u)
    low, late = v - v0, u - u0
    source = x.reshape(images, parts, channels // parts, height, width)
    image, part = np.arange(images)[:, None, None, None, None, None], np.arange(parts)[:, None, None, None, None]
    values = np.zeros((*shape, channels // parts), x.dtype)
    for row, of_row in ((v0, 1 - low), (v0 + 1, low)):
        for column, of_column in ((u0, 1 - late), (u0 + 1, late)):
            is_there = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            i, j = (np.clip(p, 0, n - 1).astype(np.int64) for p, n in ((row, height), (column, width)))
            value = np.moveaxis(source, 2, -1)[image, part, i, j]
            weight = (of_row * of_column)[..., None]
            values += np.where(is_there[..., None], weight * value, kind(0))
    if mask is not None:
        values *= mask.reshape(shape)[..., None]
    groups = attrs["group"]
    # Images, groups, channels of a group and taps, places.
    columns_of = np.moveaxis(values, -1, 2).reshape(images, groups, channels // groups * taps, rows * columns)
    filters = w.reshape(groups, len(w) // groups, -1)
    y = (filters @ columns_of).reshape(images, len(w), rows, columns)
    return y if b is None else y + b[:, None, None]


def affine_grid(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Places of an image after an affine map of coordinates between -1 and 1; one matrix for each image."""
    axes = number(types, 0, 1)
    if axes not in (2, 3):
        return None
    w = BodyWriter(types)
    float_type = int(w.dtype)
    parts = [w.unsqueezed(w.op("Gather", 0, w.constant(k), axis=2), *range(1, axes + 1)) for k in range(axes + 1)]
    total = parts[axes]
    for axis in reversed(range(axes)):
        size = w.op("Slice", 1, w.constant([2 + axis]), w.constant([3 + axis]))
        along, length = (w.op("Cast", x, to=float_type) for x in (w.counted(size), size))
        one, two = (w.constant(k, w.dtype) for k in (1, 2))
        if attrs["align_corners"]:
            # For a single position, ONNX Runtime and the reference take the first end.
            steps = w.op("Max", w.op("Sub", length, one), one)
            at = w.op("Sub", w.op("Div", w.op("Mul", along, two), steps), one)
        else:
            at = w.op("Sub", w.op("Div", w.op("Add", w.op("Mul", along, two), one), length), one)
        at = w.unsqueezed(at, *(k for k in range(axes + 2) if k != axis + 1))
        total = w.op("Add", total, w.op("Mul", parts[axes - 1 - axis], at))
    return w.body(total)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("AffineGrid", definition=affine_grid, traits=PARAMETRIC, shaped_by=(1,), need=need_affine_grid,
    sampling=sample.affine_grid, checks=(lengths.affine_grid,))
declare("GridSample", numpy={16: grid_sample}, macs=count.grid_sample, need=need_grid_sample,
    sampling=sample.grid_sample,
    checks=(attributes.words(mode=("linear", "nearest", "cubic"), padding_mode=("zeros", "border", "reflection")),))
declare("DeformConv", numpy=deformable_convolution, macs=count.deformable_convolution, normal_form=(window(1),),
    checks=(attributes.auto_pad, lengths.deformable_convolution), sampling=sample.deformable_convolution, bias=3,
    together=equal_axes.convolution(bias=3))
