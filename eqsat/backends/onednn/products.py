"""Matrix products: with transposed operands, with a bias, of floats and of integers, and of flattened images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.backends.onednn.convolution import Integers, finish, integers_of, scale_sums
from eqsat.backends.onednn.description import Memory, NoPrimitive, Operation, Post
from eqsat.backends.onednn.mapper import Mapper, attribute, constant, mapping, number, tensor, value
from eqsat.backends.region import Operator, RegionOperand, Tensor


@mapping("MatMul")
def matmul(m: Mapper, node: Operator) -> None:
    a, b = node.inputs
    found = integers_of(m, a, b)
    if found is not None:
        m.add(_scaled(_product(m, found.x, found.weights, node.output), found))
        return
    m.add(_product(m, a, b, node.output))


@mapping("QLinearMatMul")
def qlinear_matmul(m: Mapper, node: Operator) -> None:
    a, sa, za, b, sb, zb, sy, zy = node.inputs
    scale, zero = number(sy), number(zy)
    sums = (number(sa) * value(sb).astype(np.float64).ravel() / scale).astype(np.float32)
    found = Integers(tensor(a), int(number(za)), _signed(b), int(number(zb)), sums)
    finish(_scaled(_product(m, found.x, found.weights, node.output), found), m, node.output, 1.0, zero)


@mapping("MatMulInteger")
def matmul_integer(m: Mapper, node: Operator) -> None:
    a, b, za, zb = (*node.inputs, None, None)[:4]
    found = Integers(tensor(a), int(number(za)), _signed(b), int(number(zb)), np.ones(1, np.float32))
    m.add(_scaled(_product(m, found.x, found.weights, node.output), found))


@mapping("Gemm")
def gemm(m: Mapper, node: Operator) -> None:
    a, b, c = (*node.inputs, None)[:3]
    alpha, beta = float(attribute(node, "alpha", 1)), float(attribute(node, "beta", 1))
    if alpha != 1 or (c is not None and beta != 1):
        raise NoPrimitive("a product with a factor")
    flips = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    found = integers_of(m, a, b)
    out = node.output
    if found is not None:
        op = _scaled(_product(m, found.x, found.weights, out, *flips), found)
    else:
        op = _flattened(m, tensor(a), b, out, *flips) or _product(m, a, b, out, *flips)
    vector = None if c is None else _row(c, out)
    if vector is not None:
        op.bias = constant(vector if op.kind == "INNER_PRODUCT" else vector.reshape(1, -1))
    m.add(op)
    if c is not None and vector is None:
        operand = c
        op.posts = [Post("dnnl_binary_add", operand=m.rides(operand, out, op))]


@mapping("QGemm", domain="com.microsoft")
def qgemm(m: Mapper, node: Operator) -> None:
    a, sa, za, b, sb, zb, c, sy, zy = (*node.inputs, None, None, None)[:9]
    if float(attribute(node, "alpha", 1)) != 1:
        raise NoPrimitive("a product with a factor")
    scale, zero = (1.0, 0.0) if sy is None else (number(sy), number(zy))
    sums = number(sa) * value(sb).astype(np.float64).ravel() / scale
    found = Integers(tensor(a), int(number(za)), _signed(b), int(number(zb)), sums.astype(np.float32))
    flips = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    out = node.output
    flat = _flattened(m, found.x, found.weights, out, *flips) if found.zero == found.weights_zero == 0 else None
    op = _scaled(flat or _product(m, found.x, found.weights, out, *flips), found)
    if c is not None:
        vector = _row(value(c).astype(np.float64), out)
        if vector is None:
            raise NoPrimitive("a bias of more than one row")
        vector = (vector * sums).astype(np.float32)
        op.bias = constant(vector if op.kind == "INNER_PRODUCT" else vector.reshape(1, -1))
    if sy is None:
        m.add(op)
    else:
        finish(op, m, out, 1.0, zero)


def _signed(b: RegionOperand | None) -> RegionOperand:
    if b is None or (b.dtype != np.int8 if isinstance(b, np.ndarray) else b.dtype != ir.DataType.INT8):
        raise NoPrimitive("weights that are not signed")
    return b


def _scaled(op: Operation, found: Integers) -> Operation:
    if op.kind == "MATMUL" and found.scales.size > 1 and found.scales.size != op.dst.shape[-1]:
        raise NoPrimitive("scales that are not one number per column")
    if len(set(found.scales.tolist())) == 1:
        found = replace(found, scales=found.scales[:1])
    scale_sums(op, found)
    return op


def _row(c: RegionOperand, out: Tensor) -> np.ndarray | None:
    """A bias that is the same for all rows; None if it is not, or not constant."""
    if not isinstance(c, np.ndarray) or (c.ndim > 1 and c.shape[-2] != 1) or c.ndim > 2:
        return None
    return np.ascontiguousarray(np.broadcast_to(c.reshape(-1), (out.shape[-1],)))


def _product(
    m: Mapper, a: RegionOperand | None, b: RegionOperand | None, out: Tensor, flip_a: bool = False, flip_b: bool = False
) -> Operation:
    """A product of matrices, or of stacks of them; a transposed matrix is a view."""
    if a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2:
        raise NoPrimitive("a product with a vector")
    left, right = m.memory(a), m.memory(b)
    if flip_a:
        left = m.permuted(left, (1, 0))
    if flip_b:
        right = m.permuted(right, (1, 0))
    rank = max(len(left.shape), len(right.shape))
    left = _stack(m, left, rank)
    right = _stack(m, right, rank)
    return Operation("MATMUL", m.place(out), left, right)


def _stack(m: Mapper, memory: Memory, rank: int) -> Memory:
    """A view with the rank of the other operand."""
    lead = rank - len(memory.shape)
    if lead == 0:
        return memory
    if memory.array is not None and memory.strides:
        size = memory.shape[0] * memory.strides[0]
        return Memory(
            memory.dtype, (1,) * lead + memory.shape, array=memory.array, strides=(size,) * lead + memory.strides
        )
    return m.view(memory, (1,) * lead + memory.shape)


def _flattened(
    m: Mapper, a: Tensor, b: RegionOperand | None, out: Tensor, flip_a: bool, flip_b: bool
) -> Operation | None:
    """An inner product of images, where the matrix is a look at these that this kernel takes; None if it is not."""
    memory = m.context.memories.get(a)
    look = None if memory is None else m.producers.get(memory)
    if look is None or look.kind != "RESHAPE" or m.reads(a) != 1 or flip_a or not isinstance(b, np.ndarray):
        return None
    images = look.src
    if images is None or not 3 <= len(images.shape) <= 5 or images.shape[0] != a.shape[0]:
        return None
    rows = b.shape[0] if flip_b else b.shape[1]
    weights = constant(b, (rows, *images.shape[1:]))
    if not flip_b:
        # One column an output: its elements are a row apart.
        strides, step = [], rows
        for n in reversed(images.shape[1:]):
            strides.append(step)
            step *= n
        weights.strides = (1, *reversed(strides))
    m.operations.remove(look)
    del m.producers[look.dst]
    return Operation("INNER_PRODUCT", m.place(out), images, weights)
