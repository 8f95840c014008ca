"""Joining, cutting and padding along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import equal_axes, normal
from eqsat.ops.checks import attributes, lengths, movement
from eqsat.ops.families.shaping import ints
from eqsat.ops.magnitude import OF_ALL, OF_FIRST, Magnitude
from eqsat.ops.need_by_parameters import need_center_crop_pad, need_pad
from eqsat.ops.normal import Axes
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.quantization_role import MOVES_DATA, Operands, Role
from eqsat.ops.registry import declare
from eqsat.ops.sampling import indexing
from eqsat.ops.sampling import movement as sample
from eqsat.ops.selection import FROM_ALL, FROM_FIRST, Selection
from eqsat.ops.traits import MOVES, PARAMETRIC, SIZES, TAKES_SIZES
from eqsat.schema.slices import as_slice, taken
from eqsat.schema.types import Attributes


def concat(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """The operands one after the other along an axis."""
    return np.concatenate(xs, attrs["axis"])


def concat_default_axis(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """Before version 4 the axis defaults to 1."""
    return np.concatenate(xs, attrs.get("axis", 1))


def split(
    attrs: Attributes, x: np.ndarray, sizes: np.ndarray | None = None, *, outputs: int = 1
) -> tuple[np.ndarray, ...]:
    """Pieces along an axis, of given sizes or as equal as possible with the smallest last."""
    return _pieces(x, attrs["axis"], None if sizes is None else ints(sizes), attrs.get("num_outputs", outputs))


def split_by_attribute(attrs: Attributes, x: np.ndarray, *, outputs: int = 1) -> tuple[np.ndarray, ...]:
    """Before version 13 the sizes are an attribute."""
    return _pieces(x, attrs["axis"], attrs.get("split"), outputs)


def split_first(
    attrs: Attributes, x: np.ndarray, sizes: np.ndarray | None = None, *, outputs: int = 1
) -> tuple[np.ndarray, ...]:
    """In version 1 the sizes are an input or an attribute."""
    given = attrs.get("split") if sizes is None else ints(sizes)
    return _pieces(x, attrs.get("axis", 0), given, outputs)


def _pieces(x: np.ndarray, axis: int, sizes: Sequence[int] | None, count: int) -> tuple[np.ndarray, ...]:
    length = x.shape[axis]
    if not sizes:
        each = -(-length // count)
        sizes = [min(each, max(length - i * each, 0)) for i in range(count)]
    if sum(sizes) != length:
        raise ValueError(f"pieces of {list(sizes)} do not make up {length} elements")
    ends = np.cumsum(sizes)
    place = [slice(None)] * x.ndim
    pieces = []
    for size, end in zip(sizes, ends, strict=True):
        place[axis] = slice(end - size, end)
        pieces.append(np.asarray(x[tuple(place)], order="C"))
    return tuple(pieces)


def slice_array(
    attrs: Attributes,
    x: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> np.ndarray:
    """From start to end with a step along the given axes; indices beyond the array are clamped."""
    first, last = ints(starts), ints(ends)
    along = range(len(first)) if axes is None else ints(axes)
    return _slice(x, first, last, along, (1,) * len(first) if steps is None else ints(steps))


def slice_by_attributes(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 10 everything is an attribute, and steps are 1."""
    starts = attrs["starts"]
    return _slice(x, starts, attrs["ends"], attrs.get("axes") or range(len(starts)), (1,) * len(starts))


