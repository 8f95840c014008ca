"""Transposed convolution of float32 in NHWC: an implicit GEMM for each phase of the stride."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Shape, Task, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse, collapse_taps
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, pack, packed_size, write
from eqsat.codegen.kernels.vectors.transposed_geometry import Band, Transposed, geometry
from eqsat.schema.types import OpKey


def _wants(task: Task) -> Wants:
    return convolution.nhwc(task, geometry(task).halo(task.view(0).shape[2:]))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    at = geometry(task)
    epilogue = VectorEpilogue(task.epilogue, task.output.shape, 1, isa, first_constant=1)
    made = convolution.results(task, epilogue)
    text, packed = "", []
    for bands in product(*at.bands):
        problem, weights = _part(task, at, bands, made, sum(map(len, packed)))
        text += write(problem, epilogue, isa)
        packed.append(weights)
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, (np.concatenate(packed), *epilogue.constants), helpers=(*epilogue.helpers, *helpers))


def _part(
    task: Task, at: Transposed, bands: tuple[Band, ...], made: Mapping[str, Shape], offset: int
) -> tuple[ImplicitGemm, np.ndarray]:
    """The outputs of one band of each axis, and their weights, which begin at an offset."""
    x, w = task.view(0), task.constant(1)
    assert w is not None
    groups, outputs = int(task.attributes.get("group", 1)), w.shape[1]
    inputs, last = w.shape[0] // groups, x.rank - 1
    spatial = list(enumerate(bands, start=2))
    # Phases side by side are further channels where the outputs of a pixel end where those of the next begin.
    merged = bands[-1].phases if groups == 1 and all(s[last] == outputs * s[1] for s in made.values()) else 1
    phases = tuple(band.phases if a != last or merged == 1 else 1 for a, band in spatial)

    matrices = _matrices(w, bands, groups, merged)
    channels, steps = matrices.shape[-2:]
    bias = convolution.bias(task, groups * outputs).reshape(1, groups, outputs)
    biases = np.tile(bias, (math.prod(phases), 1, merged)).reshape(-1, channels)
    step = packed_size(channels, steps)
    outer = [Axis(groups, {"x0": inputs * x.strides[1], "w0": step} | {n: outputs * s[1] for n, s in made.items()})]
    step *= groups
    for count, (a, _) in reversed(list(zip(phases, spatial, strict=True))):
        outer.insert(0, Axis(count, {"w0": step} | {n: s[a] for n, s in made.items()}))
        step *= count

    pixels = [Axis(x.shape[0], {"x0": x.strides[0]} | {n: s[0] for n, s in made.items()})]
    for (a, band), stride in zip(spatial, at.strides, strict=True):
        pixels.append(Axis(band.count, {"x0": x.strides[a]} | {n: stride * s[a] for n, s in made.items()}))
    taps = [(len(band.taps[0]), band.step * x.strides[a]) for a, band in spatial]
    origin = {n: sum(band.first * s[a] for a, band in spatial) for n, s in made.items()}
    problem = ImplicitGemm(
        input="x0",
        weights="w0",
        output="y0",
        outer=collapse(outer),
        pixels=collapse(pixels),
        taps=collapse_taps([*taps, (inputs, x.strides[1])]) if steps else ((0, 1),),
        channels=channels,
        channel={n: s[1] for n, s in made.items()},
        origin=origin | {"x0": sum(band.start * x.strides[a] for a, band in spatial), "w0": offset},
    )
    return problem, pack(matrices, biases)


def _matrices(w: np.ndarray, bands: tuple[Band, ...], groups: int, merged: int) -> np.ndarray:
    """The weights of all phases of some bands, ``[phases * groups, channels, steps]``.

    Args:
        w: ``[groups * inputs, outputs, *window]``.
        bands: One of each axis.
        groups: Of channels.
        merged: Phases of the last axis whose outputs are the channels of one matrix.
    """
    inputs, outputs = w.shape[0] // groups, w.shape[1]
    grouped = np.moveaxis(w.astype(np.float32).reshape(groups, inputs, *w.shape[1:]), 1, -1)
    found = []
    for taps in product(*(band.taps for band in bands)):
        chosen = grouped
        for axis, some in enumerate(taps, start=2):
            chosen = chosen.take(some, axis)
        found.append(chosen.reshape(groups, outputs, math.prod(chosen.shape[2:])))
    stacked = np.stack(found)
    return stacked.reshape(len(found) // merged * groups, merged * outputs, stacked.shape[-1])


register(
    Family(
        "transposed convolution",
        (OpKey("", "ConvTranspose"),),
        convolution.is_float_convolution,
        _generate,
        _wants,
        rank=10,
    )
)
