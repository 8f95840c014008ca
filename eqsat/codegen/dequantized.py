"""Finds products that a quantized model computes in floats, because generated C computes them in floats as well.

In the QDQ format a quantized convolution is DequantizeLinear, Conv, QuantizeLinear. The optimizer turns them into one
integer operator. Without it, the C of a quantized model is as slow as that of a float model, and its author should be
told.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.ops.operators import operator
from eqsat.schema.attributes import op_key


def dequantized_products(model: ir.Model) -> int:
    """How many products of a model's graph have both factors from DequantizeLinear."""
    return sum(
        _is_product(node) and len(node.inputs) >= 2 and all(_is_dequantized(value) for value in node.inputs[:2])
        for node in model.graph
    )


def _is_product(node: ir.Node) -> bool:
    """Whether a node multiplies with weights that quantization would make integers."""
    role = operator(op_key(node)).quantization
    return role is not None and role.weight is not None


def _is_dequantized(value: ir.Value | None) -> bool:
    producer = value.producer() if value is not None else None
    return producer is not None and producer.op_type == "DequantizeLinear"
