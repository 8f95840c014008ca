"""Winograd convolution F(4 x 4, 3 x 3) of float32 in NHWC (Lavin and Gray 2015, arXiv:1509.09308).

It needs 36 products instead of 144 for 16 outputs. The price is transforms, weights four times as large, and accuracy:
transformed numbers are sums with factors up to 8, so the relative error is about ten times that of direct convolution.
A convolution is computed in this way only if its attribute :data:`ASKED` requests it. Lowering sets that where the
search chose this family, by the costs of the host's file; :func:`pays` estimates for a single kernel where it helps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import AVX512, Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Epilogue, Family, GeneratedKernel, Task, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis
from eqsat.codegen.kernels.shared.tiling import choose, estimate
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.epilogue import SLACK, VectorEpilogue, load, store
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, Packed, pack, packed_size, write
from eqsat.schema.types import OpKey, Shape

ASKED = "eqsat.winograd"
"""Attribute of a Conv that may be computed with the accuracy of Winograd's algorithm."""

KERNEL = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)
"""Transform of a window of three weights, for the points 0, 1, -1, 2, -2 and infinity."""

_ROUND = 16
_NEAR = 512 * 1024
"""Bytes of transformed numbers that stay in the second cache."""
_STREAM = 16.0
"""Bytes of weights that arrive in a cycle from the third cache; from memory a third of that."""
_LAST_LEVEL = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Grid:
    """Tiles of 4 by 4 outputs."""

    batch: int
    rows: int
    columns: int
    inputs: int
    outputs: int

    @property
    def high(self) -> int:
        return -(-self.rows // 4)

    @property
    def wide(self) -> int:
        return -(-self.columns // 4)

    @property
    def tiles(self) -> int:
        return self.batch * self.high * self.wide

    @property
    def padded_inputs(self) -> int:
        return -(-self.inputs // _ROUND) * _ROUND

    @property
    def padded_outputs(self) -> int:
        return -(-self.outputs // _ROUND) * _ROUND


@dataclass(frozen=True, slots=True)
class InputStrides:
    """The input's strides, and the offset of the first tile."""

    batch: int
    row: int
    column: int
    corner: int


@dataclass(frozen=True, slots=True)
class InputPart:
    """Vectors of input channels that are processed in the same way."""

    first: int
    count: int
    load: Callable[[int, int], str]


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Vectors of output channels that are processed in the same way."""

    first: int
    count: int
    pointers: list[tuple[str, str]]
    store: Callable[[int, int], str]


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles that are transformed together."""

    first: int
    count: int
    tiles: int
    product: str


def grid(task: Task) -> Grid:
    """The tiles of a task that :func:`is_possible`."""
    w, y = task.constant(1), task.output
    assert w is not None
    return Grid(y.shape[0], y.shape[2], y.shape[3], w.shape[1], w.shape[0])


def is_possible(task: Task) -> bool:
    """3 by 3 windows, one by one, over all channels."""
    if not convolution.is_float_convolution(task) or task.view(0).rank != 4:
        return False
    at, w = convolution.geometry(task), task.constant(1)
    assert w is not None
    ones = (1, 1)
    return at.kernel == (3, 3) and at.strides == ones and at.dilations == ones and w.shape[1] == task.view(0).shape[1]


def pays(task: Task) -> bool:
    """Whether the algorithm is estimated to be faster than direct convolution, by a tenth at least."""
    if not is_possible(task):
        return False
    g = grid(task)
    if g.inputs < 16 or g.outputs < 16:
        return False
    vectors = -(-g.outputs // 16)
    steps = 9 * g.inputs
    direct = steps * g.batch * _time(g.rows * g.columns, vectors, steps)
    return _cycles(g, tiles_together(g)) < 0.9 * direct


def _time(pixels: int, vectors: int, steps: int) -> float:
    """Cycles of one step of a product's reduction."""
    return estimate(1, pixels, vectors, choose(1, pixels, 0, 4, vectors, steps, AVX512), steps, AVX512)


def _cycles(g: Grid, together: int) -> float:
    """Estimated cycles with this many tiles in a block."""
    vectors, weights = -(-g.outputs // 16), 36 * 4 * g.inputs * g.outputs
    stream = weights / (_STREAM if weights < _LAST_LEVEL else _STREAM / 3)
    total = 0.0
    for tiles, count in ((together, g.tiles // together), (g.tiles % together, 1)):
        if tiles and count:
            total += count * max(36 * g.inputs * _time(tiles, vectors, g.inputs), stream)
    # A transform touches each of its numbers about three times.
    moved = 36 * 4 * g.tiles * (g.padded_inputs + g.padded_outputs)
    return total + 3 * moved / 64


def tiles_together(g: Grid) -> int:
    """Tiles of a block: as many as the second cache holds, with even tiles of the products."""
    most = max(_NEAR // (36 * 4 * (g.padded_inputs + g.padded_outputs)), 12)
    return min(range(1, min(most, g.tiles) + 1), key=lambda n: (_cycles(g, n), n))


def _accepts(task: Task) -> bool:
    return bool(task.attributes.get(ASKED, 0)) and is_possible(task)


def _wants(task: Task) -> Wants:
    g, at, x = grid(task), convolution.geometry(task), task.view(0)
    around = [(0, 0), (0, 0)]
    for size, begin, tiles in zip(x.shape[2:], at.begin, (g.high, g.wide), strict=True):
        around.append((max(begin, 0), max(4 * tiles + 2 - begin - size, 0)))
    return convolution.nhwc(task, tuple(around))


def transformed(w: np.ndarray) -> np.ndarray:
    """Weights ``[36, outputs, inputs]``."""
    both = np.einsum("ij,kl->ikjl", KERNEL, KERNEL).reshape(36, 9)
    return (both @ w.reshape(-1, 9).T.astype(np.float64)).reshape(36, w.shape[0], w.shape[1])


def _product(g: Grid, tiles: int) -> ImplicitGemm:
    """One of the 36 products, without the loop around them."""
    return ImplicitGemm(
        input="v",
        weights="w0",
        output="m",
        outer=(),
        pixels=(Axis(tiles, {"v": g.padded_inputs, "m": g.padded_outputs}),),
        taps=((g.inputs, 1),),
        channels=g.outputs,
        channel={"m": 1},
        layout=Packed(bias=False),
    )


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    g, at, x, w, y = grid(task), convolution.geometry(task), task.view(0), task.constant(1), task.output
    assert w is not None
    lanes, together = isa.lanes(), tiles_together(g)
    size = packed_size(g.outputs, g.inputs, bias=False)
    nothing = VectorEpilogue(Epilogue(ir.DataType.FLOAT), (1,), 0, isa)

    def block(first: int, count: int, tiles: int) -> TileGroup:
        axis = Axis(36, {"v": tiles * g.padded_inputs, "w0": size, "m": tiles * g.padded_outputs})
        return TileGroup(first, count, tiles, write(_product(g, tiles).inside(axis), nothing, isa))

    whole, rest = divmod(g.tiles, together)
    blocks = [block(0, whole, together)] if whole else []
    if rest:
        blocks.append(block(whole * together, 1, rest))

    epilogue = VectorEpilogue(task.epilogue, y.shape, 1, isa, first_constant=2)
    made: dict[str, Shape] = {**epilogue.strides, "y0": y.strides}
    row, column = x.strides[2], x.strides[3]

    def input_part(first: int, count: int, live: int) -> InputPart:
        return InputPart(first, count, lambda i, j: load(f"xp + {i * row + j * column}", 1, live, isa))

    def output_part(first: int, count: int, live: int) -> OutputPart:
        pointers = []
        for name, s in made.items():
            moves = [("n", s[0]), ("ty", 4 * s[2]), ("tx", 4 * s[3]), ("c", lanes * s[1])]
            text = "".join(f" + {variable} * {k}" for variable, k in moves if k)
            pointers.append((name, text + (f" + {first * s[1]}" if first * s[1] else "")))

        def end(i: int, j: int) -> str:
            def address(name: str) -> str:
                return f"{name}p + {i * made[name][2] + j * made[name][3]}"

            lines, result = epilogue.write("t", address, live)
            last = store(address("y0"), result, y.strides[1], live, isa)
            return " ".join(["{", f"const vf@ t = o[{j}] + bias;", *lines, last, "}"])

        return OutputPart(first, count, pointers, end)

    def parts(channels: int) -> list[tuple[int, int, int]]:
        full, tail = divmod(channels, lanes)
        return ([(0, full, lanes)] if full else []) + ([(full * lanes, 1, tail)] if tail else [])

    text = render(
        "vectors/winograd.c.jinja",
        tiles=together,
        inputs=g.padded_inputs,
        outputs=g.padded_outputs,
        blocks=blocks,
        high=g.high,
        wide=g.wide,
        rows=g.rows,
        columns=g.columns,
        x=InputStrides(x.strides[0], row, column, convolution.corner(task, at)),
        input_parts=[input_part(*p) for p in parts(g.inputs)],
        output_parts=[output_part(*p) for p in parts(g.outputs)],
        lanes=lanes,
    )
    bias = np.zeros(g.padded_outputs + SLACK, np.float32)
    bias[: g.outputs] = convolution.bias(task, g.outputs)
    body, helpers = finish(text, isa)
    constants = (pack(transformed(w), None), bias, *epilogue.constants)
    scratch = 4 * (36 * together * (g.padded_inputs + g.padded_outputs) + SLACK)
    return GeneratedKernel(body, constants, scratch, (*epilogue.helpers, *helpers))


WINOGRAD = register(Family("Winograd convolution", (OpKey("", "Conv"),), _accepts, _generate, _wants, rank=15))
