"""Convolutions of float32 to few channels, also transposed: vectors lie along the rows of the image, as ONNX has it.

Vectors of channels would be filled in part only: by the three of an image, by the one of a mask, or where each channel
has a window of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Halo, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import NestLoop, moves_of
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors import transposed_geometry
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, store
from eqsat.codegen.kernels.vectors.interleaving import interleaved
from eqsat.codegen.kernels.vectors.transposed_geometry import Band
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey, Shape

MOST = 4
"""Channels of a group that are few."""
LEAST = 8
"""Columns of an image whose rows are worth a vector."""
_TRANSPOSED = "ConvTranspose"
_TOGETHER = 4
"""Vectors of a row that are computed side by side, at most."""
_UNROLLED = 16


@dataclass(frozen=True, slots=True)
class _Geometry:
    """The common part of an ordinary and a transposed convolution.

    Attributes:
        groups: Of channels.
        weights: ``[groups, inputs, outputs, *window]``.
        bands: Of each spatial axis; an ordinary convolution has one of one phase.
        read: Inputs from one output of a phase to the next, for each spatial axis.
        written: Outputs from one output of a phase to the next.
        halo: What is read around the input.
    """

    groups: int
    weights: np.ndarray
    bands: tuple[tuple[Band, ...], ...]
    read: tuple[int, ...]
    written: tuple[int, ...]
    halo: Halo


@dataclass(frozen=True, slots=True)
class _Reduction:
    """The sums of one band of the last axis in some vectors of a row, as the template wants it.

    Attributes:
        sums: Names, and the biases that they begin with.
        weights: Where the weights of the band begin.
        start: The first element that is read.
        loads: Names of vectors and where they are loaded, for each tap of the last axis.
        products: For each tap the sums, weights and vectors.
        advance: Weights of a step.
        runs: Taps of the last axis if they are not unrolled, else 1.
        run: Elements from one of these to the next.
    """

    sums: list[tuple[str, str]]
    weights: str
    start: int
    loads: list[list[tuple[str, str]]]
    products: list[list[tuple[str, int, str]]]
    advance: int
    runs: int
    run: int


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Equally computed pieces of a row.

    Attributes:
        count: How many pieces.
        columns: Of each phase in a piece.
        first: The first column.
        reductions: One of each band of the last axis.
        stores: Statements.
    """

    count: int
    columns: int
    first: int
    reductions: list[_Reduction]
    stores: list[str]


def _geometry(task: Task) -> _Geometry:
    x, w = task.view(0), task.constant(1)
    assert w is not None
    groups = int(task.attributes.get("group", 1))
    ones = (1,) * (x.rank - 2)
    if task.operator.name == _TRANSPOSED:
        found = transposed_geometry.geometry(task)
        weights = w.reshape(groups, -1, *w.shape[1:])
        return _Geometry(groups, weights, found.bands, ones, found.strides, found.halo(x.shape[2:]))
    at = convolution.geometry(task)
    bands = tuple(
        (Band(0, 1, out, -begin, dilation, (tuple(range(kernel)),)),)
        for out, begin, dilation, kernel in zip(at.out, at.begin, at.dilations, at.kernel, strict=True)
    )
    weights = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    return _Geometry(groups, weights, bands, at.strides, ones, convolution.halo(at, x.shape[2:]))


def _accepts(task: Task) -> bool:
    if not convolution.is_float_convolution(task) or any_free(task.view(0).shape[2:]):
        return False
    if task.view(0).shape[-1] < LEAST:
        return False
    at = _geometry(task)
    return at.weights.shape[2] <= MOST and at.read[-1] == 1


def _wants(task: Task) -> Wants:
    rows = tuple(range(task.output.rank))
    operands = tuple((-1 - k, 0) for k, o in enumerate(task.epilogue.operands) if isinstance(o, View))
    halo = _geometry(task).halo
    return Wants((Want(order=rows, strict=True, halo=halo),), (Want(order=rows, strict=True),), operands)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    return _Writer(task, isa).kernel()


