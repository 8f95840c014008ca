"""Depthwise convolution of float32 in NHWC: each channel has its own windows, vectors are channels of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop, collapse, loops_over, moves_of
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import SLACK, VectorEpilogue, load, store
from eqsat.codegen.kernels.vectors.implicit_gemm import epilogue_first
from eqsat.schema.size_questions import typical
from eqsat.schema.types import OpKey

_ROW = 16
"""Rows of weights are a multiple of this, so that they are aligned for every instruction set."""
_UNROLLED = 25
"""Taps that are unrolled at most; further ones are loops."""
_MULTIPLES = (1, 2, 4)
"""Supported numbers of results per channel: this many neighbouring lanes read the same input."""
_NEAR = 256 * 1024
"""Bytes of input that stay in the second cache while all its pixels are visited for a vector of channels."""


@dataclass(frozen=True, slots=True)
class DepthwiseNest:
    """A loop nest around one kind of tile, as the template wants it."""

    loops: list[NestLoop]
    pointers: list[tuple[str, str]]
    pixels: list[int]
    load: Mapping[int, str]
    stores: list[str]


@dataclass(frozen=True, slots=True)
class DepthwiseChannels:
    """Vectors of channels with equally many lanes in use."""

    first: int
    count: int
    nests: list[DepthwiseNest]


def _accepts(task: Task) -> bool:
    if not convolution.is_float_convolution(task):
        return False
    w = task.constant(1)
    assert w is not None
    channels = task.view(0).shape[1]
    return w.shape[1] == 1 and channels > 1 and w.shape[0] in [channels * n for n in _MULTIPLES]


def _wants(task: Task) -> Wants:
    at = convolution.geometry(task)
    return convolution.nhwc(task, convolution.halo(at, task.view(0).shape[2:]))


def tile(columns: int, isa: Isa, taps: int) -> int:
    """Pixels of a tile: as many as registers allow, with little left over.

    Args:
        columns: Of the output.
        isa: Instruction set.
        taps: That are unrolled: windows share the elements of several ones, which are in registers as well.
    """
    most = 8 if isa.registers >= 32 else 4 if isa.vectors else 2
    most = most if taps > 1 else isa.registers - 4
    return min(range(1, min(most, columns) + 1), key=lambda n: (sum(k + 1 for _, _, k in split(columns, n)), -n))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, w = task.view(0), task.constant(1)
    assert w is not None
    at = convolution.geometry(task)
    lanes, channels = isa.lanes(), w.shape[0]
    many = channels // x.shape[1]
    row = -(-channels // _ROW) * _ROW
    epilogue = VectorEpilogue(task.epilogue, task.output.shape, 1, isa, first_constant=1)
    made = convolution.results(task, epilogue)
    axes = collapse(convolution.spatial_axes(task, at, made)) or (Axis(1, {}),)
    taps = [(n, s * d) for n, s, d in zip(at.kernel, x.strides[2:], at.dilations, strict=True)]
    looped: list[tuple[int, int]] = []
    while np.prod([n for n, _ in taps[:-1]], initial=1) * min(taps[-1][0], _UNROLLED) > _UNROLLED and len(taps) > 1:
        looped.append(taps.pop(0))
    if taps[-1][0] > _UNROLLED:
        looped, taps = [*looped, *taps], [(1, 0)]
    window = [
        sum(i * s for i, (_, s) in zip(index, taps, strict=True)) for index in product(*(range(n) for n, _ in taps))
    ]

    # Rows outside keep what neighbouring windows share in the first cache; a small input is visited channel by channel.
    near = 4 * channels * typical(math.prod(x.shape[2:])) <= _NEAR
    names = {"x0", *made}
    loops = loops_over("p", axes[:-1])
    outer, inner = ([], loops) if near else (loops, [])
    columns = axes[-1]

    def nests(first: int, live: int) -> list[DepthwiseNest]:
        found = []
        for start, size, count in split(columns.extent, tile(typical(columns.extent), isa, len(window))):
            nest = list(inner)
            if count != 1:
                nest.append(NestLoop("q", count, strides={n: size * columns.stride(n) for n in names}))
            pointers = []
            for name in ["x0", *epilogue_first(["y0", *epilogue.strides])]:
                step = x.strides[1] if name == "x0" else made[name][1]
                moved = moves_of(name, (*outer, *nest))
                moved += _channel(step, lanes, many if name == "x0" else 1) if step else ""
                base = start * columns.stride(name) + first // (many if name == "x0" else 1) * step
                base += convolution.corner(task, at) if name == "x0" else 0
                pointers.append((name, moved + (f" {base:+d}" if base else "")))
            pixels = [m * columns.stride("x0") for m in range(size)]
            loads = {p + t: _repeated(f"xr + {p + t}", live, many, isa) for p in pixels for t in window}
            stores = []
            for m in range(size):

                def address(name: str, m: int = m) -> str:
                    return f"{name}p + {m * columns.stride(name)}"

                lines, result = epilogue.write(f"c{m}", address, live)
                stores.append(" ".join(["{", *lines, store(address("y0"), result, made["y0"][1], live, isa), "}"]))
            found.append(DepthwiseNest(nest, pointers, pixels, loads, stores))
        return found

    blocks = [DepthwiseChannels(0, channels // lanes, nests(0, lanes))] if channels >= lanes else []
    if channels % lanes:
        first = channels // lanes * lanes
        blocks.append(DepthwiseChannels(first, 1, nests(first, channels - first)))
    text = render(
        "vectors/depthwise_convolution.c.jinja",
        outer=outer,
        blocks=blocks,
        lanes=lanes,
        row=row,
        taps=[NestLoop(f"t{i}", n, s) for i, (n, s) in enumerate(looped)],
        window=window,
    )
    body, helpers = finish(text, isa)
    return GeneratedKernel(
        body, (_pack(w, convolution.bias(task, channels), row), *epilogue.constants), 0, (*epilogue.helpers, *helpers)
    )


def _channel(step: int, lanes: int, many: int) -> str:
    """The offset that the number of a vector adds to a pointer if ``many`` lanes share an element."""
    return f" + c * {lanes // many * step}" if lanes % many == 0 else f" + c * {lanes} / {many} * {step}"


def _repeated(pointer: str, live: int, many: int, isa: Isa) -> str:
    """Channels of the input, each repeated in neighbouring lanes."""
    if isa.lanes() < many or many == 1:
        return load(pointer, 1, live, isa)
    half = _repeated(pointer, -(-live // 2), many // 2, isa)
    return f"zip_low@({half}, {half})"


def _pack(w: np.ndarray, bias: np.ndarray, row: int) -> np.ndarray:
    taps = w.reshape(w.shape[0], -1).T
    packed = np.zeros((1 + len(taps), row), np.float32)
    packed[0, : w.shape[0]] = bias
    packed[1:, : w.shape[0]] = taps
    return np.append(packed.ravel(), np.zeros(SLACK, np.float32))


register(Family("depthwise convolution", (OpKey("", "Conv"),), _accepts, _generate, _wants, rank=20))
