"""Transposed convolution of float32 whose weights are computed: packed in each run, phase by phase of the stride."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors import transposed_geometry
from eqsat.codegen.kernels.vectors.computed_convolution import with_bias
from eqsat.codegen.kernels.vectors.epilogue import SLACK, is_vector_epilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import Packed, packed_size, panel_width, write
from eqsat.codegen.kernels.vectors.transposed_convolution import PhaseBlock, parts
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey


def _accepts(task: Task) -> bool:
    x, w = task.inputs[:2]
    if not isinstance(x, View) or not isinstance(w, View) or not 3 <= x.rank <= 5:
        return False
    if any_free((*x.shape, *w.shape, *task.output.shape)):
        return False
    given = [x, w, task.output, *([task.inputs[2]] if task.has(2) and isinstance(task.inputs[2], View) else [])]
    if any(v.dtype != convolution.FLOAT or 0 in v.shape for v in given):
        return False
    return is_vector_epilogue(task.epilogue)


def _wants(task: Task) -> Wants:
    halo = transposed_geometry.geometry(task).halo(task.view(0).shape[2:])
    found, w = convolution.nhwc(task, halo), Want(order=tuple(range(task.view(1).rank)))
    return replace(found, inputs=(*found.inputs, w))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    w, groups = task.view(1), int(task.attributes.get("group", 1))
    epilogue = with_bias(task, isa)
    found = list(parts(task, convolution.results(task, epilogue), "panels", Packed(bias=False)))
    inputs, table = w.shape[0] // groups, sorted(row for part in found for row in _taps(part, w, groups))
    packing = render(
        "vectors/transposed_weights.c.jinja",
        taps=table,
        # Squares of four outputs and four taps side by side are transposed.
        adjoin=isa.vectors and w.shape[1] % 4 == 0 and [row[0] for row in table] == list(range(len(table))),
        groups=groups,
        inputs=inputs,
        input=w.strides[0],
        outputs=w.shape[1],
        output=w.strides[1],
    )
    text = packing + "".join(write(part.problem, epilogue, isa) for part in found)
    body, helpers = finish(text, isa)
    scratch = 4 * (sum(part.size for part in found) + SLACK)
    return GeneratedKernel(body, tuple(epilogue.constants), scratch, (*epilogue.helpers, *helpers))


def _taps(part: PhaseBlock, w: View, groups: int) -> Iterator[tuple[int, ...]]:
    """The rows of the template's table for the taps of a part."""
    problem, outputs, inputs = part.problem, w.shape[1], w.shape[0] // groups
    width, size = panel_width(problem.channels), packed_size(problem.channels, problem.steps, bias=False)
    for number, phase in enumerate(product(*part.taps)):
        matrix, merged = divmod(number, part.merged)
        for k, taps in enumerate(product(*phase)):
            place = sum(t * s for t, s in zip(taps, w.strides[2:], strict=True))
            start = part.start + matrix * groups * size + k * inputs * width
            yield place, start, merged * outputs, width, width * problem.steps, size


register(
    Family(
        "transposed convolution of computed weights",
        (OpKey("", "ConvTranspose"),),
        _accepts,
        _generate,
        _wants,
        rank=8,
    )
)
