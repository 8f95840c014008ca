"""Pooling: maxima and sums over windows, one axis after the other, as windows are boxes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import normal
from eqsat.ops.checks import attributes, layers, lengths
from eqsat.ops.mean_or_zero import mean
from eqsat.ops.need_by_parameters import need_max_unpool
from eqsat.ops.need_by_shapes import need_pooling
from eqsat.ops.normal_windows import window
from eqsat.ops.numpy_kernel import in_single
from eqsat.ops.quantization_role import DATA, MOVES_DATA
from eqsat.ops.registry import declare
from eqsat.ops.sampling import image_regions
from eqsat.ops.sampling import windows as sample
from eqsat.ops.traits import EXACT, LINEAR, MOVES, PARAMETRIC, SELECTS
from eqsat.ops.windows import Windows, integers, padded, taps, window_view, windows
from eqsat.schema.types import Attributes

_Ufunc = Callable[..., np.ndarray]


def pool_windows(attrs: Attributes, x: np.ndarray) -> Windows:
    """The windows of a pooling operator.

    Raises:
        ValueError: The kernel's rank is not the input's.
    """
    kernel_shape = integers(attrs, "kernel_shape", ())
    if x.ndim < 3 or len(kernel_shape) != x.ndim - 2:
        raise ValueError(f"kernel_shape {list(kernel_shape)} does not fit an input of rank {x.ndim}")
    return windows(attrs, x.shape[2:], kernel_shape, ceil=bool(attrs.get("ceil_mode", 0)))


def fold(x: np.ndarray, at: Windows, combine: _Ufunc) -> np.ndarray:
    """Combine the elements of each window of a padded array, axis by axis."""
    rank = len(at.kernel)
    # The last axis first: it shrinks the array most cheaply, as its elements are adjacent.
    for axis in reversed(range(rank)):
        places = [(..., part, *(slice(None),) * (rank - 1 - axis)) for part in taps(at, axis)]
        if len(places) == 1:
            x = x[places[0]]
            continue
        result = combine(x[places[0]], x[places[1]])
        for place in places[2:]:
            combine(result, x[place], out=result)
        x = result
    return x


def max_pool(attrs: Attributes, x: np.ndarray, *, outputs: int = 1) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Maximum of each window, and where it is among the elements of the input."""
    at = pool_windows(attrs, x)
    full = padded(x, at, lowest(x.dtype))
    if outputs == 1:
        return np.asarray(fold(full, at, np.maximum), order="C")
    rank = len(at.kernel)
    flat = window_view(full, at).reshape(*x.shape[:2], math.prod(at.kernel), *at.out)
    best = flat.argmax(2)
    return np.asarray(fold(full, at, np.maximum), order="C"), _indices(attrs, x, at, best, rank)


def _indices(attrs: Attributes, x: np.ndarray, at: Windows, best: np.ndarray, rank: int) -> np.ndarray:
    """Flat index into the input of the chosen element of each window."""
    spatial = x.shape[2:]
    columns_first = bool(attrs.get("storage_order", 0))
    steps = [math.prod(spatial[:i] if columns_first else spatial[i + 1 :]) for i in range(rank)]
    # The contributions of the windows' positions, of the planes and of each tap are known in advance.
    base = (np.arange(x.shape[0] * x.shape[1]) * math.prod(spatial)).reshape(*x.shape[:2], *(1,) * rank)
    taps_at = np.zeros(1, np.int64)
    for i in range(rank):
        first = (np.arange(at.out[i]) * at.strides[i] - at.begin[i]) * steps[i]
        base = base + first.reshape(-1, *(1,) * (rank - 1 - i))
        taps_at = (taps_at[:, None] + np.arange(at.kernel[i]) * at.dilations[i] * steps[i]).ravel()
    return base + taps_at[best]


def lowest(dtype: np.dtype) -> float | int:
    """The identity of max."""
    return -math.inf if dtype.kind not in "iu" else int(np.iinfo(dtype).min)


