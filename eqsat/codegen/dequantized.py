"""Finds products that a quantized model computes in floats, because generated C computes them in floats as well.

In the QDQ format a quantized convolution is DequantizeLinear, Conv, QuantizeLinear. The optimizer turns them into one
integer operator. Without it, the C of a quantized model is as slow as that of a float model, and its author should be
told.
"""

from __future__ import annotations

import onnx_ir as ir

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def dequantized_products(model: ir.Model) -> int:
    """How many products of a model's graph have both factors from DequantizeLinear."""
    return sum(
        node.domain in ("", "ai.onnx")
        and node.op_type in PRODUCTS
        and len(node.inputs) >= 2
        and all(_is_dequantized(value) for value in node.inputs[:2])
        for node in model.graph
    )


def _is_dequantized(value: ir.Value | None) -> bool:
    producer = value.producer() if value is not None else None
    return producer is not None and producer.op_type == "DequantizeLinear"
