"""Normalisations: statistics in float32 (``stash_type``), one multiply and one add where the statistics are given."""

from __future__ import annotations

import math

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops import equal_axes, normal
from eqsat.ops.checks import attributes, layers
from eqsat.ops.families.casting import numpy_dtype
from eqsat.ops.magnitude import ORDINARY
from eqsat.ops.mean_or_zero import mean
from eqsat.ops.numpy_kernel import HALF_TYPES, Fallback, in_single
from eqsat.ops.quantization_role import DATA
from eqsat.ops.registry import declare
from eqsat.ops.sampling import normalizing, reductions
from eqsat.ops.traits import OWN_ATTRIBUTES
from eqsat.schema.types import Attributes, OneOrMoreArrays


def channelwise(v: np.ndarray, rank: int) -> np.ndarray:
    """A vector over the channels, shaped to broadcast against (N, C, *spatial)."""
    return v.reshape(-1, *(1,) * (rank - 2)) if rank > 1 else v


def batch_normalization(
    attrs: Attributes,
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    outputs: int = 1,
) -> OneOrMoreArrays:
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` over channels.

    In training the statistics are the batch's own, and running ones are returned.
    """
    if not attrs.get("training_mode", 0):
        return _normalized(x, scale, bias, mean, var, attrs["epsilon"])
    now, spread = _batch_statistics(x)
    y = _normalized(x, scale, bias, now, spread, attrs["epsilon"])
    keep = attrs["momentum"]
    return (y, _running(mean, now, keep), _running(var, spread, keep))[:outputs]


def batch_normalization_by_outputs(
    attrs: Attributes, x: np.ndarray, *rest: np.ndarray, outputs: int = 1
) -> OneOrMoreArrays:
    """Before version 14 more than one output means training; the last two are the batch's own statistics."""
    results = batch_normalization({**attrs, "training_mode": int(outputs > 1)}, x, *rest, outputs=min(outputs, 3))
    return results if isinstance(results, np.ndarray) else (*results, *_batch_statistics(x))[:outputs]


def _work_type(x: np.ndarray) -> np.dtype:
    return np.dtype(np.float32) if x.dtype in HALF_TYPES else x.dtype


def _batch_statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each channel."""
    axes = (0, *range(2, x.ndim))
    wide = x.astype(_work_type(x), copy=False)
    centre = mean(wide, axes, True)
    return centre.reshape(-1), mean((wide - centre) ** 2, axes, False)


def _normalized(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray, epsilon: float
) -> np.ndarray:
    """By given statistics: one multiplication and one addition."""
    work = _work_type(x)
    factor = scale.astype(work, copy=False) / np.sqrt(var.astype(work, copy=False) + work.type(epsilon))
    offset = bias.astype(work, copy=False) - mean.astype(work, copy=False) * factor
    y = x.astype(work, copy=False) * channelwise(factor, x.ndim)
    y += channelwise(offset, x.ndim)
    return y.astype(x.dtype, copy=False)


def _running(old: np.ndarray, new: np.ndarray, momentum: float) -> np.ndarray:
    return (old * momentum + new.astype(old.dtype) * (1 - momentum)).astype(old.dtype)


def batch_normalization_spatial(
    attrs: Attributes,
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    outputs: int = 1,
) -> OneOrMoreArrays:
    """Before version 9 there may be statistics for each element of a sample."""
    if attrs.get("spatial", 1):
        return batch_normalization_by_outputs(attrs, x, scale, bias, mean, var, outputs=outputs)
    if outputs > 1:
        raise Fallback
    return ((x - mean) / np.sqrt(var + x.dtype.type(attrs["epsilon"])) * scale + bias).astype(x.dtype)


def batch_normalization_first(attrs: Attributes, x: np.ndarray, *rest: np.ndarray, outputs: int = 1) -> OneOrMoreArrays:
    """Before version 7 an attribute tells whether it is inference."""
    if not attrs.get("is_test"):
        raise Fallback
    return batch_normalization_spatial(attrs, x, *rest, outputs=1)


@in_single
def instance_normalization(attrs: Attributes, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Each channel of each sample by its own statistics."""
    y, _, _ = standardized(x, tuple(range(2, x.ndim)), attrs["epsilon"])
    return y * channelwise(scale, x.ndim) + channelwise(bias, x.ndim)


def group_normalization(attrs: Attributes, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Groups of channels of each sample by their own statistics; scale and bias are per channel."""
    work = _stash(attrs, x)
    groups = int(attrs["num_groups"])
    if x.shape[1] % groups:
        raise ValueError(f"{x.shape[1]} channels cannot be cut into {groups} groups")
    y, _, _ = standardized(
        x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups).astype(work, copy=False), (2,), attrs["epsilon"]
    )
    y = y.reshape(x.shape).astype(x.dtype, copy=False)
    return y * channelwise(scale, x.ndim) + channelwise(bias, x.ndim)


def group_normalization_by_group(attrs: Attributes, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same with one scale and bias per group."""
    many = x.shape[1] // int(attrs["num_groups"])
    return group_normalization(attrs, x, np.repeat(scale, many), np.repeat(bias, many))


def layer_normalization(
    attrs: Attributes, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None, *, outputs: int = 1
) -> OneOrMoreArrays:
    """All elements from ``axis`` on by their statistics; also returns mean and inverse deviation."""
    work = _stash(attrs, x)
    y, mean, inverse = standardized(x.astype(work, copy=False), _axes_from(attrs, x), attrs["epsilon"])
    y = y.astype(x.dtype, copy=False) * scale
    if bias is not None:
        y = y + bias
    if outputs == 1:
        return y
    # The statistics have the type of the first stage, which may differ from that of the tensor.
    stash = numpy_dtype(attrs.get("stash_type", 1))
    with np.errstate(over="ignore"):
        return (y, mean.astype(stash), inverse.astype(stash))[:outputs]


def rms_normalization(attrs: Attributes, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """All elements from ``axis`` on by their root mean square."""
    wide = x.astype(_stash(attrs, x), copy=False)
    square = mean(wide * wide, _axes_from(attrs, x), True)
    return (wide / np.sqrt(square + wide.dtype.type(attrs["epsilon"]))).astype(x.dtype, copy=False) * scale


@in_single
def mean_variance_normalization(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Over the given axes; the tiny constant is the one in the operator's definition."""
    axes = tuple(attrs["axes"])
    centre = mean(x, axes, True)
    deviation = np.sqrt(mean(x * x, axes, True) - centre * centre)
    return (x - centre) / (deviation + x.dtype.type(1e-9))


@in_single
def local_response_normalization(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Each element by the squares of its neighbours across channels (Krizhevsky et al., 2012)."""
    size = int(attrs["size"])
    channels = x.shape[1]
    before = (size - 1) // 2
    squares = np.zeros((x.shape[0], channels + size - 1, *x.shape[2:]), x.dtype)
    np.multiply(x, x, out=squares[:, before : before + channels])
    sums = squares[:, :channels].copy()
    for shift in range(1, size):
        sums += squares[:, shift : shift + channels]
    sums *= x.dtype.type(attrs["alpha"]) / x.dtype.type(size)
    sums += x.dtype.type(attrs["bias"])
    beta = attrs["beta"]
    # Powers are slow; the usual exponent 3/4 is two square roots.
    if beta == 0.75:
        root = np.sqrt(sums)
        sums = root * np.sqrt(root)
    else:
        sums **= x.dtype.type(beta)
    return np.divide(x, sums, out=sums)


@in_single
def lp_normalization(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """By the 1- or 2-norm along an axis; where that is zero, the result is zero."""
    axis = int(attrs["axis"])
    norm = np.abs(x).sum(axis, keepdims=True) if attrs["p"] == 1 else np.sqrt((x * x).sum(axis, keepdims=True))
    return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)


def standardized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``(x - mean) / sqrt(variance + epsilon)``, the mean, and the inverse deviation."""
    centre = mean(x, axes, True)
    y = x - centre
    variance = mean(y * y, axes, True)
    inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    y *= inverse
    return y, centre, inverse


def _stash(attrs: Attributes, x: np.ndarray) -> np.dtype:
    """Element type of the first stage: ``stash_type``, but never narrower than the input or than float32."""
    wide = [d for d in (x.dtype, numpy_dtype(attrs.get("stash_type", 1))) if d not in HALF_TYPES]
    return np.result_type(np.float32, *wide)


def _axes_from(attrs: Attributes, x: np.ndarray) -> tuple[int, ...]:
    axis = int(attrs["axis"])
    return tuple(range(axis + x.ndim if axis < 0 else axis, x.ndim))


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("BatchNormalization",
    numpy={14: batch_normalization, 9: batch_normalization_by_outputs, 7: batch_normalization_spatial,
           1: batch_normalization_first},
    macs=count.input_elements, normal_form=(normal.momentum_in_training,), sampling=normalizing.batch,
    quantization=DATA, together=equal_axes.channels(1, 2, 3, 4))
declare("InstanceNormalization", numpy=instance_normalization, macs=count.input_elements,
    checks=(layers.instance_normalization,), sampling=normalizing.instance, together=equal_axes.channels(1, 2),
    magnitude=ORDINARY)
declare("GroupNormalization", numpy={21: group_normalization, 18: group_normalization_by_group},
    macs=count.input_elements, checks=(attributes.positive("num_groups"), layers.group_normalization),
    sampling=normalizing.group, magnitude=ORDINARY)
declare("LayerNormalization", numpy=layer_normalization, macs=count.input_elements,
    checks=(attributes.axis, layers.layer_normalization), normal_form=(normal.axis(),), sampling=normalizing.layer,
    together=equal_axes.broadcasting, magnitude=ORDINARY)
declare("RMSNormalization", numpy=rms_normalization, macs=count.input_elements,
    checks=(attributes.axis, layers.layer_normalization), normal_form=(normal.axis(),), sampling=normalizing.layer,
    together=equal_axes.broadcasting, magnitude=ORDINARY)
declare("MeanVarianceNormalization", numpy=mean_variance_normalization, macs=count.input_elements,
    checks=(attributes.axes_attribute,), normal_form=(normal.axes,), sampling=normalizing.mean_variance)
declare("LRN", numpy=local_response_normalization, macs=count.local_response,
    checks=(attributes.positive("size"), layers.lrn))
declare("LpNormalization", numpy=lp_normalization, traits=OWN_ATTRIBUTES, macs=count.input_elements,
    checks=(attributes.axis, attributes.norm, layers.last_axis), normal_form=(normal.axis(),),
    sampling=reductions.along, magnitude=ORDINARY)
