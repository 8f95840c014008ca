"""Pooling over windows and planes, reductions, and resampling."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.backends.onednn.description import LIMITS, NoPrimitive, Operation, Post
from eqsat.backends.onednn.mapper import LINEAR, Mapper, attribute, mapping, merged, number, tensor, triple, value
from eqsat.backends.region import Operator, Tensor
from eqsat.ops.windows import Windows, integers, windows

_AVERAGE = "dnnl_pooling_avg_exclude_padding"


def _pool(m: Mapper, node: Operator, x: Tensor, algorithm: str) -> Operation:
    if not 3 <= len(x.shape) <= 5:
        raise NoPrimitive("pooling without 1 to 3 spatial dimensions")
    spatial = x.shape[2:]
    if "Global" in node.operator.name:
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        at = Windows(tuple(spatial), ones, ones, zeros, zeros, ones)
    else:
        shape = integers(node.attributes, "kernel_shape", ())
        at = windows(node.attributes, spatial, shape, ceil=bool(attribute(node, "ceil_mode", 0)))
    if "Average" in node.operator.name and attribute(node, "count_include_pad", 0):
        algorithm = "dnnl_pooling_avg_include_padding"
    reach = [(n - 1) * s + e - size - b for n, s, e, size, b in zip(
        at.out, at.strides, at.extent, spatial, at.begin, strict=True)]  # fmt: skip
    return Operation(
        "POOLING", m.place(node.output), m.memory(x), algorithm=algorithm,
        numbers={
            "strides": triple(at.strides), "dilation": triple(at.dilations, 1), "window": triple(at.kernel),
            "before": triple(at.begin), "after": tuple(max(r, e) for r, e in zip(reach, at.end, strict=True)),
        },
    )  # fmt: skip


@mapping("MaxPool", "GlobalMaxPool")
def max_pool(m: Mapper, node: Operator) -> None:
    if any(node.outputs[1:]):
        raise NoPrimitive("indices of maxima")
    m.add(_pool(m, node, tensor(node.inputs[0]), "dnnl_pooling_max"))


@mapping("AveragePool", "GlobalAveragePool")
def average_pool(m: Mapper, node: Operator) -> None:
    m.add(_pool(m, node, tensor(node.inputs[0]), _AVERAGE))


@mapping("QLinearAveragePool", "QLinearGlobalAveragePool", domain="com.microsoft")
def quantized_average_pool(m: Mapper, node: Operator) -> None:
    x, sx, zx, sy, zy = (*node.inputs, None)[:5]
    if attribute(node, "channels_last", 0):
        raise NoPrimitive("channels after the other dimensions")
    op = _pool(m, node, tensor(x), _AVERAGE)
    ratio = number(sx) / number(sy)
    op.posts = merged([Post(LINEAR, ratio, number(zy) - number(zx) * ratio)])
    op.limits = LIMITS.get(node.output.dtype)
    m.add(op)


_REDUCTIONS = {
    "ReduceMean": ("mean", 0.0),
    "ReduceSum": ("sum", 0.0),
    "ReduceMax": ("max", 0.0),
    "ReduceMin": ("min", 0.0),
    "ReduceProd": ("mul", 0.0),
    "ReduceL1": ("norm_lp_power_p_sum", 1.0),
    "ReduceL2": ("norm_lp_sum", 2.0),
    "ReduceSumSquare": ("norm_lp_power_p_sum", 2.0),
}


@mapping(*_REDUCTIONS)
def reduction(m: Mapper, node: Operator) -> None:
    x = tensor(node.inputs[0])
    if x.dtype != ir.DataType.FLOAT:
        raise NoPrimitive("reductions of integers")
    rank = len(x.shape)
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes = [] if given is None else [int(v) % rank for v in value(given).ravel()]
    if not axes:
        if attribute(node, "noop_with_empty_axes", 0):
            raise NoPrimitive("a reduction that reduces nothing")
        axes = list(range(rank))
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    source = m.memory(x)
    if kept == tuple(x.shape):
        raise NoPrimitive("a reduction that reduces nothing")
    algorithm, power = _REDUCTIONS[node.operator.name]
    out = node.output
    made = Tensor(f"{out.name}_kept", out.dtype, kept)
    same = kept == tuple(out.shape)
    op = Operation("REDUCTION", m.place(out if same else made), source, algorithm=f"dnnl_reduction_{algorithm}")
    op.numbers |= {"alpha": power, "beta": 0.0}
    m.add(op)
    if not same:
        m.add(Operation("RESHAPE", m.place(out), op.dst))


@mapping("Resize")
def resize(m: Mapper, node: Operator) -> None:
    x, out = tensor(node.inputs[0]), node.output
    mode = str(attribute(node, "mode", "nearest"))
    if mode not in ("nearest", "linear") or attribute(node, "antialias", 0) or not 3 <= len(x.shape) <= 5:
        raise NoPrimitive(f"{mode} resampling")
    if tuple(x.shape[:2]) != tuple(out.shape[:2]) or any(
        int(n) % int(k) for n, k in zip(out.shape, x.shape, strict=True)
    ):
        raise NoPrimitive("resampling other than by whole factors of spatial dimensions")
    where = str(attribute(node, "coordinate_transformation_mode", "half_pixel"))
    rounding = str(attribute(node, "nearest_mode", "round_prefer_floor"))
    by_floor = mode == "nearest" and where == "asymmetric" and rounding == "floor"
    if not by_floor and (where != "half_pixel" or (mode == "nearest" and not rounding.startswith("round"))):
        raise NoPrimitive(f"resampling with {where} coordinates")
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    if (
        isinstance(scales, np.ndarray)
        and scales.size
        and not np.allclose(scales.ravel() * np.asarray(x.shape), out.shape)
    ):
        raise NoPrimitive("a factor that is not the quotient of the sizes")
    m.add(Operation("RESAMPLING", m.place(out), m.memory(x), algorithm=f"dnnl_resampling_{mode}"))
