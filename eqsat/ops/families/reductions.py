"""Reductions, arg-reductions, cumulative sums and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import counters as count
from eqsat.ops import normal
from eqsat.ops.checks import attributes, movement
from eqsat.ops.definition import BodyWriter, rank
from eqsat.ops.families.pooling import lowest
from eqsat.ops.magnitude import OF_FIRST, ORDINARY
from eqsat.ops.mean_or_zero import mean
from eqsat.ops.normal import Axes
from eqsat.ops.numpy_kernel import NumpyFunction, in_single
from eqsat.ops.quantization_role import DATA, MOVES_DATA, Role
from eqsat.ops.registry import Facets, declare
from eqsat.ops.sampling import reductions as sample
from eqsat.ops.selection import FROM_FIRST
from eqsat.ops.traits import (
    BENDS,
    ELEMENTARY,
    LINEAR,
    OWN_ATTRIBUTES,
    POLES,
    POSITIVE,
    REDUCTION,
    SELECTS,
    SIZES,
    TOTAL,
)
from eqsat.ops.typed_like import Like
from eqsat.schema.body import Body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes, AttrValue, TensorTypes

_Reduction = Callable[[np.ndarray, tuple[int, ...], bool], np.ndarray]


def _reduction(function: _Reduction, *, identity: bool = True, axes_input: int = 18) -> dict[int, NumpyFunction]:
    """Kernels of a reduction.

    Args:
        function: Reduces over axes.
        identity: Whether reducing over no axis changes nothing.
        axes_input: Version since which ``axes`` is an input and no attribute.
    """

    def reduce(attrs: Attributes, x: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
        if not axes:
            if attrs.get("noop_with_empty_axes"):
                return x if identity else function(x, (), True)
            axes = tuple(range(x.ndim))
        return function(x, tuple(a + x.ndim if a < 0 else a for a in axes), bool(attrs["keepdims"]))

    @in_single
    def by_input(attrs: Attributes, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        return reduce(attrs, x, None if axes is None else tuple(axes.reshape(-1).tolist()))

    @in_single
    def by_attribute(attrs: Attributes, x: np.ndarray) -> np.ndarray:
        return reduce(attrs, x, attrs.get("axes"))

    return {axes_input: by_input, 1: by_attribute}


def _sum(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _mean(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    if x.dtype.kind == "f":
        return mean(x, axes, keep, x.dtype)
    return mean(x, axes, keep).astype(x.dtype)


def _max(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    if x.dtype == np.bool_:
        return np.any(x, axis=axes, keepdims=keep)
    if not x.size:
        return np.max(x, axis=axes, keepdims=keep, initial=lowest(x.dtype))
    return np.max(x, axis=axes, keepdims=keep)


def _min(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    if x.dtype == np.bool_:
        return np.all(x, axis=axes, keepdims=keep)
    greatest = int(np.iinfo(x.dtype).max) if x.dtype.kind in "iu" else np.inf
    if not x.size:
        return np.min(x, axis=axes, keepdims=keep, initial=greatest)
    return np.min(x, axis=axes, keepdims=keep)


def _prod(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)


def _l1(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return _sum(np.abs(x), axes, keep)


def _l2(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return np.sqrt(_sum(x * x, axes, keep)).astype(x.dtype)


def _log_sum(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return np.log(_sum(x, axes, keep)).astype(x.dtype)


def _log_sum_exp(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    if x.dtype.kind != "f":
        return _log_sum_exp(x.astype(np.float64), axes, keep).astype(x.dtype)
    largest = _max(x, axes, True)
    largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    sums = np.log(_sum(np.exp(x - largest), axes, True)) + largest
    return sums if keep else np.squeeze(sums, axes)


def _sum_square(x: np.ndarray, axes: tuple[int, ...], keep: bool) -> np.ndarray:
    return _sum(x * x, axes, keep)


def _arg(find: Callable[..., np.ndarray]) -> NumpyFunction:
    """A kernel that finds an index along an axis: of equal elements the first, or the last if an attribute says so."""

    def run(attrs: Attributes, x: np.ndarray) -> np.ndarray:
        axis = attrs["axis"]
        if attrs.get("select_last_index"):
            index = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
        else:
            index = find(x, axis=axis)
        return np.asarray(np.expand_dims(index, axis) if attrs["keepdims"] else index, np.int64)

    return run


def _cumulative(function: Callable[..., np.ndarray], unit: int) -> NumpyFunction:
    """A kernel that adds or multiplies up along an axis."""

    @in_single
    def run(attrs: Attributes, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
        along = int(np.asarray(axis).item())
        if attrs["reverse"]:
            x = np.flip(x, along)
        y = function(x, axis=along, dtype=x.dtype)
        if attrs["exclusive"] and y.shape[along]:
            y = np.roll(y, 1, along)
            first = [slice(None)] * y.ndim
            first[along] = slice(0, 1)
            y[tuple(first)] = unit
        return np.flip(y, along) if attrs["reverse"] else y

    return run


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """``exp(x)`` normalised to sum 1 along an axis."""
    y = x - _max(x, (axis,), True)
    np.exp(y, out=y)
    y /= y.sum(axis, keepdims=True)
    return y


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Logarithm of the softmax."""
    y = x - _max(x, (axis,), True)
    y -= np.log(np.exp(y).sum(axis, keepdims=True))
    return y