@in_single
def average_pool(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Mean of each window, over the elements inside the input or also over those in the padding."""
    at = pool_windows(attrs, x)
    sums = fold(padded(x, at), at, np.add)
    return sums / window_counts(at, x.shape[2:], bool(attrs.get("count_include_pad", 0))).astype(x.dtype)


def window_counts(at: Windows, spatial: tuple[int, ...], with_padding: bool) -> np.ndarray:
    """How many elements each window counts; those beyond the padding, which ``ceil_mode`` reaches, never count."""
    counts = np.ones((), np.int64)
    for i, size in enumerate(spatial):
        low, high = (-at.begin[i], size + at.end[i]) if with_padding else (0, size)
        positions = (
            np.arange(at.out[i])[:, None] * at.strides[i]
            - at.begin[i]
            + np.arange(at.kernel[i])[None, :] * at.dilations[i]
        )
        inside = ((positions >= low) & (positions < high)).sum(1)
        counts = counts[..., None] * inside
    return counts


@in_single
def lp_pool(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """p-norm of each window."""
    at = pool_windows(attrs, x)
    p = attrs.get("p", 2)
    return _root(fold(padded(_power(x, p), at), at, np.add), p)


@in_single
def global_average_pool(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Mean over all spatial axes."""
    return mean(x, tuple(range(2, x.ndim)), True)


def global_max_pool(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Maximum over all spatial axes."""
    return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


@in_single
def global_lp_pool(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """p-norm over all spatial axes."""
    p = attrs.get("p", 2)
    return _root(_power(x, p).sum(axis=tuple(range(2, x.ndim)), keepdims=True), p)


def _power(x: np.ndarray, p: float) -> np.ndarray:
    size = np.abs(x)
    return size if p == 1 else size * size if p == 2 else size ** np.asarray(p, x.dtype)


def _root(x: np.ndarray, p: float) -> np.ndarray:
    return x if p == 1 else np.sqrt(x) if p == 2 else x ** np.asarray(1.0 / float(p), x.dtype)


def max_unpool(attrs: Attributes, x: np.ndarray, where: np.ndarray, shape: np.ndarray | None = None) -> np.ndarray:
    """Puts each value at its index, zeros elsewhere.

    Indices refer to the operand of the pooling; ``output_shape`` may be larger, with the surplus at the end.
    """
    rank = x.ndim - 2
    kernel_shape = integers(attrs, "kernel_shape", ())
    strides = integers(attrs, "strides", (1,) * rank)
    pads = integers(attrs, "pads", (0,) * (2 * rank))
    natural = [(x.shape[2 + i] - 1) * strides[i] + kernel_shape[i] - pads[i] - pads[i + rank] for i in range(rank)]
    inner = np.zeros((*x.shape[:2], *natural), x.dtype)
    inner.reshape(-1)[where.ravel()] = x.ravel()
    if shape is None or tuple(shape) == inner.shape:
        return inner
    result = np.zeros(tuple(int(d) for d in shape), x.dtype)
    common = tuple(slice(0, min(a, b)) for a, b in zip(inner.shape, result.shape, strict=True))
    result[common] = inner[common]
    return result


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("MaxPool", numpy=max_pool, traits=SELECTS | PARAMETRIC, macs=count.pooling, need=need_pooling,
    checks=(attributes.auto_pad, layers.pool), normal_form=(window(), normal.storage_order),
    sampling=sample.pool, quantization=MOVES_DATA)
declare("AveragePool", numpy=average_pool, traits=PARAMETRIC | LINEAR, macs=count.pooling, need=need_pooling,
    checks=(attributes.auto_pad, layers.pool), normal_form=(window(),), sampling=sample.pool,
    quantization=DATA)
declare("LpPool", numpy=lp_pool, traits=PARAMETRIC, macs=count.pooling, need=need_pooling,
    checks=(attributes.auto_pad, attributes.positive("p"), layers.pool), normal_form=(window(),),
    sampling=sample.pool)
declare("GlobalAveragePool", numpy=global_average_pool, traits=LINEAR, macs=count.input_elements,
    sampling=sample.global_pool, quantization=DATA)
declare("GlobalMaxPool", numpy=global_max_pool, traits=EXACT, macs=count.input_elements, sampling=sample.global_pool,
    quantization=MOVES_DATA)
declare("GlobalLpPool", numpy=global_lp_pool, macs=count.input_elements, sampling=sample.global_pool)
declare("MaxUnpool", numpy=max_unpool, traits=MOVES | PARAMETRIC, shaped_by=(2,), need=need_max_unpool,
    checks=(attributes.positive("kernel_shape", "strides"), lengths.max_unpool), sampling=image_regions.max_unpool)
