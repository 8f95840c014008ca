"""Reading and writing at indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import counters as count
from eqsat.ops import equal_axes, normal
from eqsat.ops.checks import attributes, lengths, movement
from eqsat.ops.families.shaping import ints
from eqsat.ops.magnitude import OF_FIRST
from eqsat.ops.need_by_parameters import need_one_hot
from eqsat.ops.need_by_shapes import need_gather, need_gather_nd, need_non_zero
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.quantization_role import MOVES_DATA
from eqsat.ops.registry import declare
from eqsat.ops.sampling import indexing
from eqsat.ops.sampling import movement as sample
from eqsat.ops.selection import FROM_FIRST, Selection
from eqsat.ops.traits import INDEXES, LOOKS_UP, MOVES, PARAMETRIC, SELECTS, SIZES, TAKES_SIZES
from eqsat.schema.types import Attributes


def _checked(indices: np.ndarray, length: int) -> np.ndarray:
    """Indices with negative ones counted from the end.

    Raises:
        IndexError: One is out of range.
    """
    if indices.size and (indices.min() < -length or indices.max() >= length):
        given = f"indices must be in [{-length}, {length - 1}]" if length else "an axis without elements has no indices"
        raise IndexError(f"{given}; got {indices.min()} .. {indices.max()}")
    return np.where(indices < 0, indices + length, indices)


def gather(attrs: Attributes, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Slices along an axis."""
    axis = attrs["axis"]
    return np.take(x, _checked(indices, x.shape[axis]), axis)