def hardmax(x: np.ndarray, axis: int) -> np.ndarray:
    """1 at the first largest element along an axis, else 0."""
    y = np.zeros_like(x)
    if not x.size:
        return y
    np.put_along_axis(y, np.expand_dims(x.argmax(axis), axis), 1, axis)
    return y


def _normalising(function: Callable[[np.ndarray, int], np.ndarray]) -> dict[int, NumpyFunction]:
    """Kernels of a member of the softmax family; before version 13 it sees a matrix cut at ``axis``."""

    @in_single
    def run(attrs: Attributes, x: np.ndarray) -> np.ndarray:
        return function(x, attrs["axis"])

    @in_single
    def run_flat(attrs: Attributes, x: np.ndarray) -> np.ndarray:
        axis = attrs["axis"] % (x.ndim + 1) if attrs["axis"] >= 0 else attrs["axis"] + x.ndim
        return function(x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1).reshape(x.shape)

    return {13: run, 1: run_flat}


def biased_softmax(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The softmax of a sum, over an axis and all after it together; a bias of fewer axes or sizes is repeated."""
    dims = rank(types, 0)
    if dims is None:
        return None
    axis = attrs["axis"]
    assert isinstance(axis, int)
    w = BodyWriter(types)
    total = w.op("Add", 0, 1)
    flat = w.op("Flatten", total, axis=axis % dims)
    return w.body(w.op("Reshape", w.op("Softmax", flat, axis=1), w.op("Shape", 0)))


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
_REDUCES: Facets = {
    "shaped_by": (1,),
    "macs": count.input_elements,
    "checks": (attributes.listed_axes(1), movement.parameters(vectors=(1,))),
    "axes": Axes(1),
    "sampling": sample.reduction,
}

_ALONG_AXIS: Facets = {"macs": count.input_elements, "checks": (attributes.axis,), "normal_form": (normal.axis(),)}

declare("ArgMax", numpy=_arg(np.argmax), traits=BENDS, sampling=sample.arg, common=_ALONG_AXIS)
declare("ArgMin", numpy=_arg(np.argmin), traits=BENDS, sampling=sample.arg, common=_ALONG_AXIS)
declare("CumSum", numpy=_cumulative(np.cumsum, 0), traits=LINEAR | SIZES, macs=count.input_elements,
    checks=(movement.parameters(numbers=(1,)), movement.cumulative), axes=Axes(1, ordered=True),
    sampling=sample.cumulative)
declare("CumProd", numpy=_cumulative(np.cumprod, 1), macs=count.input_elements,
    checks=(movement.parameters(numbers=(1,)), movement.cumulative), axes=Axes(1, ordered=True),
    sampling=sample.cumulative)
declare("Hardmax", numpy=_normalising(hardmax), traits=OWN_ATTRIBUTES, sampling=sample.along, common=_ALONG_AXIS)
declare("LogSoftmax", numpy=_normalising(log_softmax), traits=ELEMENTARY | OWN_ATTRIBUTES | TOTAL,
    sampling=sample.along, bounds=bounds.single_share, common=_ALONG_AXIS)
declare("ReduceL1", numpy=_reduction(_l1, identity=False), traits=REDUCTION, common=_REDUCES)
declare("ReduceL2", numpy=_reduction(_l2, identity=False), traits=REDUCTION, common=_REDUCES)
declare("ReduceLogSum", numpy=_reduction(_log_sum, identity=False), traits=REDUCTION | POLES, common=_REDUCES)
declare("ReduceLogSumExp", numpy=_reduction(_log_sum_exp, identity=False), traits=REDUCTION, common=_REDUCES)
declare("ReduceMax", numpy=_reduction(_max), traits=REDUCTION | SELECTS | SIZES, quantization=MOVES_DATA,
    bounds=bounds.most_of, common=_REDUCES, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("ReduceMean", numpy=_reduction(_mean), traits=REDUCTION | LINEAR, quantization=DATA, common=_REDUCES)
declare("ReduceMin", numpy=_reduction(_min), traits=REDUCTION | SELECTS | SIZES, quantization=MOVES_DATA,
    common=_REDUCES, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("ReduceProd", numpy=_reduction(_prod), traits=REDUCTION | SIZES, common=_REDUCES)
declare("ReduceSum", numpy=_reduction(_sum, axes_input=13), traits=REDUCTION | LINEAR | SIZES, common=_REDUCES)
declare("ReduceSumSquare", numpy=_reduction(_sum_square, identity=False), traits=REDUCTION, common=_REDUCES)
declare("Softmax", numpy=_normalising(softmax), traits=ELEMENTARY | OWN_ATTRIBUTES | POSITIVE | TOTAL,
    sampling=sample.along, quantization=Role(data=(0,), result=(0.0, 1.0)), common=_ALONG_AXIS, magnitude=ORDINARY)
declare("BiasSoftmax", domain=MICROSOFT, definition=biased_softmax, typed_like=Like("Identity"))
