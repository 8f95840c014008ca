"""Matrix products and convolutions by one scheme: the elements to sum lie in the input at constant distances.

Anderson et al. 2017 (arXiv:1709.03395) and Georganas et al. 2018 (arXiv:1808.05567) describe direct convolution on
blocked layouts. Here the input is NHWC with its padding around it, so that a row of a window is contiguous and no
copy is needed; the weights are packed when the program is generated, in panels of 16 output channels (as many as
a line of the cache holds). Wide vectors read several panels side by side, narrow ones parts of a panel, so that
all instruction sets share the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop, Pixels, loops_over, moves_of
from eqsat.codegen.kernels.shared.tiling import PANEL, SECOND, Tile, choose, is_short_of_registers, split
from eqsat.codegen.kernels.vectors.epilogue import SLACK, VectorEpilogue, store
from eqsat.schema.size_questions import is_free, typical

_FIRST = 4096
"""Weights that mostly tell whether all are numbers of float16."""
_ROUND = 4
"""A panel of weights is a multiple of this wide."""
_NEAR_FLOATS = 1 << 16
"""Floats of the input that stay in the second cache beside a panel of weights and the result."""
_MOST_PIXELS = 96
"""Pixels of a block at most: so many rows of a result lie on pages that the processor finds fast."""
_FEWEST_PIXELS, _FEWEST_BLOCKS = 32, 4
"""Of a block: each one reads all weights; and of all pixels, which threads share."""
_BLOCK = 4
"""Steps that are written out if the control of a loop around each would cost as much as a vector's loads."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights in panels of output channels, see :func:`pack`.

    Attributes:
        bias: Whether each panel begins with a row of biases.
        half: Whether they are float16, see :func:`as_halves`.
    """

    bias: bool = True
    half: bool = False


@dataclass(frozen=True, slots=True)
class WeightRows:
    """Weights where the program finds them: a matrix whose rows are steps.

    Attributes:
        step: From one row to the next.
    """

    step: int


@dataclass(frozen=True, slots=True)
class Selected:
    """Packed weights with biases, of which some rows are used.

    Attributes:
        steps: Rows of a panel, without biases.
        first: The first row that is used.
        rows: From one iteration of each loop of the reduction to the next; those of the innermost loop adjoin.
    """

    steps: int
    first: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImplicitGemm:
    """An implicit GEMM.

    Attributes:
        input: Name of the pointer to the input; the other names likewise.
        outer: Loops that move the weights as well (batches, groups), outermost first; their variables are ``n0``, ...
        pixels: Axes of the output that share the weights, outermost first.
        taps: The reduction: extent and stride of the input, outermost first.
        channels: Output channels (of a group).
        channel: Stride of one output channel, for the output and the epilogue's operands.
        layout: The layout of the weights.
        origin: From each tensor's pointer to the first element that is used, in elements.
    """

    input: str
    weights: str
    output: str
    outer: tuple[Axis, ...]
    pixels: tuple[Axis, ...]
    taps: tuple[tuple[int, int], ...]
    channels: int
    channel: Mapping[str, int]
    layout: Packed | Selected | WeightRows = field(default=Packed())
    origin: Mapping[str, int] = field(default_factory=dict)

    def inside(self, axis: Axis) -> ImplicitGemm:
        """The same loops inside one more outer loop."""
        return replace(self, outer=(axis, *self.outer))

    @property
    def steps(self) -> int:
        """Of the reduction."""
        return math.prod(n for n, _ in self.taps)


@dataclass(frozen=True, slots=True)
class ImplicitGemmNest:
    """A loop nest around one kind of tile, as the template wants it."""

    loops: list[NestLoop]
    pointers: list[tuple[str, str]]
    pixels: list[int]
    vectors: int
    start: list[str]
    weights: list[str]
    skip: int
    step: int
    unroll: int
    stores: list[str]


@dataclass(frozen=True, slots=True)
class ImplicitGemmBand:
    """Loop nests that use the same weights.

    Attributes:
        loops: Around all of them: over blocks of pixels, and over panels of weights; empty if each nest has its own
            loop over panels, which divides among more threads.
    """

    loops: list[NestLoop]
    nests: list[ImplicitGemmNest]


def plan(problem: ImplicitGemm, isa: Isa, vectors: int | None = None) -> tuple[Pixels, Tile]:
    """The pixels, and the best tile at typical sizes; with ``vectors``, the best one that has this many of them."""
    pixels = Pixels(problem.pixels)
    rows, columns = pixels.rows, pixels.columns
    row, column = 4 * rows.stride(problem.input), 4 * columns.stride(problem.input)
    # With free sizes, a phase of a stride may be empty.
    tall, wide = max(typical(rows.extent), 1), max(typical(columns.extent), 1)
    every = -(-problem.channels // isa.lanes())
    sizes = map(typical, (row, column, vectors or every, problem.steps))
    across = are_weights_far(problem, isa) and not (is_free(rows.extent) or is_free(columns.extent))
    return pixels, choose(tall, wide, *sizes, isa, widths=(vectors,) if vectors else None, across=across)


def are_weights_far(problem: ImplicitGemm, isa: Isa) -> bool:
    """Whether each pass over all weights reads them from beyond the second cache."""
    size = problem.channels * problem.steps
    return is_short_of_registers(isa) and not is_free(size) and 4 * size > SECOND


def panel_width(channels: int) -> int:
    """Channels side by side: 16, or less where there are no more."""
    return PANEL if is_free(channels) or channels >= PANEL else -(-channels // _ROUND) * _ROUND


def pack(matrix: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Weights as kernels read them: panel by panel, a row of biases (if any) and a row for each step of the reduction.

    Args:
        matrix: ``[groups, channels, steps]``; each group begins a new panel.
        bias: ``[groups, channels]``.
    """
    groups, channels, steps = matrix.shape
    width = panel_width(channels)
    before = 0 if bias is None else 1
    full = np.zeros((groups, -(-channels // width) * width, before + steps), np.float32)
    if bias is not None:
        full[:, :channels, 0] = bias
    full[:, :channels, before:] = matrix
    panels = full.reshape(groups, -1, width, before + steps).swapaxes(2, 3)
    return np.append(panels.ravel(), np.zeros(SLACK, np.float32))


def as_halves(packed: np.ndarray) -> np.ndarray | None:
    """Weights in float16, half as many bytes to read; None unless float16 holds all of their numbers."""
    for part in (packed[:_FIRST], packed):
        with np.errstate(over="ignore"):
            halves = part.astype(np.float16)
        if not np.isfinite(halves).all() or not np.array_equal(halves, part):
            return None
    return halves


def packed_size(channels: int, steps: int, *, bias: bool = True) -> int:
    """Floats of one group's weights."""
    width = panel_width(channels)
    return -(-channels // width) * width * (bias + steps)


def write(
    problem: ImplicitGemm, epilogue: VectorEpilogue, isa: Isa, prologue: str = "", around: Sequence[NestLoop] = ()
) -> str:
    """The kernel's body, with ``@`` for the name of the instruction set.

    Args:
        problem: What is computed.
        epilogue: The steps applied to a result.
        isa: Instruction set.
        prologue: Statements inside the outer loops, before all others.
        around: Loops that the caller opens around the body; they move pointers as well.
    """
    return _Writer(problem, epilogue, isa).body(prologue, around)


@dataclass(frozen=True, slots=True)
class _PixelBlock:
    """Pixels between the loops over blocks and over panels of weights.

    Attributes:
        loops: Over blocks, outermost first.
        pixels: Of one block.
        start: From each pointer to the first block.
    """

    loops: list[NestLoop]
    pixels: Pixels
    start: Mapping[str, int]


class _Writer:
    def __init__(self, problem: ImplicitGemm, epilogue: VectorEpilogue, isa: Isa) -> None:
        self.problem, self.epilogue, self.isa = problem, epilogue, isa
        self.lanes = isa.lanes()
        self.pixels, self.tile = plan(problem, isa)
        self.width = panel_width(problem.channels)
        layout = problem.layout
        self.selected = layout if isinstance(layout, Selected) else Selected(problem.steps, 0, ())
        self.packed = not isinstance(layout, WeightRows)
        self.half = isinstance(layout, Packed) and layout.half
        self.biased = self.packed and not (isinstance(layout, Packed) and not layout.bias)
        self.panel = packed_size(self.width, self.selected.steps, bias=self.biased) if self.packed else 0
        self.results = [problem.output, *epilogue.strides]
        self.outer: list[NestLoop] = []

    def body(self, prologue: str, around: Sequence[NestLoop]) -> str:
        problem = self.problem
        outer = loops_over("n", problem.outer)
        self.outer = [*around, *outer]
        taps = [NestLoop(f"t{i}", n, s) for i, (n, s) in enumerate(problem.taps)]
        bands = []
        for block in self._blocks():
            for count, step, column, live in self._columns():
                move = {problem.weights: self._weight(step)}
                move |= {r: step * problem.channel.get(r, 0) for r in self.results}
                loops = [NestLoop("o", count, strides=move)] if count != 1 else []
                vectors = 1 if is_free(live) else -(-live // self.lanes)
                shared = loops if block.loops or are_weights_far(problem, self.isa) else []
                nests = self._pixels(block, loops, [*block.loops, *shared], column, vectors, live)
                bands.append(ImplicitGemmBand([*block.loops, *shared], nests))
        return render(
            "vectors/implicit_gemm.c.jinja",
            outer=outer,
            prologue=prologue,
            bands=bands,
            taps=taps[:-1],
            run=taps[-1],
            block=self._block(taps[-1].extent),
            jumps=[n * self.width for n in self.selected.rows],
            input=problem.input,
            weights=problem.weights,
            weight="uint16_t" if self.half else "float",
            output=problem.output,
        )

    def _blocks(self) -> list[_PixelBlock]:
        """Blocks of pixels that are multiplied with all weights one after the other; one if that is no advantage.

        If input and result are larger than the second cache, a pass over all pixels for each panel of weights would
        read the input from beyond it, and write the result in pieces on more pages than the processor keeps at hand.
        """
        axes, tile = self.pixels, self.tile
        every = [_PixelBlock([], axes, {})]
        sizes = [p.extent for p in self.problem.pixels] + [self.problem.channels, self.problem.steps]
        if not is_short_of_registers(self.isa) or tile.across or any(map(is_free, sizes)):
            return every
        each = min(max(abs(axes.columns.stride(self.problem.input)), 1), self.problem.steps)
        pixels = axes.rows.extent * axes.columns.extent
        if 4 * pixels * (each + self.problem.channels) <= SECOND:
            return every
        by_rows = axes.rows.extent > 1
        axis, unit = (axes.rows, tile.rows) if by_rows else (axes.columns, tile.columns)
        wide = axes.columns.extent if by_rows else 1
        size = min(_MOST_PIXELS, _NEAR_FLOATS // max(each, 1)) // (wide * unit) * unit
        if size * wide < _FEWEST_PIXELS or axis.extent < _FEWEST_BLOCKS * size:
            return every
        others = loops_over("p", axes.others)
        found = []
        for first, extent, count in split(axis.extent, size):
            start = {name: first * stride for name, stride in axis.strides.items()}
            moves = {name: extent * stride for name, stride in axis.strides.items()}
            loops = [*others, *([NestLoop("m", count, strides=moves)] if count != 1 else [])]
            inner = replace(axis, extent=extent)
            found.append(_PixelBlock(loops, Pixels((inner, axes.columns) if by_rows else (inner,)), start))
        return found

    def _columns(self) -> Iterator[tuple[int, int, int, int]]:
        """Kinds of tiles across the output channels: how many, how far apart, the first column, columns in use."""
        tile, channels = self.tile.vectors * self.lanes, self.problem.channels
        # Channels of a tile, or of a panel if that has several tiles.
        group = max(tile, self.width)
        if not is_free(channels):
            for first, size, count in split(channels, group):
                for column in range(first, first + size, tile):
                    yield count, group, column, min(tile, first + size - column)
            return
        for first, size, count in ((0, group, channels // group), (channels // group * group, self.width, 0)):
            count = count or channels % group // size
            for column in range(0, size if count != 0 else 0, tile):
                yield count, size, first + column, min(tile, size)
        # Inside the last panel: full vectors, then one that is partly filled.
        last, lanes = channels % self.width, self.lanes
        if last // lanes != 0:
            yield last // lanes, lanes, channels // self.width * self.width, lanes
        if (live := channels % lanes) != 0:
            yield -(-live // lanes), lanes, channels // lanes * lanes, live

    def _loaded(self, pointer: str) -> str:
        """A vector of weights."""
        return f"load_finite_f16@({pointer})" if self.half else f"LD@({pointer})"

    def _weight(self, channel: int) -> int:
        """Offset of the weights of a channel, that of its bias where they have one."""
        return channel // self.width * self.panel + channel % self.width if self.packed else channel

    def _block(self, run: int) -> int:
        """Steps that the innermost loop of the reduction writes out; only one if its size is free."""
        return _BLOCK if is_short_of_registers(self.isa) and not is_free(run) and run >= _BLOCK else 1

    def _tile(self, vectors: int) -> Tile:
        """The tile for a number of vectors of channels: if few remain, more pixels fill the registers."""
        if vectors == self.tile.vectors or not is_short_of_registers(self.isa):
            return self.tile
        return plan(self.problem, self.isa, vectors)[1]

    def _pixels(
        self,
        block: _PixelBlock,
        loops: list[NestLoop],
        shared: list[NestLoop],
        column: int,
        vectors: int,
        live: int,
    ) -> list[ImplicitGemmNest]:
        problem = self.problem
        outer = loops_over("p", block.pixels.others)
        nests = []
        tile = self._tile(vectors)
        for tiles in block.pixels.tiles(tile, [problem.input, *self.results]):
            own = [*outer, *(loop for loop in (tiles.rows, tiles.columns) if loop.extent != 1)]
            nest = own if shared else [*loops, *own]
            start = {name: first + block.start.get(name, 0) for name, first in tiles.start.items()}
            for r in self.results:
                start[r] += column * problem.channel.get(r, 0)
            start[problem.weights] = self._weight(column)
            for name, first in problem.origin.items():
                start[name] += first
            nests.append(self._nest(nest, shared, start, tiles.places, column, vectors, live))
        return nests

    def _nest(
        self,
        loops: list[NestLoop],
        shared: list[NestLoop],
        start: Mapping[str, int],
        places: list[tuple[int, int]],
        column: int,
        vectors: int,
        live: int,
    ) -> ImplicitGemmNest:
        problem, layout = self.problem, self.problem.layout
        pointers = []
        for name in [problem.input, problem.weights, *epilogue_first(self.results)]:
            pointers.append(
                (name, moves_of(name, (*self.outer, *shared, *loops)) + (f" {start[name]:+d}" if start[name] else ""))
            )

        def at(name: str, place: tuple[int, int], vector: int) -> int:
            return self.pixels.offset(name, place) + vector * self.lanes * problem.channel.get(name, 0)

        w = problem.weights
        initial = ["SPLAT@(0.0f)"] * vectors
        at_vector = [self._weight(column + v * self.lanes) - self._weight(column) for v in range(vectors)]
        weights = [self._loaded(f"wr + {k}") for k in at_vector]
        skip, step = 0, self.width
        if isinstance(layout, WeightRows):
            step = layout.step
            if live % self.lanes:
                weights[-1] = f"load_part@(wr + {at_vector[-1]}, {live % self.lanes})"
        elif self.biased:
            initial = [self._loaded(f"{w}p + {k}") for k in at_vector]
            skip = self.width * (1 + self.selected.first)
        stores = []
        for m, place in enumerate(places):
            for v in range(vectors):
                count = live if is_free(live) else min(self.lanes, live - v * self.lanes)
                lines, result = self.epilogue.write(
                    f"c{m}_{v}", lambda name, p=place, v=v: f"{name}p + {at(name, p, v)}", count
                )
                y = problem.output
                end = store(f"{y}p + {at(y, place, v)}", result, problem.channel[y], count, self.isa)
                stores.append(" ".join(["{", *lines, end, "}"]) if lines else end)
        pixels = [self.pixels.offset(problem.input, place) for place in places]
        sums = len(places) * vectors
        # Unrolled, the compiler loads all elements of a step before it uses them, if that does not cost registers.
        room = sums + vectors + len(places) <= self.isa.registers
        unroll = 1 if not room or sums >= 16 else 4 if sums < 8 else 2
        return ImplicitGemmNest(loops, pointers, pixels, vectors, initial, weights, skip, step, unroll, stores)


def epilogue_first(results: Sequence[str]) -> list[str]:
    """Operands of the epilogue before the output."""
    return [*results[1:], results[0]]
