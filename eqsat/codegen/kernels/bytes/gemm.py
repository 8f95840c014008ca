"""Sums of products of bytes: convolutions and matrix products in integers, as implicit GEMM with packed weights.

The elements to sum lie in the input in runs of neighbouring bytes (a row of a window in NHWC, a row of a matrix). 4
bytes at a time are multiplied with 4 weights of each of 16 output channels (``vpdpbusd``, or instructions that replace
it). Weights are packed in panels of 16 channels that all instruction sets read (see ``weights.py``). Runs are filled up
with zeros, so that bytes read after the end of a run do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.c_values import Value, Vector
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.tiling import choose
from eqsat.codegen.kernels.bytes.weights import PANEL
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop, Pixels, Tiles, collapse, loops_over, moves_of
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.schema.size_questions import is_free, typical

_WEIGHTS_IN_CACHE = 400 * 1024
"""Bytes of weights that may be read again for each row of pixels."""


@dataclass(frozen=True, slots=True)
class IntegerGemm:
    """An integer GEMM.

    Attributes:
        input: Name of the pointer to the input; the other names likewise.
        signed: Whether the input's bytes are signed; 128 is added to them then.
        weights: Bytes as ``weights.pack`` lays them out.
        bias: Integers to start from, one per channel.
        output: Where results go.
        outer: Loops around everything, which move all pointers (batches, groups); outermost first.
        pixels: Axes of the output that share the weights, outermost first.
        taps: Extent and stride of the input, in bytes: the sums over anything but a run.
        run: Neighbouring bytes that are summed.
        channels: Of the output (of a group).
        over_read: Whether 3 bytes after each run may be read.
        corner: From the input's pointer to the first byte that is read.
        window_zeros: Name of the weights' zero points by channel, to be multiplied with the sum of the input.
        vectors: Names of further arrays by channel.
    """

    input: str
    signed: bool
    weights: str
    bias: str
    output: str
    outer: tuple[Axis, ...]
    pixels: tuple[Axis, ...]
    taps: tuple[tuple[int, int], ...]
    run: int
    channels: int
    over_read: bool
    corner: int = 0
    window_zeros: str | None = None
    vectors: tuple[str, ...] = ()

    @property
    def panels(self) -> int:
        """Number of panels of weights in each group."""
        return -(-self.channels // PANEL)

    @property
    def tap_bytes(self) -> int:
        """Bytes of one tap's weights in a panel."""
        return -(-self.run // 4) * 4 * PANEL

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel's weights."""
        return math.prod(n for n, _ in self.taps) * self.tap_bytes


@dataclass(frozen=True, slots=True)
class GemmNest:
    """A loop nest around one kind of tile, as the template wants it."""

    loops: list[NestLoop]
    pointers: list[tuple[str, str, str]]
    pixels: list[int]
    weights: list[int]
    lanes: int
    stores: list[str]
    unroll: int


WriteResult = Callable[[str, Callable[[str], str], ByteEpilogue], Value]
"""Writes the result of the anchor, given the accumulator, pointers to arrays by channel, and the epilogue."""


def write(
    problem: IntegerGemm,
    epilogue: ByteEpilogue,
    result: WriteResult,
    types: Mapping[str, str],
    isa: Isa,
    *,
    prologue: Sequence[str] = (),
    packing: Sequence[str] = (),
) -> str:
    """The kernel's body, with ``@`` for the name of the instruction set.

    Args:
        problem: The product to compute.
        epilogue: Of the task.
        result: Makes a vector of the anchor's result.
        types: C type that each pointer points to.
        isa: Instruction set.
        prologue: Statements before everything.
        packing: Statements inside the outer loops.
    """
    return _Writer(problem, epilogue, result, types, isa).body(prologue, packing)


class _Writer:
    def __init__(
        self, problem: IntegerGemm, epilogue: ByteEpilogue, result: WriteResult, types: Mapping[str, str], isa: Isa
    ) -> None:
        self.problem, self.epilogue, self.result, self.types, self.isa = problem, epilogue, result, types, isa
        self.lanes = isa.lanes()
        self.pixels = Pixels(collapse(problem.pixels))
        rows, columns = self.pixels.rows, self.pixels.columns
        sums = problem.window_zeros is not None
        spare = 2 if sums else int(problem.signed)
        # For free sizes, the tile that is best at typical sizes.
        self.tile = choose(
            max(typical(rows.extent), 1),
            max(typical(columns.extent), 1),
            typical(rows.stride(problem.input)),
            typical(columns.stride(problem.input)),
            max(typical(problem.channels), 1),
            isa,
            spare,
        )
        self.results = [*epilogue.strides, problem.output]
        self.by_channel = [problem.bias, *problem.vectors, *([problem.window_zeros] if problem.window_zeros else [])]

    def body(self, prologue: Sequence[str], packing: Sequence[str]) -> str:
        problem = self.problem
        outer = loops_over("n", problem.outer)
        nests = [nest for block in self._blocks() for nest in self._nests(outer, *block)]
        text = render(
            "bytes/gemm.c.jinja",
            p=problem,
            outer=outer,
            packing=packing,
            nests=nests,
            taps=[NestLoop(f"t{i}", n, strides={"x": s}) for i, (n, s) in enumerate(problem.taps) if n != 1],
            words=problem.run // 4,
            tail=problem.run % 4,
            maybe=is_free(problem.run % 4),
        )
        return "\n".join([*prologue, *self.epilogue.declarations(), text])

    def _blocks(self) -> Iterator[tuple[int, int, int, int]]:
        """(first channel, channels, count, channels in use) of the kinds of blocks of output channels."""
        channels = self.problem.channels
        size = PANEL * max(1, self.tile.vectors * self.lanes // PANEL)
        if is_free(channels):
            yield 0, size, channels // size, size
            if size > PANEL:
                yield channels // size * size, PANEL, channels % size // PANEL, PANEL
            last = channels // PANEL * PANEL
            # Inside the last panel: full vectors, then one that is partly filled.
            if self.lanes < PANEL:
                yield last, self.lanes, channels % PANEL // self.lanes, self.lanes
            rest = channels % self.lanes
            if rest != 0:
                yield channels // self.lanes * self.lanes, self.lanes, -(-rest // self.lanes), rest
            return
        for start, panels, count in split(self.problem.panels, size // PANEL):
            first, wide = start * PANEL, panels * PANEL
            live = channels - first - wide * (count - 1)
            if live < wide and count > 1:
                yield first, wide, count - 1, wide
            whole = count if live >= wide else 1
            yield first + wide * (count - whole), wide, whole, min(live, wide)

    def _nests(self, outer: list[NestLoop], first: int, wide: int, count: int, live: int) -> list[GemmNest]:
        problem = self.problem
        small = typical(problem.panels * problem.panel_bytes) <= _WEIGHTS_IN_CACHE
        move = {problem.weights: self._weight(wide)}
        move |= dict.fromkeys(self.by_channel, wide)
        move |= {r: wide * self._channel(r) for r in self.results}
        blocks = [NestLoop("o", count, strides=move)] if count != 1 else []
        others = loops_over("p", self.pixels.others)
        nests = []
        every = 1 if is_free(live) else -(-live // self.lanes)
        for vector, vectors, repeats in split(every, self.tile.vectors):
            for k in range(repeats):
                at = (vector + k * vectors) * self.lanes
                weights = [self._weight(at + v * self.lanes) - self._weight(at) for v in range(vectors)]
                for tiles in self.pixels.tiles(self.tile, [problem.input, *self.results]):
                    r, q = tiles.rows, tiles.columns
                    # Few weights stay in cache: the pixels go outside, so that the input is read once.
                    if not small:
                        order = [*blocks, *others, r, q]
                    else:
                        order = [*others, r, *blocks, q] if self.pixels.rows.extent != 1 else [*others, q, *blocks]
                    tiles.start[problem.input] += problem.corner
                    loops = [loop for loop in order if loop.extent != 1]
                    nests.append(self._nest(outer, loops, tiles, first + at, weights, live - at))
        return nests

    def _channel(self, name: str) -> int:
        """Stride of an output channel."""
        if name == self.problem.output:
            return self.epilogue.result_stride
        return self.epilogue.strides[name][self.epilogue.axis]

    def _nest(
        self,
        outer: list[NestLoop],
        loops: list[NestLoop],
        tiles: Tiles,
        channel: int,
        weights: list[int],
        live: int,
    ) -> GemmNest:
        problem, lanes = self.problem, self.lanes
        pointers = []
        for name in [problem.input, problem.weights, *self.by_channel, *self.results]:
            fixed = tiles.start.get(name, 0)
            if name in self.by_channel:
                fixed += channel
            elif name == problem.weights:
                fixed += self._weight(channel)
            elif name != problem.input:
                fixed += channel * self._channel(name)
            constant = "" if name == problem.output else "const "
            kind = f"{constant}{self.types[name]} *restrict"
            pointers.append((kind, name, moves_of(name, [*outer, *loops]) + (f" + {fixed}" if fixed else "")))

        def offset(name: str, place: tuple[int, int], v: int) -> int:
            if name in self.by_channel:
                return v * lanes
            return self.pixels.offset(name, place) + v * lanes * self._channel(name)

        def at(name: str, place: tuple[int, int], v: int) -> str:
            distance = offset(name, place, v)
            return f"{name}p + {distance}" if distance else f"{name}p"

        made = []
        for m, place in enumerate(tiles.places):
            for v in range(len(weights)):

                def address(name: str, place: tuple[int, int] = place, v: int = v) -> str:
                    return at(name, place, v)

                def first(m: int = m, v: int = v, address: Callable[[str], str] = address) -> Value:
                    sum_ = f"c{m}_{v}"
                    if problem.window_zeros is not None:
                        sum_ = f"({sum_} - LDI@({address(problem.window_zeros)}) * s{m})"
                    return self.result(sum_, address, self.epilogue)

                used = live if is_free(live) else min(lanes, live - v * lanes)
                made.append(Vector(first, address, used, offset(problem.output, place, v)))
        stores = self.epilogue.write(made)
        pixels = [self.pixels.offset(problem.input, place) for place in tiles.places]
        size = len(pixels) * len(weights)
        unroll = 1 if typical(problem.run) < 8 else 4 if size < 8 else 2
        return GemmNest(loops, pointers, pixels, weights, lanes, stores, unroll)

    def _weight(self, channel: int) -> int:
        """Bytes from the first weight to those of the vector that begins at a channel."""
        return channel // PANEL * self.problem.panel_bytes + channel % PANEL * 4