def gather_elements(attrs: Attributes, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """One element for each index, at the index's own place in the other axes."""
    axis = attrs["axis"]
    found = _checked(indices, x.shape[axis])
    return x[_element_places(found, axis % x.ndim)]


def _element_places(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    grid = np.ogrid[tuple(slice(n) for n in indices.shape)]
    return tuple(indices if i == axis else g for i, g in enumerate(grid))


def gather_nd(attrs: Attributes, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Slices at index tuples, separately for each batch."""
    batch = attrs.get("batch_dims", 0)
    depth = indices.shape[-1]
    grid = np.ogrid[tuple(slice(n) for n in indices.shape[:batch])] if batch else ()
    extra = indices.ndim - 1 - batch
    lead = tuple(g.reshape(*g.shape, *(1,) * extra) for g in grid)
    tail = tuple(_checked(indices[..., k], x.shape[batch + k]) for k in range(depth))
    return x[lead + tail] if lead or tail else np.broadcast_to(x, (*indices.shape[:-1], *x.shape)).copy()


_UPDATES: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _write(y: np.ndarray, place: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> None:
    if reduction == "none":
        y[place] = updates
    elif y.dtype.kind in "V" or y.dtype.kind == "O":
        raise Fallback
    else:
        combine: Callable[..., Any] = _UPDATES[reduction].at
        combine(y, place, updates)


def scatter_elements(attrs: Attributes, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """A copy with one element replaced, or combined, for each index."""
    axis = attrs["axis"]
    y = x.copy()
    place = _element_places(_checked(indices, x.shape[axis]), axis % x.ndim)
    _write(y, place, updates, attrs.get("reduction", "none"))
    return y


def scatter_nd(attrs: Attributes, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """A copy with slices at index tuples replaced or combined."""
    y = x.copy()
    place = tuple(_checked(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))
    if not place:
        raise Fallback
    _write(y, place, updates, attrs.get("reduction", "none"))
    return y


def one_hot(attrs: Attributes, indices: np.ndarray, depth: np.ndarray, values: np.ndarray) -> np.ndarray:
    """``values[1]`` where the index is the class, else ``values[0]``; indices out of range match no class."""
    count = int(depth.reshape(-1)[0])
    axis = attrs["axis"] + (indices.ndim + 1 if attrs["axis"] < 0 else 0)
    index = indices.astype(np.int64)
    index = np.where((index >= -count) & (index < 0), index + count, index)
    classes = np.arange(count).reshape(*(1,) * axis, count, *(1,) * (indices.ndim - axis))
    return np.where(np.expand_dims(index, axis) == classes, values[1], values[0]).astype(values.dtype)


def compress(attrs: Attributes, x: np.ndarray, condition: np.ndarray) -> np.ndarray:
    """The slices or elements where the condition is true."""
    return np.compress(condition, x, attrs.get("axis"))


def non_zero(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Indices of the elements that are not zero, one column each."""
    return np.array(np.nonzero(x), np.int64)


def top_k(attrs: Attributes, x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The k largest or smallest elements along an axis, in order, and their indices; the first of equals wins."""
    return _top(x, ints(k)[0], attrs["axis"], bool(attrs.get("largest", 1)))


def top_k_by_attribute(attrs: Attributes, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Before version 10 the count is an attribute."""
    return _top(x, attrs["k"], attrs["axis"], True)


def _top(x: np.ndarray, count: int, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    if x.dtype.kind == "u" and largest:
        key = np.iinfo(x.dtype).max - x
    elif x.dtype.kind == "i" and largest:
        key = -1 - x  # the negative that cannot overflow
    elif largest:
        key = -x
    else:
        key = x
    if count > x.shape[axis]:
        raise ValueError(f"k must be at most the {x.shape[axis]} elements along the axis, not {count}")
    order = np.argsort(key, axis, kind="stable")
    index = np.take(order, np.arange(count), axis)
    return np.take_along_axis(x, index, axis), index.astype(np.int64)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Gather", numpy=gather, traits=MOVES | SIZES | INDEXES | LOOKS_UP, need=need_gather, checks=(movement.gather,),
    normal_form=(normal.axis(),), sampling=sample.gather, quantization=MOVES_DATA, bounds=bounds.part,
    magnitude=OF_FIRST, selects=FROM_FIRST)
declare("GatherElements", numpy=gather_elements, traits=MOVES | INDEXES | LOOKS_UP | SIZES,
    checks=(attributes.indices_along, movement.gather_elements), normal_form=(normal.axis(),),
    sampling=indexing.gather_elements, quantization=MOVES_DATA, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("GatherND", numpy=gather_nd, traits=MOVES | INDEXES | SIZES, need=need_gather_nd,
    checks=(attributes.indices_nd, movement.gather_nd), sampling=indexing.gather_nd, quantization=MOVES_DATA,
    magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Scatter", numpy=scatter_elements, traits=INDEXES, together=equal_axes.updates)
declare("ScatterElements", numpy=scatter_elements, traits=INDEXES | SIZES, macs=count.scatter,
    checks=(attributes.scatter_reduction, attributes.indices_along, movement.scatter_elements),
    normal_form=(normal.axis(),), sampling=indexing.scatter_elements,
    together=equal_axes.updates, selects=Selection((0, 2), adds=True))
declare("ScatterND", numpy=scatter_nd, traits=INDEXES | SIZES, macs=count.scatter,
    checks=(attributes.scatter_reduction, attributes.indices_nd, movement.scatter_nd), sampling=sample.scatter_nd,
    together=equal_axes.updates, selects=Selection((0, 2), adds=True))
declare("OneHot", numpy=one_hot, traits=MOVES | PARAMETRIC | INDEXES | TAKES_SIZES, shaped_by=(1,), need=need_one_hot,
    normal_form=(normal.axis(more=1),), sampling=indexing.one_hot)
declare("Compress", numpy=compress, traits=MOVES | SIZES, shaped_by=(1,), checks=(attributes.axis,),
    normal_form=(normal.axis(),), sampling=indexing.compress, selects=FROM_FIRST)
declare("NonZero", numpy=non_zero, shaped_by=(0,), macs=count.input_elements, need=need_non_zero)
declare("TopK", numpy={10: top_k, 1: top_k_by_attribute}, traits=SELECTS | TAKES_SIZES, shaped_by=(1,),
    macs=count.input_elements, checks=(attributes.axis, lengths.one_number(1, "k")), normal_form=(normal.axis(),),
    sampling=indexing.top_k, selects=FROM_FIRST)
declare("TensorScatter", traits=MOVES, sampling=indexing.cache_update)
declare("Unique", shaped_by=(0,), macs=count.input_elements, normal_form=(normal.axis(),))
