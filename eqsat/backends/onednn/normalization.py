"""Softmax, layer normalization and operators expressed by it, and local response normalization."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from eqsat.backends.onednn.description import Memory, NoPrimitive, Operation, Post
from eqsat.backends.onednn.mapper import Mapper, attribute, constant, mapping, number, scalar, tensor
from eqsat.backends.onednn.post_operations import quantize
from eqsat.backends.region import Operator, RegionOperand, Tensor


@mapping("Softmax", "LogSoftmax")
def softmax(m: Mapper, node: Operator) -> None:
    x = tensor(node.inputs[0])
    algorithm = "dnnl_softmax_accurate" if node.operator.name == "Softmax" else "dnnl_softmax_log"
    _softmax(m, x, node.output, algorithm, int(attribute(node, "axis", -1)))


def _softmax(m: Mapper, x: Tensor, out: Tensor, algorithm: str, axis: int) -> None:
    if x.dtype != ir.DataType.FLOAT or not x.shape:
        raise NoPrimitive("a softmax of another type than float32")
    m.add(Operation("SOFTMAX", m.place(out), m.memory(x), algorithm=algorithm, numbers={"axis": axis % len(x.shape)}))


@mapping("QLinearSoftmax", domain="com.microsoft")
def quantized_softmax(m: Mapper, node: Operator) -> None:
    x, sx, _, sy, zy = (*node.inputs, None)[:5]
    x, out = tensor(x), node.output
    axis = int(attribute(node, "axis", -1)) % max(len(x.shape), 1)
    if int(attribute(node, "opset", 13)) < 13 and axis != len(x.shape) - 1:
        raise NoPrimitive("a softmax over several dimensions")
    floats = Tensor(f"{out.name}_in", ir.DataType.FLOAT, x.shape)
    result = Tensor(f"{out.name}_out", ir.DataType.FLOAT, out.shape)
    # The zero point is the same everywhere and cancels.
    m.emit(x, lambda _m, _o: [Post("dnnl_binary_mul", operand=scalar(number(sx), len(x.shape)))], floats)
    m.context.uses |= {floats: 1, result: 2}
    _softmax(m, floats, result, "dnnl_softmax_accurate", axis)
    quantize(m, result, [sy, zy], out)


@mapping("LayerNormalization")
def layer_normalization(m: Mapper, node: Operator) -> None:
    x, scale, bias = (*node.inputs, None)[:3]
    x, out = tensor(x), node.output
    if int(attribute(node, "axis", -1)) % len(x.shape) != len(x.shape) - 1 or any(node.outputs[1:]):
        raise NoPrimitive("statistics over several dimensions, or statistics that are results")
    m.add(_rows(m, m.memory(x), m.place(out), scale, bias, float(attribute(node, "epsilon", 1e-5))))


def _rows(
    m: Mapper, source: Memory, target: Memory, scale: RegionOperand | None, bias: RegionOperand | None, epsilon: float
) -> Operation:
    if source.dtype != ir.DataType.FLOAT or not 2 <= len(source.shape) <= 5:
        raise NoPrimitive("a normalization other than of float32 with 2 to 5 dimensions")
    op = Operation("LAYER_NORMALIZATION", target, source, numbers={"alpha": epsilon})
    for name, operand in (("weights", scale), ("bias", bias)):
        if operand is None:
            continue
        if not isinstance(operand, np.ndarray) or operand.size != source.shape[-1]:
            raise NoPrimitive("a scale that is not one number per column")
        setattr(op, name, constant(operand.astype(np.float32).ravel()))
    return op


@mapping("InstanceNormalization", "GroupNormalization")
def group_normalization(m: Mapper, node: Operator) -> None:
    """Groups of channels are rows of a matrix; scale and shift of channels follow."""
    x, scale, bias = node.inputs
    x, out = tensor(x), node.output
    if not isinstance(scale, np.ndarray) or not isinstance(bias, np.ndarray) or x.dtype != ir.DataType.FLOAT:
        raise NoPrimitive("parameters that are computed at run time")
    instance = node.operator.name == "InstanceNormalization"
    groups = x.shape[1] if instance else int(attribute(node, "num_groups"))
    rows = (x.shape[0] * groups, math.prod(x.shape) // (x.shape[0] * groups))
    normal = Memory(x.dtype, rows)
    m.add(_rows(m, m.view(m.memory(x), rows), normal, None, None, float(attribute(node, "epsilon", 1e-5))))
    shape = (1, x.shape[1], *[1] * (len(x.shape) - 2))
    repeat = x.shape[1] // scale.size
    factors, shifts = (np.repeat(v.ravel(), repeat).reshape(shape) for v in (scale, bias))
    m.add(
        Operation(
            "BINARY", m.place(out), m.view(normal, x.shape), constant(factors), algorithm="dnnl_binary_mul",
            posts=[Post("dnnl_binary_add", operand=constant(shifts))],
        )
    )  # fmt: skip


@mapping("BatchNormalization")
def batch_normalization(m: Mapper, node: Operator) -> None:
    raise NoPrimitive("statistics that are computed at run time")


@mapping("LRN")
def local_response(m: Mapper, node: Operator) -> None:
    x = tensor(node.inputs[0])
    size = int(attribute(node, "size"))
    if x.dtype != ir.DataType.FLOAT or size % 2 == 0 or len(x.shape) < 3:
        raise NoPrimitive("a window that is not centred")
    numbers: dict[str, float | int | tuple[int, ...]] = {
        "size": size,
        "alpha": float(attribute(node, "alpha", 1e-4)),
        "beta": float(attribute(node, "beta", 0.75)),
        "gamma": float(attribute(node, "bias", 1.0)),
    }
    m.add(Operation("LRN", m.place(node.output), m.memory(x), algorithm="dnnl_lrn_across_channels", numbers=numbers))
