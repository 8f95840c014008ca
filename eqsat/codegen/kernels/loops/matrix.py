"""Products of matrices of one type; mirrors ``eqsat/ops/families/matmul.py``."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, TemplateTensor
from eqsat.codegen.kernels.loops.family import MICROSOFT, NUMBERS, are, loops
from eqsat.codegen.kernels.loops.fused import activated, can_activate
from eqsat.codegen.kernels.loops.products import (
    accumulator_of,
    matrices,
    plain,
    product,
    product_of_doubles,
    stacked,
)
from eqsat.schema.dtypes import FLOATS


def _matmul_of_doubles(task: Task, isa: Isa) -> GeneratedKernel | None:
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    if y.value_dtype != ir.DataType.DOUBLE:
        return None
    return product_of_doubles(template, stacked(left, right, y), lambda b, m, n: "sums[n]", isa)


@loops("matrix loops", "MatMul", accepts=lambda task: are(task, NUMBERS), faster=_matmul_of_doubles)
def matmul(task: Task) -> GeneratedKernel:
    """Matrix product with numpy's broadcasting."""
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    return plain(template, stacked(left, right, y), y)


@loops("matrix loops", "FusedMatMul", "TransposeMatMul", domain=MICROSOFT, accepts=lambda task: are(task, FLOATS))
def fused_matmul(task: Task) -> GeneratedKernel:
    """``alpha * A' B'``; ``transBatch`` moves the first axis before the last but one."""
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    attributes = task.attributes
    left = _arranged(left, bool(attributes.get("transA")), bool(attributes.get("transBatchA")))
    right = _arranged(right, bool(attributes.get("transB")), bool(attributes.get("transBatchB")))
    alpha = attributes["alpha"]
    scale = "" if alpha == 1.0 else f" * {c_types.literal(alpha, y.value_dtype)}"
    return plain(template, stacked(left, right, y), y, scale)


def _arranged(x: TemplateTensor, transpose: bool, batch: bool) -> TemplateTensor:
    axes = list(range(x.rank))
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if transpose and x.rank > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    return x.transpose(axes)


def _gemm(task: Task, activation: str = "", isa: Isa | None = None) -> GeneratedKernel | None:
    """The loops, or with an instruction set the kernel with vectors of doubles; None if there is none."""
    template = Template(task)
    left, right, y = matrices(template, 0, 1)
    attributes = task.attributes
    left = left.transpose((1, 0)) if attributes["transA"] else left
    right = right.transpose((1, 0)) if attributes["transB"] else right
    c = template.x[2]
    p = stacked(left, right, y)
    dtype = y.value_dtype
    alpha, beta = attributes["alpha"], attributes["beta"]

    def scaled(value: str, factor: float) -> str:
        if factor == 1.0:
            return value
        if dtype in FLOATS:
            return f"{value} * {c_types.literal(factor, dtype)}"
        number = c_types.literal(factor, ir.DataType.DOUBLE)
        return template.convert(f"((double){value} * {number})", ir.DataType.DOUBLE, dtype)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        value = scaled(f"({y.c})sums[n]", alpha)
        if c is not None and beta != 0.0:
            term = scaled(c.broadcast(y.shape).load(m, n), beta)
            value = f"({value}) + ({term})" if dtype in FLOATS else f"({y.c})((uint64_t)({value}) + (uint64_t)({term}))"
        return activated(activation, value, attributes) if activation else value

    if isa is not None:
        return product_of_doubles(template, p, finish, isa) if dtype == ir.DataType.DOUBLE else None
    return product(template, p, accumulator_of(dtype), y.c, finish)


@loops("matrix loops", "Gemm", accepts=lambda task: are(task, NUMBERS), faster=lambda task, isa: _gemm(task, isa=isa))
def gemm(task: Task) -> GeneratedKernel:
    """``alpha * A' B' + beta * C``."""
    return _known(_gemm(task))


def _known(kernel: GeneratedKernel | None) -> GeneratedKernel:
    assert kernel is not None
    return kernel


@loops("matrix loops", "FusedGemm", domain=MICROSOFT, accepts=lambda task: are(task, FLOATS) and can_activate(task))
def fused_gemm(task: Task) -> GeneratedKernel:
    """Gemm, then an activation."""
    return _known(_gemm(task, str(task.attributes.get("activation") or "")))
