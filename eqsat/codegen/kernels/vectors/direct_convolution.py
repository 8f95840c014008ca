"""Direct convolution of float32 in NHWC: an implicit GEMM over the input with its padding around it."""

from __future__ import annotations

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, Kernel, Task, Wants
from eqsat.codegen.kernels.shared.registry import register
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import Axis, Problem, collapse, collapse_taps, pack, packed_size, write
from eqsat.codegen.vectors import finish
from eqsat.schema.types import OpKey


def _wants(task: Task) -> Wants:
    at, _ = convolution.reached(task)
    return convolution.nhwc(task, convolution.halo(at, task.view(0).shape[2:]))


def _generate(task: Task, isa: Isa) -> Kernel:
    x = task.view(0)
    at, w = convolution.reached(task)
    groups = x.shape[1] // w.shape[1]
    inputs, outputs = w.shape[1], w.shape[0] // groups
    epilogue = VectorEpilogue(task.epilogue, task.output.shape, 1, isa, first_constant=1)
    made = convolution.results(task, epilogue)
    channel = {name: strides[1] for name, strides in made.items()}
    taps = [(n, s * d) for n, s, d in zip(at.kernel, x.strides[2:], at.dilations, strict=True)]
    problem = Problem(
        input="x0",
        weights="w0",
        output="y0",
        outer=(),
        pixels=collapse(convolution.spatial_axes(task, at, made)),
        taps=collapse_taps([*taps, (inputs, x.strides[1])]),
        channels=outputs,
        channel=channel,
        origin={"x0": convolution.corner(task, at)},
    )
    if groups > 1:
        step = {"x0": inputs * x.strides[1], "w0": packed_size(outputs, problem.steps)}
        problem = problem.inside(Axis(groups, step | {n: outputs * s for n, s in channel.items()}))
    matrix = np.moveaxis(w.astype(np.float32), 1, -1).reshape(groups, outputs, -1)
    packed = pack(matrix, convolution.bias(task, w.shape[0]).reshape(groups, outputs))
    body, helpers = finish(write(problem, epilogue, isa), isa)
    return Kernel(body, (packed, *epilogue.constants), helpers=(*epilogue.helpers, *helpers))


register(
    Family(
        "direct convolution",
        (OpKey("", "Conv"),),
        convolution.is_float_convolution,
        _generate,
        _wants,
        rank=10,
    )
)