class _Writer:
    def __init__(self, task: Task, isa: Isa) -> None:
        self.task, self.isa, self.lanes = task, isa, isa.lanes()
        self.at = _geometry(task)
        self.x, self.y = task.view(0), task.output
        self.inputs, self.outputs = self.at.weights.shape[1:3]
        self.last = self.y.rank - 1
        self.epilogue = VectorEpilogue(task.epilogue, self.y.shape, self.last, isa, first_constant=1)
        self.made: Mapping[str, Shape] = {"y0": self.y.strides, **self.epilogue.strides}
        bias = task.constant(2)
        channels = self.at.groups * self.outputs
        self.packed = [np.zeros(channels, np.float32) if bias is None else bias.astype(np.float32).reshape(-1)]

    def kernel(self) -> GeneratedKernel:
        parts = [self._part(bands) for bands in product(*self.at.bands[:-1])]
        body, helpers = finish("".join(parts), self.isa)
        weights = np.concatenate(self.packed)
        return GeneratedKernel(body, (weights, *self.epilogue.constants), helpers=(*self.epilogue.helpers, *helpers))

    def _part(self, bands: tuple[Band, ...]) -> str:
        """The rows of one band of each outer axis."""
        at, x = self.at, self.x
        offset, sizes = self._pack(bands)
        group = sum(sizes)
        loops = [
            NestLoop("n", x.shape[0], strides={"x0": x.strides[0], **{n: s[0] for n, s in self.made.items()}}),
            NestLoop(
                "g",
                at.groups,
                strides={"x0": self.inputs * x.strides[1], "w0": group, "bias": self.outputs}
                | {n: self.outputs * s[1] for n, s in self.made.items()},
            ),
        ]
        step = group * at.groups
        for a, band in reversed(list(enumerate(bands))):
            moves = {n: s[2 + a] for n, s in self.made.items()}
            loops.append(NestLoop(f"r{a}", band.phases, strides={"w0": step, **moves}))
            step *= band.phases
        for a, band in enumerate(bands):
            moves = {n: at.written[a] * s[2 + a] for n, s in self.made.items()}
            loops.append(NestLoop(f"p{a}", band.count, strides={"x0": at.read[a] * x.strides[2 + a], **moves}))
        loops = [loop for loop in loops if loop.extent != 1]
        first = {n: sum(band.first * s[2 + a] for a, band in enumerate(bands)) for n, s in self.made.items()}
        first |= {"x0": sum(band.start * x.strides[2 + a] for a, band in enumerate(bands)), "w0": offset, "bias": 0}
        steps = [NestLoop("c", self.inputs, x.strides[1])]
        steps += [NestLoop(f"t{a}", len(band.taps[0]), band.step * x.strides[2 + a]) for a, band in enumerate(bands)]
        pointers = []
        for name, start in first.items():
            pointers.append(
                (name, "w0" if name == "bias" else name, moves_of(name, loops) + (f" {start:+d}" if start else ""))
            )
        return render(
            "vectors/narrow_convolution.c.jinja",
            loops=loops,
            pointers=pointers,
            steps=[s for s in steps if s.extent != 1],
            empty=math.prod(s.extent for s in steps) == 0,
            blocks=self._blocks(sizes),
            written=at.written[-1],
            strides={n: s[self.last] for n, s in self.made.items()},
        )

    def _pack(self, bands: tuple[Band, ...]) -> tuple[int, list[int]]:
        """Add the weights of some bands; where they begin, and the size of each band of the last axis in a group."""
        at, offset = self.at, sum(map(len, self.packed))
        sizes = []
        for taps in product(*(band.taps for band in bands)):
            columns = []
            for band in at.bands[-1]:
                chosen = at.weights
                for axis, some in enumerate(taps, start=3):
                    chosen = chosen.take(some, axis)
                phases = np.stack([chosen.take(some, -1) for some in band.taps])
                # [phases, groups, inputs, outputs, *taps] to [groups, inputs, *taps, phases, outputs]
                order = (1, 2, *range(4, phases.ndim), 0, 3)
                columns.append(phases.transpose(order).reshape(at.groups, math.prod(phases.shape) // at.groups))
            sizes = [column.shape[1] for column in columns]
            self.packed.append(np.concatenate(columns, 1).astype(np.float32).ravel())
        return offset, sizes

    def _blocks(self, sizes: list[int]) -> list[_Pieces]:
        bands = self.at.bands[-1]
        # Columns that all phases have, and the columns of the phase with the most.
        full, count = min(band.count for band in bands), max(band.count for band in bands)
        sums = self.outputs * sum(band.phases for band in bands)
        room = 24 if self.isa.registers >= 32 else 12
        together = max(1, min(_TOGETHER, room // sums, full // self.lanes))
        found, first = [], 0
        for vectors in (together, 1):
            times = (full - first) // (vectors * self.lanes)
            if times:
                found.append(self._block(times, first, [vectors * self.lanes] * len(bands), vectors, sizes))
                first += times * vectors * self.lanes
        while first < count:
            live = [max(0, min(self.lanes, band.count - first)) for band in bands]
            found.append(self._block(1, first, live, 1, sizes))
            first += self.lanes
        return found

    def _block(self, count: int, first: int, live: list[int], vectors: int, sizes: list[int]) -> _Pieces:
        reductions, offset = [], 0
        for band, columns, size in zip(self.at.bands[-1], live, sizes, strict=True):
            reductions.append(self._reduction(band, columns, vectors, offset))
            offset += size
        written = self.at.written[-1]
        end = min(written * (first + vectors * self.lanes), self.y.shape[self.last])
        stores = []
        for m in range(self.outputs):
            for v in range(vectors):
                begin = written * (first + v * self.lanes)
                stores += self._stores(m, v, max(0, min(end - begin, written * self.lanes)))
        return _Pieces(count, vectors * self.lanes, first, reductions, stores)

    def _reduction(self, band: Band, columns: int, vectors: int, offset: int) -> _Reduction:
        taps = len(band.taps[0]) if columns else 0
        unrolled = taps <= _UNROLLED
        names = [f"c{band.first + p}_{m}" for p in range(band.phases) for m in range(self.outputs)]
        part = columns % self.lanes
        loads, products = [], []
        for t in range(taps if unrolled else 1):
            places = [f"xr + {t * band.step + v * self.lanes}" for v in range(vectors)]
            loads.append(
                [(f"a{t}_{v}", f"load_part@({p}, {part})" if part else f"LD@({p})") for v, p in enumerate(places)]
            )
            products.append(
                [
                    (f"{name}_{v}", t * len(names) + k, f"a{t}_{v}")
                    for k, name in enumerate(names)
                    for v in range(vectors)
                ]
            )
        biases = [f"SPLAT@(biasp[{m}])" for _ in range(band.phases) for m in range(self.outputs)]
        sums = [(f"{n}_{v}", b) for n, b in zip(names, biases, strict=True) for v in range(vectors)]
        advance = len(names) * (taps if unrolled else 1)
        return _Reduction(
            sums, f"w0q + {offset}", band.start, loads, products, advance, 1 if unrolled else taps, band.step
        )

    def _stores(self, m: int, v: int, live: int) -> list[str]:
        """Statements that bring the phases of one vector of columns side by side and store them."""
        written = self.at.written[-1]
        phases = [f"c{r}_{m}_{v}" if r < self.y.shape[self.last] else "SPLAT@(0.0f)" for r in range(written)]
        lines, values = interleaved(phases, self.lanes)
        for k, value in enumerate(values):
            some = min(self.lanes, live - k * self.lanes)
            if some <= 0:
                break
            at = (written * v + k) * self.lanes

            def address(name: str, at: int = at) -> str:
                return f"{name}p + {m * self.made[name][1] + at * self.made[name][self.last]}"

            steps, result = self.epilogue.write("t", address, some)
            end = store(address("y0"), result, self.made["y0"][self.last], some, self.isa)
            lines.append(" ".join(["{", f"const vf@ t = {value};", *steps, end, "}"]))
        return ["{", *lines, "}"]


register(
    Family(
        "narrow convolution",
        (OpKey("", "Conv"), OpKey("", _TRANSPOSED)),
        _accepts,
        _generate,
        _wants,
        rank=12,
    )
)
