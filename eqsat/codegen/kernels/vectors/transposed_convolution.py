"""Transposed convolution of float32 in NHWC: an implicit GEMM for each phase of the stride."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse, collapse_taps
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import SLACK, VectorEpilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, Packed, pack, packed_size, write
from eqsat.codegen.kernels.vectors.transposed_geometry import Band, Transposed, geometry
from eqsat.schema.types import OpKey, Shape


def _wants(task: Task) -> Wants:
    return convolution.nhwc(task, geometry(task).halo(task.view(0).shape[2:]))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    w, groups = task.constant(1), int(task.attributes.get("group", 1))
    assert w is not None
    epilogue = VectorEpilogue(task.epilogue, task.output.shape, 1, isa, first_constant=1)
    bias = convolution.bias(task, groups * w.shape[1]).reshape(1, groups, -1)
    text, packed = "", []
    for part in parts(task, convolution.results(task, epilogue), "w0", Packed()):
        text += write(part.problem, epilogue, isa)
        matrices = _matrices(w, part, groups)
        biases = np.tile(bias, (len(matrices) // groups, 1, part.merged)).reshape(len(matrices), -1)
        packed.append(pack(matrices, biases)[: part.size])
    body, helpers = finish(text, isa)
    weights = np.concatenate([*packed, np.zeros(SLACK, np.float32)])
    return GeneratedKernel(body, (weights, *epilogue.constants), helpers=(*epilogue.helpers, *helpers))


@dataclass(frozen=True, slots=True)
class PhaseBlock:
    """The outputs of one band of each axis.

    Attributes:
        problem: Of all phases.
        taps: Of the window, for each phase of each axis.
        merged: Phases of the last axis whose outputs are the channels of one matrix.
        start: Where its weights begin.
        size: Floats of its weights.
    """

    problem: ImplicitGemm
    taps: tuple[tuple[tuple[int, ...], ...], ...]
    merged: int
    start: int
    size: int


def parts(task: Task, made: Mapping[str, Shape], weights: str, layout: Packed) -> Iterator[PhaseBlock]:
    """All outputs.

    Args:
        task: The task.
        made: Strides of the results.
        weights: Name of the pointer to the weights of all parts.
        layout: Of the weights.
    """
    at, start = geometry(task), 0
    for bands in product(*at.bands):
        part = _part(task, at, bands, made, weights, layout, start)
        start += part.size
        yield part


def _part(
    task: Task,
    at: Transposed,
    bands: tuple[Band, ...],
    made: Mapping[str, Shape],
    weights: str,
    layout: Packed,
    start: int,
) -> PhaseBlock:
    x, w = task.view(0), task.inputs[1]
    assert w is not None
    groups, outputs = int(task.attributes.get("group", 1)), w.shape[1]
    inputs, last = w.shape[0] // groups, x.rank - 1
    spatial = list(enumerate(bands, start=2))
    # Phases side by side are further channels where the outputs of a pixel end where those of the next begin.
    merged = bands[-1].phases if groups == 1 and all(s[last] == outputs * s[1] for s in made.values()) else 1
    phases = tuple(band.phases if a != last or merged == 1 else 1 for a, band in spatial)

    channels, steps = merged * outputs, inputs * math.prod(len(band.taps[0]) for band in bands)
    step = packed_size(channels, steps, bias=layout.bias)
    outer = [Axis(groups, {"x0": inputs * x.strides[1], weights: step} | {n: outputs * s[1] for n, s in made.items()})]
    step *= groups
    for count, (a, _) in reversed(list(zip(phases, spatial, strict=True))):
        outer.insert(0, Axis(count, {weights: step} | {n: s[a] for n, s in made.items()}))
        step *= count

    pixels = [Axis(x.shape[0], {"x0": x.strides[0]} | {n: s[0] for n, s in made.items()})]
    for (a, band), stride in zip(spatial, at.strides, strict=True):
        pixels.append(Axis(band.count, {"x0": x.strides[a]} | {n: stride * s[a] for n, s in made.items()}))
    taps = [(len(band.taps[0]), band.step * x.strides[a]) for a, band in spatial]
    origin = {n: sum(band.first * s[a] for a, band in spatial) for n, s in made.items()}
    problem = ImplicitGemm(
        input="x0",
        weights=weights,
        output="y0",
        outer=collapse(outer),
        pixels=collapse(pixels),
        taps=collapse_taps([*taps, (inputs, x.strides[1])]) if steps else ((0, 1),),
        channels=channels,
        channel={n: s[1] for n, s in made.items()},
        layout=layout,
        origin=origin | {"x0": sum(band.start * x.strides[a] for a, band in spatial), weights: start},
    )
    return PhaseBlock(problem, tuple(band.taps for band in bands), merged, start, step)


def _matrices(w: np.ndarray, part: PhaseBlock, groups: int) -> np.ndarray:
    """The weights of all phases, ``[phases * groups, channels, steps]``, of ``[groups * inputs, outputs, *window]``."""
    inputs, outputs = w.shape[0] // groups, w.shape[1]
    grouped = np.moveaxis(w.astype(np.float32).reshape(groups, inputs, *w.shape[1:]), 1, -1)
    found = []
    for taps in product(*part.taps):
        chosen = grouped
        for axis, some in enumerate(taps, start=2):
            chosen = chosen.take(some, axis)
        found.append(chosen.reshape(groups, outputs, math.prod(chosen.shape[2:])))
    stacked = np.stack(found)
    return stacked.reshape(len(found) // part.merged * groups, part.merged * outputs, stacked.shape[-1])


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
