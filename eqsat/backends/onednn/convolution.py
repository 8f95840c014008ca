"""Convolutions and transposed convolutions, of floats and of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.backends.onednn.description import LIMITS, NoPrimitive, Operation, Post
from eqsat.backends.onednn.mapper import (
    LINEAR,
    Mapper,
    attribute,
    constant,
    mapping,
    merged,
    number,
    tensor,
    triple,
    value,
)
from eqsat.backends.region import Operator, RegionOperand, Tensor
from eqsat.ops.windows import Windows, integers, windows


@dataclass(frozen=True, slots=True)
class Integers:
    """A product of integers: activations less their zero point, weights, the scale of each output channel.

    Attributes:
        x: Activations.
        zero: Their zero point.
        weights: In 8 bits.
        weights_zero: Theirs.
        scales: Of the sums, one or one an output channel.
    """

    x: Tensor
    zero: int
    weights: RegionOperand
    weights_zero: int
    scales: np.ndarray


def integers_of(m: Mapper, x: RegionOperand | None, w: RegionOperand | None) -> Integers | None:
    """The integers of dequantized operands; None if they are floats."""
    known = m.quantized.get(x) if isinstance(x, Tensor) else None
    origin = m.context.dequantized.get(id(w)) if isinstance(w, np.ndarray) else None
    if (
        known is None
        or origin is None
        or not isinstance(w, np.ndarray)
        or known.scale.size != 1
        or not isinstance(known.source, Tensor)
    ):
        return None
    zero = np.zeros(1) if origin.zero is None else origin.zero
    if origin.quantized.dtype != np.int8 or origin.quantized.shape != w.shape or (zero != zero.ravel()[0]).any():
        return None
    scales = (known.scale.astype(np.float64).ravel() * origin.scale.astype(np.float64).ravel()).astype(np.float32)
    return Integers(known.source, known.zero, origin.quantized, int(zero.ravel()[0]), scales)


def scale_sums(op: Operation, found: Integers) -> None:
    """The factors of an integer operation's sums, and the zero points."""
    if (found.scales != 1).any():
        op.scales = constant(found.scales.reshape(-1))
    op.numbers |= {"src_zero": found.zero, "weights_zero": found.weights_zero}


def finish(op: Operation, m: Mapper, out: Tensor, scale: float, zero: float) -> None:
    """The result of sums that are in the scale of the result already, or have this one."""
    op.posts = merged([Post(LINEAR, 1 / scale, zero)])
    op.limits = LIMITS.get(out.dtype)
    m.add(op)


@mapping("Conv")
def conv(m: Mapper, node: Operator) -> None:
    x, w, b = (*node.inputs, None)[:3]
    found = integers_of(m, x, w)
    if found is not None and found.weights_zero == 0:
        op = _convolution(m, node, found.x, found.weights, node.output)
        scale_sums(op, found)
        _real_bias(m, op, b, node.output)
        return
    op = _convolution(m, node, tensor(x), w, node.output)
    if b is not None:
        op.bias = m.memory(b)
    m.add(op)


def _real_bias(m: Mapper, op: Operation, b: RegionOperand | None, out: Tensor) -> None:
    """A float bias after a product of integers."""
    if isinstance(b, np.ndarray):
        op.bias = constant(b.astype(np.float32).ravel())
        m.add(op)
    elif b is not None:
        shape = (1, b.shape[0], *[1] * (len(out.shape) - 2))
        m.add(op)
        op.posts = [Post("dnnl_binary_add", operand=m.view(m.memory(b), shape, op))]
    else:
        m.add(op)


