"""Convolutions of float32 from few channels, as first layers have them, in ONNX's layout: vectors lie along the rows.

Such a convolution writes far more than it reads, and takes little longer than one pass over its result, so converting
that to ONNX's layout afterwards would double its time. What a window reads of a row is brought into scratch memory
first, where windows that are some elements apart, and padding, cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared import tiling
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import NestLoop, moves_of
from eqsat.codegen.kernels.shared.tiling import Tile, split
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, store
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import OpKey

MOST = 4
"""Channels of a group that are few."""
LEAST = 8
"""Columns of a result whose rows are worth a vector."""
_UNROLLED = 16
_WIDEST = 4
_NEAR = 16 << 10
"""Bytes of input that stay in the first cache beside weights and results."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some vectors of columns."""

    count: int
    first: int
    columns: int
    vectors: int
    sums: list[tuple[int, int]]
    stores: list[str]


@dataclass(frozen=True, slots=True)
class _Block:
    """Some output channels."""

    count: int
    first: int
    outputs: int
    pieces: list[_Piece]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Columns whose part of the input is in scratch memory at a time.

    Attributes:
        loops: Around it.
        pointers: Names, what they begin from, and offsets.
        start: The element of a row, in C, that the first tap of the first window reads.
        used: Elements of a phase that windows read.
        padded: Elements of a phase in scratch memory.
        blocks: Of output channels.
    """

    loops: list[NestLoop]
    pointers: list[tuple[str, str, str]]
    start: str
    used: int
    padded: int
    blocks: list[_Block]


def _accepts(task: Task) -> bool:
    if not convolution.is_float_convolution(task) or any_free((*task.view(0).shape, *task.output.shape)):
        return False
    w = task.constant(1)
    assert w is not None
    at = convolution.geometry(task)
    is_regular = at.kernel[-1] <= _UNROLLED or at.strides[-1] == 1 or at.dilations[-1] == 1
    return w.shape[1] <= MOST and task.output.shape[-1] >= LEAST and is_regular


def _wants(task: Task) -> Wants:
    rows = Want(order=tuple(range(task.output.rank)), strict=True)
    operands = tuple((-1 - k, 0) for k, o in enumerate(task.epilogue.operands) if isinstance(o, View))
    return Wants((rows,), (rows,), operands)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    return _Writer(task, isa).kernel()


class _Writer:
    def __init__(self, task: Task, isa: Isa) -> None:
        w = task.constant(1)
        assert w is not None
        self.task, self.isa, self.lanes = task, isa, isa.lanes()
        self.at, self.w = convolution.geometry(task), w
        self.x, self.y = task.view(0), task.output
        self.groups = self.x.shape[1] // w.shape[1]
        self.outputs = w.shape[0] // self.groups
        self.epilogue = VectorEpilogue(task.epilogue, self.y.shape, self.y.rank - 1, isa, first_constant=1)
        self.made = {"y0": self.y.strides, **self.epilogue.strides}
        stride, dilation, kernel = self.at.strides[-1], self.at.dilations[-1], self.at.kernel[-1]
        self.phases = sorted({t * dilation % stride for t in range(kernel)})
        self.taps = [(self.phases.index(t * dilation % stride), t * dilation // stride) for t in range(kernel)]
        self.run = 0 if kernel <= _UNROLLED else dilation if stride == 1 else 1
        self.rows = w.shape[1] * math.prod(self.at.kernel[:-1])
        self.row_weights = math.prod(w.shape[1:])
        self.tile = self._tile()

    def kernel(self) -> GeneratedKernel:
        bias = convolution.bias(self.task, self.w.shape[0])
        weights = np.concatenate([bias, self.w.astype(np.float32).ravel()])
        columns = self.y.shape[-1]
        tile = self.tile.vectors * self.lanes
        room = max(_NEAR // (4 * self.rows * len(self.phases)), 1)
        wide = max(room // tile, 1) * tile
        chunks = [self._chunk(*part) for part in split(columns, columns if columns <= 1.5 * wide else wide)]
        outer = range(self.y.rank - 3)
        steps = [NestLoop("c", self.w.shape[1]), *(NestLoop(f"t{a}", self.at.kernel[a]) for a in outer)]
        text = render(
            "vectors/convolution_along_rows.c.jinja",
            chunks=chunks,
            steps=steps,
            places=[self._place(a) for a in outer],
            inside=" && ".join(f"r{a} >= 0 && r{a} < {self.x.shape[2 + a]}" for a in outer if self._leaves(a)),
            moves=" + ".join([f"c * {self.x.strides[1]}", *(f"r{a} * {self.x.strides[2 + a]}" for a in outer)]),
            phases=self.phases,
            taps=self.taps,
            stride=self.at.strides[-1],
            width=self.x.shape[-1],
            rows=self.rows,
            row_weights=self.row_weights,
            run=self.run,
            made=self.made,
            lanes=self.lanes,
        )
        body, helpers = finish(text, self.isa)
        scratch = 4 * self.rows * len(self.phases) * max(chunk.padded for chunk in chunks)
        constants = (weights, *self.epilogue.constants)
        return GeneratedKernel(body, constants, scratch, (*self.epilogue.helpers, *helpers))

    def _tile(self) -> Tile:
        """Output channels and vectors of columns whose sums stay in registers."""
        vectors = -(-self.y.shape[-1] // self.lanes)
        found = tiling.cheapest(
            1,
            self.outputs,
            range(min(_WIDEST, vectors), 0, -1),
            fits=lambda outputs, v: tiling.fits(outputs, v, self.isa),
            collides=lambda _, outputs: False,
            time=lambda tile: tiling.estimate(1, self.outputs, vectors, tile, self.row_weights, self.isa),
        )
        assert found is not None
        return found

    def _place(self, axis: int) -> str:
        """The row that a tap reads on an outer axis, in C."""
        at = self.at
        moved = f"p{axis} * {at.strides[axis]} + " if self.y.shape[2 + axis] > 1 else ""
        return f"{moved}t{axis} * {at.dilations[axis]} - ({at.begin[axis]})"

    def _leaves(self, axis: int) -> bool:
        """Whether some windows reach beyond the input."""
        at = self.at
        last = (at.out[axis] - 1) * at.strides[axis] + at.extent[axis] - 1 - at.begin[axis]
        return at.begin[axis] > 0 or last >= self.x.shape[2 + axis]

    def _chunk(self, first: int, columns: int, count: int) -> _Chunk:
        x, y, stride = self.x, self.y, self.at.strides[-1]
        moves = {n: self.outputs * s[1] for n, s in self.made.items()}
        loops = [
            NestLoop("n", y.shape[0], strides={"x0": x.strides[0], **{n: s[0] for n, s in self.made.items()}}),
            NestLoop(
                "g",
                self.groups,
                strides={"x0": self.w.shape[1] * x.strides[1], "w0": self.outputs * self.row_weights}
                | {"bias": self.outputs, **moves},
            ),
            *(
                NestLoop(f"p{a}", y.shape[2 + a], strides={n: s[2 + a] for n, s in self.made.items()})
                for a in range(y.rank - 3)
            ),
            NestLoop("k", count, strides={n: columns * s[-1] for n, s in self.made.items()}),
        ]
        loops = [loop for loop in loops if loop.extent != 1]
        starts = {"x0": 0, "w0": self.w.shape[0], "bias": 0} | {n: first * s[-1] for n, s in self.made.items()}
        pointers = [
            (n, "w0" if n == "bias" else n, moves_of(n, loops) + (f" + {start}" if start else ""))
            for n, start in starts.items()
        ]
        begin = first * stride - self.at.begin[-1]
        start = f"k * {columns * stride} + ({begin})" if count > 1 else f"{begin}"
        vectors = -(-columns // self.lanes)
        reach = max(offset for _, offset in self.taps)
        parts = split(vectors, self.tile.vectors)
        if columns % self.lanes and parts[-1][2] > 1:
            at, size, times = parts.pop()
            parts += [(at, size, times - 1), (at + (times - 1) * size, size, 1)]
        blocks = [
            _Block(times, o, outputs, [self._piece(outputs, columns, *part) for part in parts])
            for o, outputs, times in split(self.outputs, self.tile.columns)
        ]
        return _Chunk(loops, pointers, start, columns + reach, vectors * self.lanes + reach, blocks)

    def _piece(self, outputs: int, columns: int, start: int, vectors: int, count: int) -> _Piece:
        """Equal parts of a row; in the last one some lanes may be unused."""
        sums = [(m, v) for m in range(outputs) for v in range(vectors)]
        end = columns - (start + (count - 1) * vectors) * self.lanes
        stores = [self._store(m, v, min(self.lanes, end - v * self.lanes)) for m, v in sums]
        return _Piece(count, start * self.lanes, vectors * self.lanes, vectors, sums, stores)

    def _store(self, m: int, v: int, live: int) -> str:
        def address(name: str) -> str:
            strides = self.made[name]
            return f"{name}p + {m * strides[1] + v * self.lanes * strides[-1]}"

        steps, result = self.epilogue.write(f"c{m}_{v}", address, live)
        end = store(address("y0"), result, self.y.strides[-1], live, self.isa)
        return " ".join(["{", *steps, end, "}"]) if steps else end


register(
    Family(
        "convolution along rows",
        (OpKey("", "Conv"),),
        _accepts,
        _generate,
        _wants,
        rank=9,
    )
)
