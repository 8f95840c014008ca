"""Products that a quantized model spells in floats, which generated C computes as they are spelled.

In the QDQ format a quantized convolution is DequantizeLinear, Conv, QuantizeLinear. The optimizer makes one integer
operator of that; a model that was not optimized is as slow in C as one that was never quantized, and who wrote it
should be told.
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
