"""Sampling for fused operators of ONNX Runtime: the operands of the operators that they fuse."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode, Sampler
from eqsat.ops.sampling.products import gemm, gemm_sizes, matmul
from eqsat.ops.sampling.windows import convolution_output, convolution_shapes
from eqsat.schema.dtypes import BYTES


def convolution(activations: Mapping[str, tuple[float, ...]]) -> Sampler:
    """Data, weight, bias and addend, followed by one of these activations with these parameters."""

    def draw(node: SampledNode) -> None:
        outputs = convolution_shapes(node, 0, 1)
        if node.has(2):
            node.draw(2, (outputs,))
        if node.has(3):
            node.draw(3, convolution_output(node, 0, 1))
        parameters = activations.get(node.attr("activation", node.chance.one_of(list(activations))))
        if parameters:
            node.attr("activation_params", parameters)

    return draw


def general_product(node: SampledNode) -> None:
    node.attr("activation", node.chance.one_of(("Relu", "Tanh", "Sigmoid")))
    gemm(node)


def turned_product(node: SampledNode) -> None:
    """Operands that are transposed, and a factor."""
    chance = node.chance
    if chance.happens(0.4):
        node.real("alpha", 1.0, 0.5, 2.0)
    a_turned, b_turned = (node.attr(name, int(chance.happens(0.4))) for name in ("transA", "transB"))
    for name in ("transBatchA", "transBatchB"):
        if node.attrs.get(name):
            raise Rejected("batches that are transposed")
    if not a_turned and not b_turned:
        matmul(node)
        return
    known = node.known(0) or node.known(1)
    batch = known[:-2] if known is not None else chance.shape(chance.number(0, 2))
    if known is not None and len(known) != 2:
        raise Rejected("no matrix")
    rows, inner, columns = gemm_sizes(node, (0, a_turned), (1, b_turned))
    node.draw(0, (*batch, *((inner, rows) if a_turned else (rows, inner))))
    node.draw(1, (*batch, *((columns, inner) if b_turned else (inner, columns))))


def normalized_sum(node: SampledNode) -> None:
    """Two summands of rows, then scale, shift and bias of one row."""
    shape = node.known(0) or node.known(1)
    if shape is None:
        wish = node.shape if node.shape is not None and len(node.shape) in (2, 3) else None
        shape = wish if wish is not None else node.chance.shape(node.chance.number(2, 3))
    node.near("epsilon", 1e-5, 1e-3, 0.125)
    for i in range(node.count):
        if node.has(i):
            node.draw(i, shape if i < 2 else shape[-1:])


def integer_product(node: SampledNode) -> None:
    """Two matrices of bytes, with scales, zero points and a bias."""
    a, b = (node.dtype(i) if node.kind(i) == "known" else node.chance.one_of(BYTES) for i in (0, 1))
    columns = _matrices(node, a, b)
    for i, kind in ((2, ir.DataType.FLOAT), (3, ir.DataType.FLOAT), (4, a), (5, b)):
        if node.has(i):
            node.draw(i, (), fill="scale" if i < 4 else "any", dtype=kind)
    if node.has(6):
        node.draw(6, (columns,), dtype=ir.DataType.FLOAT)


def dynamic_product(node: SampledNode) -> None:
    """Floats and a matrix of bytes, with its scale, zero point, and a bias."""
    b = node.dtype(1) if node.kind(1) == "known" else node.chance.one_of(BYTES)
    columns = _matrices(node, ir.DataType.FLOAT, b)
    node.draw(2, (), fill="scale", dtype=ir.DataType.FLOAT)
    if node.has(3):
        node.draw(3, (), dtype=b)
    if node.has(4):
        node.draw(4, (columns,), dtype=ir.DataType.FLOAT)


def _matrices(node: SampledNode, a: ir.DataType, b: ir.DataType) -> int:
    rows, inner, columns = gemm_sizes(node, (0, False), (1, False))
    node.draw(0, (rows, inner), dtype=a)
    node.draw(1, (inner, columns), dtype=b)
    return columns


def expanded(node: SampledNode) -> None:
    shape = node.draw(0, None)
    node.draw(1, (), values=np.asarray(node.chance.number(0, len(shape)), np.int32), dtype=ir.DataType.INT32)
