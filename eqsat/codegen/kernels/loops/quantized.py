"""Quantization by axis and by block, softmax of integers; mirrors ``quantization.py`` and ``qlinear.py`` of ``ops``.

If scales and zero points broadcast without reshaping, quantization is an elementwise step instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types, program
from eqsat.codegen.elementwise_spelling import as_chain, spelled
from eqsat.codegen.expressions.expression_table import Argument, Expression, scalar
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, TemplateTensor, only
from eqsat.codegen.kernels.loops.family import MICROSOFT, are, dtype_of, loops, shape_of
from eqsat.codegen.kernels.loops.reductions import axes_apart, joined
from eqsat.codegen.program import RESHAPE, ProgramNode, ProgramOperand
from eqsat.schema.dimension import as_divisor
from eqsat.schema.dtypes import BYTES, integer_limits
from eqsat.schema.size_questions import is_free

_LETTERS = "abcde"


def _expression(task: Task) -> Expression | None:
    """The operator on one element, whose operands are ``a``, ``b``, ..."""
    arguments = [
        None if (dtype := dtype_of(task, i)) is None else Argument(_LETTERS[i], dtype)
        for i in range(min(len(task.inputs), len(_LETTERS)))
    ]
    return scalar(task.operator, task.attributes, arguments, task.epilogue.dtype)


def _accepts(task: Task) -> bool:
    return len(task.inputs) <= len(_LETTERS) and task.outputs[0] is not None and _expression(task) is not None


def _parameter(v: TemplateTensor, i: Sequence[str], axis: int, block: int) -> str:
    """Element of a scale or zero point: one for all, one for each index of the axis, or one per block."""
    if v.size == 1:
        return only(v)
    if v.rank == 1:
        return v.load(i[axis])
    return v.load(*(f"{k} / {block}" if a == axis and block else k for a, k in enumerate(i)))


@loops("quantizing loops", "QuantizeLinear", "DequantizeLinear", accepts=_accepts)
@loops("quantizing loops", "QuantizeLinear", "DequantizeLinear", domain=MICROSOFT, accepts=_accepts)
@loops("quantizing loops", "Requantize", domain="eqsat", accepts=_accepts)
def quantize(task: Task) -> GeneratedKernel:
    """Each element by the parameters of its place."""
    template = Template(task)
    found = _expression(task)
    assert found is not None
    template.need(found.helpers)
    rank = len(shape_of(task, 0))
    axis, block = task.attributes.get("axis", 1), task.attributes.get("block_size", 0) or 0
    axis = axis % rank if rank else 0

    def operands(i: Sequence[str]) -> list[tuple[str, str, str]]:
        made = []
        for number, letter in enumerate(_LETTERS[: len(task.inputs)]):
            v = template.x[number]
            if v is not None:
                made.append((letter, v.c, v.load(*i) if number == 0 else _parameter(v, i, axis, block)))
        return made

    return template.fill("loops/quantize_blocks.c.jinja", specialised=True, operands=operands, value=found.text)


@loops("integer softmax", "QLinearSoftmax", domain=MICROSOFT, accepts=lambda task: are(task, BYTES, 0))
def qlinear_softmax(task: Task) -> GeneratedKernel:
    """Softmax of 8 bits by a table of exponentials."""
    template = Template(task)
    x = template.operand(0)
    axis = task.attributes["axis"] % x.rank
    axes = tuple(range(axis, x.rank)) if task.attributes["opset"] < 13 else (axis,)
    kept, reduced = axes_apart(x.shape, axes)
    count, most = math.prod(reduced), float(np.finfo(np.float32).max)
    table, scale = None, task.constant(1)
    if is_free(count):
        shift = f"log({c_types.literal(most, ir.DataType.DOUBLE)} / {as_divisor(count)}) - 5.0"
    else:
        known = math.log(most / max(count, 1)) - 5
        shift = c_types.literal(known, ir.DataType.DOUBLE)
        if scale is not None:
            levels = (np.arange(256) - 255) * np.float64(scale.reshape(()))
            table = template.table(np.exp(levels + known).astype(np.float32))
    low, high = integer_limits(x.dtype)
    zero = only(template.x[4])
    return template.fill(
        "loops/qlinear_softmax.c.jinja",
        kept=kept,
        reduced=reduced,
        at=joined(axes),
        table=table,
        scale=None if table is not None else only(template.x[1]),
        shift=shift,
        y_scale=only(template.x[3]),
        y_zero=zero,
        overflow=f"({low})" if low < 0 else zero,
        lowest=f"({low})",
        highest=high,
        scratch=0 if table is not None else 1024,
    )


@spelled("QuantizeLinear", "DequantizeLinear")
@spelled("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
@spelled("Requantize", domain="eqsat")
def _quantization(node: ProgramNode) -> list[ProgramNode] | None:
    """Scale and zero point of one axis are shaped as operands that broadcast."""
    x, scale, *rest = node.inputs
    if x is None or scale is None or node.attributes.get("block_size"):
        return None
    made: list[ProgramNode] = []
    rank = len(x.shape)
    operands: list[ProgramOperand | None] = [scale, *rest]
    if len(scale.shape) == 1 and rank > 0:
        axis = node.attributes["axis"] % rank
        for k, v in enumerate(operands):
            if v is not None and len(v.shape) == 1:
                shape = tuple(v.shape[0] if a == axis else 1 for a in range(rank))
                operands[k] = _shaped(node.name, v, shape, made)
    chain = as_chain(
        ProgramNode(node.name, node.operator, node.attributes, [x, *operands], list(node.outputs), node.dtype)
    )
    return [*made, chain] if chain is not None else None


def _shaped(name: str, x: ProgramOperand, shape: tuple[int, ...], made: list[ProgramNode]) -> ProgramOperand:
    if isinstance(x, np.ndarray):
        return x.reshape(shape)
    out = program.ProgramTensor(f"{x.name}_shaped", x.dtype, shape)
    made.append(ProgramNode(name, RESHAPE, {}, [x], [out], x.dtype))
    return out