def _convolution(m: Mapper, node: Operator, x: Tensor, w: RegionOperand | None, out: Tensor) -> Operation:
    if w is None or not 3 <= len(x.shape) <= 5:
        raise NoPrimitive("a convolution without 1 to 3 spatial dimensions")
    group = int(attribute(node, "group", 1))
    source = m.memory(x)
    kernels = m.memory(w)
    at = windows(node.attributes, x.shape[2:], w.shape[2:])
    if group > 1:
        kernels = m.view(kernels, (group, w.shape[0] // group, *w.shape[1:]))
    op = Operation("CONVOLUTION", m.place(out), source, kernels)
    op.numbers |= geometry(at)
    return op


def geometry(at: Windows) -> dict[str, float | int | tuple[int, ...]]:
    """Fields of a convolution; oneDNN counts the gaps of a dilation."""
    return {
        "strides": triple(at.strides),
        "dilation": triple(at.dilations, 1),
        "before": triple(at.begin),
        "after": triple(at.end),
    }


def _integer_convolution(m: Mapper, node: Operator, found: Integers) -> Operation:
    if found.weights_zero != 0:
        raise NoPrimitive("weights with a zero point")
    if isinstance(found.weights, Tensor) or found.weights.dtype != np.int8:
        raise NoPrimitive("weights that are not signed constants")
    op = _convolution(m, node, found.x, found.weights, node.output)
    scale_sums(op, found)
    return op


@mapping("QLinearConv")
def qlinear_conv(m: Mapper, node: Operator) -> None:
    x, sx, zx, w, sw, zw, sy, zy, b = (*node.inputs, None)[:9]
    scale, zero = number(sy), number(zy)
    sums = number(sx) * value(sw).astype(np.float64).ravel()
    found = Integers(tensor(x), int(number(zx)), value(w), int(number(zw)), (sums / scale).astype(np.float32))
    op = _integer_convolution(m, node, found)
    if b is not None:
        op.bias = constant((value(b).astype(np.float64).ravel() * (sums / scale)).astype(np.float32))
    finish(op, m, node.output, 1.0, zero)


@mapping("ConvInteger")
def conv_integer(m: Mapper, node: Operator) -> None:
    x, w, zx, zw = (*node.inputs, None, None)[:4]
    found = Integers(tensor(x), int(number(zx)), value(w), int(number(zw)), np.ones(1, np.float32))
    m.add(_integer_convolution(m, node, found))


@mapping("ConvTranspose")
def conv_transpose(m: Mapper, node: Operator) -> None:
    x, w, b = (*node.inputs, None)[:3]
    out = node.output
    found = integers_of(m, x, w)
    whole = found is not None and found.weights_zero == 0
    if found is not None and whole:
        x, w = found.x, found.weights
    x = tensor(x)
    if w is None or not 3 <= len(x.shape) <= 5:
        raise NoPrimitive("a convolution without 1 to 3 spatial dimensions")
    group = int(attribute(node, "group", 1))
    kernels = m.memory(w)
    spatial = len(x.shape) - 2
    if group > 1:
        kernels = m.view(kernels, (group, w.shape[0] // group, *w.shape[1:]))
    lead = 1 if group > 1 else 0
    # ONNX has the input channels of a group first, oneDNN the output channels.
    kernels = m.permuted(kernels, [*range(lead), lead + 1, lead, *range(lead + 2, len(kernels.shape))])
    op = Operation("DECONVOLUTION", m.place(out), m.memory(x), kernels)
    strides = integers(node.attributes, "strides", (1,) * spatial)
    dilations = integers(node.attributes, "dilations", (1,) * spatial)
    before, after = _transposed_pads(node, x, w, out, strides, dilations)
    op.numbers |= {
        "strides": triple(strides),
        "dilation": triple(dilations, 1),
        "before": before,
        "after": after,
    }
    if found is not None and whole:
        scale_sums(op, found)
        _real_bias(m, op, b, out)
        return
    if b is not None:
        op.bias = m.memory(b)
    m.add(op)


def _transposed_pads(
    node: Operator, x: Tensor, w: RegionOperand, out: Tensor, strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The elements cut off the full result on both sides, given by the pads or by the output's shape."""
    spatial = len(x.shape) - 2
    mode = str(attribute(node, "auto_pad", "NOTSET"))
    shaped = bool(integers(node.attributes, "output_shape", ()))
    before, after = [], []
    pads = integers(node.attributes, "pads", (0,) * (2 * spatial))
    for i in range(spatial):
        full = (x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1
        cut = full - out.shape[2 + i]
        if mode.startswith("SAME") or shaped:
            half = max(cut, 0) // 2
            first = half if mode == "SAME_UPPER" else max(cut, 0) - half
        else:
            first = 0 if mode == "VALID" else pads[i]
        before.append(first)
        after.append(cut - first)
    return tuple(before), tuple(after)
