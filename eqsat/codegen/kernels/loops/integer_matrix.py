"""Products of 8-bit matrices, and quantization by the data's own range; mirrors ``integer.py`` and ``fused.py``."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.elementwise_spelling import spell, spelled
from eqsat.codegen.expressions.quantization import saturated
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, TemplateTensor, only
from eqsat.codegen.kernels.loops.family import MICROSOFT, are, loops
from eqsat.codegen.kernels.loops.products import (
    Finish,
    Product,
    along_columns,
    along_rows,
    matrices,
    product,
    stacked,
)
from eqsat.codegen.program import ProgramNode, ProgramTensor
from eqsat.schema.dtypes import BYTES, FLOATS
from eqsat.schema.types import OpKey


@loops("integer matrix loops", "MatMulInteger", accepts=lambda task: are(task, BYTES))
def matmul_integer(task: Task) -> GeneratedKernel:
    """Product of 8-bit operands in int32."""
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    zeros = (template.x[2], template.x[3])
    p = stacked(left, right, y)
    return product(template, p, "uint32_t", "int32_t", lambda b, m, n: "(int32_t)sums[n]", zeros)


@loops("integer matrix loops", "QLinearMatMul", accepts=lambda task: are(task, BYTES, 0, 2, 3, 5, 7))
def qlinear_matmul(task: Task) -> GeneratedKernel:
    """Product of quantized operands, requantized."""
    template = Template(task)
    left, right, y = matrices(template, 0, 3)
    p = stacked(left, right, y)
    a_scale, b_scale, y_scale, y_zero = template.operands(1, 4, 6, 7)
    rows, columns = along_rows(a_scale, p), along_columns(b_scale, p)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        scale = f"((float){rows(b, m)} * (float){columns(b, n)} / (float){only(y_scale)})"
        return saturated(f"rintf((float)(int32_t)sums[n] * {scale}) + (float){only(y_zero)}", y.value_dtype)

    return product(template, p, "uint32_t", y.c, finish, (template.x[2], template.x[5]))


def _to_float(p: Product, a_scale: str, b_scale: TemplateTensor, bias: TemplateTensor | None) -> Finish:
    columns = along_columns(b_scale, p)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        value = f"(float)(int32_t)sums[n] * ({a_scale} * {columns(b, n)})"
        return value if bias is None else f"{value} + {bias.vector(0, 1).load(n)}"

    return finish


@loops("integer matrix loops", "MatMulIntegerToFloat", domain=MICROSOFT, accepts=lambda task: are(task, BYTES, 0, 1))
def matmul_integer_to_float(task: Task) -> GeneratedKernel:
    """Product of 8-bit operands, scaled, plus a bias."""
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    p = stacked(left, right, y)
    b_scale = template.operand(3)
    finish = _to_float(p, only(template.x[2]), b_scale, template.x[6])
    return product(template, p, "uint32_t", y.c, finish, (template.x[4], template.x[5]))


@loops(
    "integer matrix loops",
    "DynamicQuantizeMatMul",
    domain=MICROSOFT,
    accepts=lambda task: are(task, FLOATS, 0) and are(task, BYTES, 1),
)
def dynamic_quantize_matmul(task: Task) -> GeneratedKernel:
    """The product of integers whose left operand is quantized by its own range."""
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    p = stacked(left, right, y)
    b_scale = template.operand(2)
    finish = _to_float(p, "scale", b_scale, template.x[4])

    def quantized(b: Sequence[str], m: str, k: str) -> str:
        real = p.left.load(*b, m, k)
        return f"(uint32_t)(saturate_float(rintf({real} / scale) + zero, 0.0f, 255.0f) - (int32_t)zero)"

    zeros = (None, template.x[3])
    return product(template, p, "uint32_t", y.c, finish, zeros, replaced=quantized, source=left)


@spelled("DynamicQuantizeMatMul", domain=MICROSOFT)
def _quantized_before(node: ProgramNode) -> list[ProgramNode] | None:
    """The left operand in 8 bits, then a product, as both have kernels of their own."""
    a, b, b_scale, b_zero, bias = [*node.inputs, None, None][:5]
    if not isinstance(a, ProgramTensor) or a.dtype != ir.DataType.FLOAT:
        return None
    parts = {
        "quantized": (ir.DataType.UINT8, a.shape),
        "scale": (ir.DataType.FLOAT, ()),
        "zero": (ir.DataType.UINT8, ()),
    }
    made = [ProgramTensor(f"{node.output.name}_{name}", *part) for name, part in parts.items()]
    quantize = OpKey("", "DynamicQuantizeLinear")
    range_of_data = ProgramNode(f"{node.name}_quantized", quantize, {}, [a], [*made], ir.DataType.UINT8)
    operands = [made[0], b, made[1], b_scale, made[2], b_zero, bias]
    product_of_bytes = OpKey(MICROSOFT, "MatMulIntegerToFloat")
    return [
        *spell(range_of_data),
        ProgramNode(node.name, product_of_bytes, {}, operands, list(node.outputs), node.dtype),
    ]


@loops("integer matrix loops", "QGemm", domain=MICROSOFT, accepts=lambda task: are(task, BYTES, 0, 3))
def qgemm(task: Task) -> GeneratedKernel:
    """``alpha * A' B' + C`` of quantized operands, requantized or, without an output scale, as floats."""
    template = Template(task)
    left, right, y = matrices(template, 0, 3)
    left = left.transpose((1, 0)) if task.attributes["transA"] else left
    right = right.transpose((1, 0)) if task.attributes["transB"] else right
    p = stacked(left, right, y)
    b_scale = template.operand(4)
    columns = along_columns(b_scale, p)
    c = template.x[6]
    alpha = c_types.literal(task.attributes["alpha"], ir.DataType.FLOAT)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        total = "sums[n]" if c is None else f"(sums[n] + (uint32_t){c.broadcast(y.shape).load(m, n)})"
        scale = f"({alpha} * {only(template.x[1])} * {columns(b, n)})"
        if not task.has(7):
            return f"(float)(int32_t){total} * {scale}"
        value = f"rintf((float)(int32_t){total} * ({scale} / {only(template.x[7])})) + (float){only(template.x[8])}"
        return saturated(value, y.value_dtype)

    return product(template, p, "uint32_t", y.c, finish, (template.x[2], template.x[5]))


@loops("dynamic quantization", "DynamicQuantizeLinear", accepts=lambda task: are(task, FLOATS, 0), epilogue=False)
def dynamic_quantize_linear(task: Task) -> GeneratedKernel:
    """To uint8 with the scale and zero point of the data's own range."""
    return Template(task).fill("loops/dynamic_quantize.c.jinja")