def _slice(
    x: np.ndarray, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> np.ndarray:
    place = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place[axis] = as_slice(taken(start, end, step, x.shape[axis]))
    return np.asarray(x[tuple(place)], order="C")


def pad(
    attrs: Attributes,
    x: np.ndarray,
    pads: np.ndarray,
    value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
) -> np.ndarray:
    """Padded, or cropped where pads are negative."""
    widths = ints(pads)
    along = range(x.ndim) if axes is None else [a % x.ndim for a in ints(axes)]
    fill = x.dtype.type(0) if value is None or not value.size else value.reshape(-1)[0]
    return _pad(x, widths, along, attrs["mode"], fill)


def pad_by_attributes(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 11 widths and value are attributes."""
    return _pad(x, attrs["pads"], range(x.ndim), attrs["mode"], attrs.get("value", 0.0))


_MODES: dict[str, Literal["reflect", "edge", "wrap"]] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _pad(x: np.ndarray, widths: Sequence[int], axes: Sequence[int], mode: str, fill: object) -> np.ndarray:
    count = len(axes)
    if len(widths) != 2 * count:
        raise ValueError(f"{2 * count} pads are required for {count} axes, not {len(widths)}")
    if x.dtype.kind == "O":
        raise Fallback
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        before[axis], after[axis] = widths[i], widths[i + count]
    if any(b < 0 or a < 0 for b, a in zip(before, after, strict=True)):
        crop = zip(before, after, x.shape, strict=True)
        x = x[tuple(slice(max(-b, 0), size - max(-a, 0)) for b, a, size in crop)]
        before, after = [max(b, 0) for b in before], [max(a, 0) for a in after]
    if mode == "constant":
        y = np.full([b + size + a for b, size, a in zip(before, x.shape, after, strict=True)], fill, x.dtype)
        y[tuple(slice(b, b + size) for b, size in zip(before, x.shape, strict=True))] = x
        return y
    return np.pad(x, list(zip(before, after, strict=True)), mode=_MODES[mode])


def center_crop_pad(attrs: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Cropped or padded around the centre to the given sizes."""
    axes = [a % x.ndim for a in attrs.get("axes", range(x.ndim))]
    sizes = list(x.shape)
    place, inner = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for axis, wanted in zip(axes, ints(shape), strict=True):
        have = x.shape[axis]
        sizes[axis] = wanted
        if wanted < have:
            start = (have - wanted) // 2
            place[axis] = slice(start, start + wanted)
        else:
            start = (wanted - have) // 2
            inner[axis] = slice(start, start + have)
    y = np.zeros(sizes, x.dtype)
    y[tuple(inner)] = x[tuple(place)]
    return y


def reverse_sequence(attrs: Attributes, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The first elements of each sequence in reverse order, the rest unchanged."""
    time, batch = attrs["time_axis"], attrs["batch_axis"]
    y = x.copy()
    for i, length in enumerate(ints(lengths)):
        place: list[slice | int] = [slice(None)] * x.ndim
        place[batch] = i
        target = [*place]
        target[time] = slice(0, length)
        source = [*place]
        source[time] = slice(length - 1, None, -1) if length else slice(0, 0)
        y[tuple(target)] = x[tuple(source)]
    return y


def _role_of_pad(attrs: Attributes, operands: Operands) -> Role | None:
    """Padding inserts a constant, which must be zero: only zero is certain to be representable."""
    if attrs.get("mode", "constant") != "constant" or not operands.has(2):
        return MOVES_DATA
    value = operands.constant(2)
    return MOVES_DATA if value is not None and not value.any() else None


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Concat", numpy={4: concat, 1: concat_default_axis}, traits=MOVES | SIZES, normal_form=(normal.axis(),),
    sampling=sample.concat, quantization=Role(selects=True), bounds=bounds.concatenated,
    together=equal_axes.concatenated, magnitude=OF_ALL, selects=FROM_ALL)
declare("Split", numpy={13: split, 2: split_by_attribute, 1: split_first}, traits=MOVES | SIZES | TAKES_SIZES,
    shaped_by=(1,), checks=(movement.parameters(vectors=(1,)), lengths.parts, movement.split),
    normal_form=(normal.axis(), normal.parts), sampling=sample.split,
    quantization=MOVES_DATA, bounds=bounds.part, together=equal_axes.parted, selects=FROM_FIRST)
declare("Slice", numpy={10: slice_array, 1: slice_by_attributes}, traits=MOVES | SIZES, shaped_by=(1, 2, 3, 4),
    checks=(attributes.listed_axes(3), attributes.slice_, movement.parameters(vectors=(1, 2, 3, 4))),
    axes=Axes(3, ordered=True), sampling=sample.slice_, quantization=MOVES_DATA, bounds=bounds.part, magnitude=OF_FIRST,
    selects=FROM_FIRST)
declare("Pad", numpy={11: pad, 2: pad_by_attributes, 1: None}, traits=MOVES | PARAMETRIC | SIZES | TAKES_SIZES,
    shaped_by=(1, 3), need=need_pad,
    checks=(attributes.words(mode=("constant", "reflect", "edge", "wrap")), attributes.listed_axes(3), attributes.pad,
            movement.parameters(vectors=(1, 3), numbers=(2,)), lengths.pads),
    axes=Axes(3, ordered=True), sampling=sample.pad, quantization=Role(data=(0,), moves=True, of_node=_role_of_pad),
    bounds=bounds.padded, magnitude=Magnitude((0, 2)), selects=Selection((0, 2), adds=True))
declare("CenterCropPad", numpy=center_crop_pad, traits=MOVES | PARAMETRIC, shaped_by=(1,), need=need_center_crop_pad,
    checks=(attributes.axes_attribute, movement.parameters(vectors=(1,)), lengths.per_axis(1, "shape")),
    normal_form=(normal.axes,))
declare("ReverseSequence", numpy=reverse_sequence, traits=MOVES, checks=(attributes.reverse_sequence,),
    sampling=indexing.reverse_sequence, selects=FROM_FIRST)
