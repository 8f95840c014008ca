"""Scale and zero point of data that is quantized by its own range, in one pass of vectors over the data.

``DynamicQuantizeLinear`` is spelled as this and a quantization by the numbers that it finds, which is an elementwise
step and may lie in another layout. Values that are not numbers count for nothing.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.codegen.elementwise_spelling import as_chain, spelled
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.vectors.epilogue import load
from eqsat.codegen.kernels.vectors.shared_axes import SharedAxis, VectorLoop, merged, passes
from eqsat.codegen.program import FINDING, ProgramNode, ProgramTensor
from eqsat.schema.size_questions import is_free, magnitude, may_be_zero
from eqsat.schema.types import OpKey

RANGE = OpKey(FINDING, "DataRange")
"""From float32 to scale and zero point."""
_QUANTIZE = OpKey("", "QuantizeLinear")
_MANY = 4
"""Vectors whose ranges are found side by side."""


def accepts(task: Task) -> bool:
    """Float32 with an element, and nothing after it."""
    x = task.inputs[0]
    if not isinstance(x, View) or x.dtype != ir.DataType.FLOAT or task.epilogue.steps:
        return False
    return not any(map(may_be_zero, x.shape))


def generate(task: Task, isa: Isa) -> GeneratedKernel:
    """Loops over the input in the order of its memory."""
    x = task.view(0)
    order = sorted(range(x.rank), key=lambda a: (-magnitude(x.strides[a]), a))
    axes = merged([SharedAxis(x.shape[a], {"x0": x.strides[a]}) for a in order]) or [SharedAxis(1, {"x0": 1})]
    *outer, inner = axes
    step, lanes = inner.steps["x0"], isa.lanes()
    found = passes(inner.size, lanes, _MANY) if not is_free(inner.size) else []
    # The rest of a free size, element by element.
    rest = None
    if not found:
        width = lanes * _MANY
        whole = inner.size // width
        found = [VectorLoop(0, whole, width, tuple((k * lanes, lanes) for k in range(_MANY)))]
        rest = (whole * width, inner.size)
    parts = [
        (
            part.count,
            [
                load(f"p + i * {part.step * step} + {(part.first + first) * step}", step, live, isa)
                for first, live in part.vectors
            ],
        )
        for part in found
    ]
    text = render(
        "bytes/data_range.c.jinja",
        outer=[(f"r{k}", axis.size, axis.steps["x0"]) for k, axis in enumerate(outer)],
        parts=parts,
        rest=rest,
        step=step,
        many=max(len(vectors) for _, vectors in parts),
        outputs=[y is not None for y in task.outputs],
    )
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, helpers=helpers, contract=False)


FAMILY = register(Family("range of data", (RANGE,), accepts, generate))


@spelled("DynamicQuantizeLinear")
def _by_its_range(node: ProgramNode) -> list[ProgramNode] | None:
    """Scale and zero point, and a quantization by them."""
    (x,) = node.inputs
    if not isinstance(x, ProgramTensor) or x.dtype != ir.DataType.FLOAT or any(map(may_be_zero, x.shape)):
        return None
    y, scale, zero = (*node.outputs, None, None)[:3]
    scale = scale or ProgramTensor(f"{node.name}_scale", ir.DataType.FLOAT, ())
    zero = zero or ProgramTensor(f"{node.name}_zero", ir.DataType.UINT8, ())
    made = [ProgramNode(node.name, RANGE, {}, [x], [scale, zero], ir.DataType.FLOAT)]
    if y is not None:
        quantized = ProgramNode(node.name, _QUANTIZE, {}, [x, scale, zero], [y], ir.DataType.UINT8)
        chain = as_chain(quantized)
        if chain is None:
            return None
        made.append(chain)
    return made
