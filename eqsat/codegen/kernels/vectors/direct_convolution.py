"""Direct convolution of float32 in NHWC: an implicit GEMM over the input with its padding around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse, collapse_taps
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.convolution_geometry import Reached
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, Selected, pack, packed_size, write
from eqsat.schema.types import OpKey


def _wants(task: Task) -> Wants:
    at, _ = convolution.reached(task)
    around = () if convolution.regions(task, at) else convolution.halo(at, task.view(0).shape[2:])
    return convolution.nhwc(task, around)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x = task.view(0)
    at, w = convolution.reached(task)
    groups = x.shape[1] // w.shape[1]
    inputs, outputs = w.shape[1], w.shape[0] // groups
    epilogue = VectorEpilogue(task.epilogue, task.output.shape, 1, isa, first_constant=1)
    made = convolution.results(task, epilogue)
    channel = {name: strides[1] for name, strides in made.items()}
    taps = [(n, s * d) for n, s, d in zip(at.kernel, x.strides[2:], at.dilations, strict=True)]
    axes = convolution.spatial_axes(task, at, made)
    problem = ImplicitGemm(
        input="x0",
        weights="w0",
        output="y0",
        outer=(),
        pixels=collapse(axes),
        taps=collapse_taps([*taps, (inputs, x.strides[1])]),
        channels=outputs,
        channel=channel,
        origin={"x0": convolution.corner(task, at)},
    )
    if groups > 1:
        step = {"x0": inputs * x.strides[1], "w0": packed_size(outputs, problem.steps)}
        problem = problem.inside(Axis(groups, step | {n: outputs * s for n, s in channel.items()}))
    regions = convolution.regions(task, at)
    problems = [_region(problem, axes, taps, some) for some in product(*regions)] if regions else [problem]
    matrix = np.moveaxis(w.astype(np.float32), 1, -1).reshape(groups, outputs, -1)
    packed = pack(matrix, convolution.bias(task, w.shape[0]).reshape(groups, outputs))
    body, helpers = finish("".join(write(part, epilogue, isa) for part in problems), isa)
    return GeneratedKernel(body, (packed, *epilogue.constants), helpers=(*epilogue.helpers, *helpers))


def _region(
    whole: ImplicitGemm, axes: Sequence[Axis], taps: Sequence[tuple[int, int]], some: Sequence[Reached]
) -> ImplicitGemm:
    """The outputs of one part of each spatial axis, which the same taps reach."""
    origin = dict(whole.origin)
    for axis, part, (_, step) in zip(axes[1:], some, taps, strict=True):
        for name, stride in axis.strides.items():
            origin[name] = origin.get(name, 0) + part.first * stride
        origin["x0"] += part.tap * step
    inputs = whole.steps // math.prod(n for n, _ in taps)
    rows = [inputs * math.prod(n for n, _ in taps[k + 1 :]) for k in range(len(taps))]
    kept = [replace(axis, extent=part.count) for axis, part in zip(axes[1:], some, strict=True)]
    return replace(
        whole,
        pixels=collapse([axes[0], *kept]),
        taps=(*((part.taps, step) for part, (_, step) in zip(some, taps, strict=True)), (inputs, 1)),
        layout=Selected(whole.steps, sum(p.tap * row for p, row in zip(some, rows, strict=True)), tuple(rows)),
        origin=origin,
    )


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
