"""Convolution of float32 whose weights are computed: they are packed in each run, then as direct convolution.

Networks that modulate their weights, or match a template, have such convolutions. The weights are requested with the
channels innermost, so that those of an output channel are one row, in the order of the steps of the reduction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse, collapse_taps
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue, preceded
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, Packed, write
from eqsat.codegen.kernels.vectors.matmul import Matrix, packing
from eqsat.ops.windows import Windows, windows
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey

_FEWEST = 8
"""Output channels of a group from which on vectors are filled well enough."""


def _accepts(task: Task) -> bool:
    x, w = task.inputs[:2]
    if not isinstance(x, View) or not isinstance(w, View) or not 3 <= x.rank <= 5 or any_free((*x.shape, *w.shape)):
        return False
    given = [x, w, task.output, *([task.inputs[2]] if task.has(2) and isinstance(task.inputs[2], View) else [])]
    if any(v.dtype != convolution.FLOAT or 0 in v.shape for v in given):
        return False
    return w.shape[0] // _groups(task) >= _FEWEST and is_vector_epilogue(task.epilogue)


def _groups(task: Task) -> int:
    return task.attributes.get("group", 1)


def _at(task: Task) -> Windows:
    return windows(task.attributes, task.view(0).shape[2:], task.view(1).shape[2:])


def _wants(task: Task) -> Wants:
    found = convolution.nhwc(task, convolution.halo(_at(task), task.view(0).shape[2:]))
    weights = Want(order=convolution.channels_last(task.view(1).rank), strict=True, dense=True)
    return replace(found, inputs=(*found.inputs, weights))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, w, at = task.view(0), task.view(1), _at(task)
    groups, inputs = _groups(task), w.shape[1]
    outputs, row = w.shape[0] // groups, math.prod(w.shape[1:])
    epilogue = with_bias(task, isa)
    made = convolution.results(task, epilogue)
    channel = {name: strides[1] for name, strides in made.items()}
    taps = [(n, s * d) for n, s, d in zip(at.kernel, x.strides[2:], at.dilations, strict=True)]
    problem = ImplicitGemm(
        input="x0",
        weights="panels",
        output="y0",
        outer=(),
        pixels=collapse(convolution.spatial_axes(task, at, made)),
        taps=collapse_taps([*taps, (inputs, x.strides[1])]),
        channels=outputs,
        channel=channel,
        layout=Packed(bias=False),
        origin={"x0": convolution.corner(task, at)},
    )
    if groups > 1:
        step = {"x0": inputs * x.strides[1], "panels": 0}
        problem = problem.inside(Axis(groups, step | {n: outputs * s for n, s in channel.items()}))
    matrix = Matrix("x1", (row, outputs), (1, row))
    prologue, scratch = packing(matrix, f" + n0 * {outputs * row}" if groups > 1 else "", isa)
    text = f"float *restrict panels = (float *)scratch;\n{write(problem, epilogue, isa, prologue)}"
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, tuple(epilogue.constants), scratch, (*epilogue.helpers, *helpers))


def with_bias(task: Task, isa: Isa, index: int = 2, first_constant: int = 0) -> VectorEpilogue:
    """The epilogue, which adds a bias first: the input of that index, computed, constant or absent."""
    bias, ones = task.inputs[index] if task.has(index) else None, (1,) * (task.output.rank - 2)
    added: Sequence[tuple[str, View | np.ndarray]] = ()
    names = {}
    if isinstance(bias, View):
        column = View(bias.dtype, (*bias.shape, *ones), (*bias.strides, *(0 for _ in ones)))
        added, names = [("Add", column.broadcast(task.output.shape))], {len(task.epilogue.operands): f"x{index}"}
    elif bias is not None:
        added = [("Add", bias.reshape(-1, *ones).astype(np.float32))]
    return VectorEpilogue(preceded(task.epilogue, added), task.output.shape, 1, isa, first_constant, names)


register(
    Family(
        "convolution of computed weights",
        (OpKey("", "Conv"),),
        _accepts,
        _generate,
        _wants,
        rank=8,
    )
)
