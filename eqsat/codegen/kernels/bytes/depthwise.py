"""Depthwise convolutions of 8-bit integers: a byte from each of 4 rows forms one word of a channel.

The byte product sums 4 neighbouring bytes, but the elements that a channel sums lie a pixel or a row apart. So 4 rows
of a column are interleaved once and serve all windows of the row that contain the column: with a 3 x 3 window and
stride 1 there are three products for each shuffle, and only the fourth byte of each word is unused. Where the zero
points of the weights do not fit into a byte with these, the words of each column are summed as well, once for all
windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.c_values import Value, Vector
from eqsat.codegen.kernels.bytes.conv import (
    OPERATORS,
    Convolution,
    folded,
    kernel,
    output_axes,
    pointer_types,
    start,
    understood,
    wants,
)
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.epilogue_steps import is_supported
from eqsat.codegen.kernels.bytes.weights import PANEL, by_channel
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.schema.size_questions import typical

_WIDEST = 8
"""Windows of a row that are summed at a time."""


@dataclass(frozen=True, slots=True)
class InputColumn:
    """One column of the input in a tile: how far it is from the first, and (window, tap) pairs that it counts for."""

    offset: int
    uses: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DepthwiseTile:
    """A tile of windows of one vector of channels, as the template wants it."""

    loops: list[tuple[str, int]]
    pointers: list[tuple[str, str, str]]
    windows: int
    columns: list[InputColumn]
    stores: list[str]
    part: int


def _depthwise(task: Task) -> Convolution | None:
    found = understood(task)
    if found is None or found.weights.shape[1] != 1 or found.group != found.weights.shape[0] or found.group == 1:
        return None
    return found if len(found.spatial) <= 2 else None


def accepts(task: Task) -> bool:
    """One output channel for each input channel."""
    found = _depthwise(task)
    return found is not None and is_supported(task.epilogue) and folded(found, False).fits()


def _packed(weights: np.ndarray) -> np.ndarray:
    """``[channels, height, width]`` as ``[panel][height / 4][width][16][4]``."""
    channels, high, wide = weights.shape
    full = np.zeros((-(-channels // PANEL) * PANEL, -(-high // 4) * 4, wide), np.int8)
    full[:channels, :high] = weights
    return np.ascontiguousarray(full.reshape(-1, PANEL, full.shape[1] // 4, 4, wide).transpose(0, 2, 4, 1, 3)).ravel()


def generate(task: Task, isa: Isa) -> GeneratedKernel:
    """Loops over rows, vectors of channels and tiles of a row."""
    found = _depthwise(task)
    assert found is not None
    x = task.view(0)
    weights = folded(found, False).joined()
    # A single spatial axis counts as rows: one word holds several of its taps.
    kernel_shape = (*found.at.kernel, 1)[:2]
    first = start(found, weights, x.dtype, 1)
    constants = [_packed(weights.weights.reshape(-1, *kernel_shape)), *first.constants]
    by = [first.name]
    if found.scale is not None:
        by.append(f"w{len(constants)}")
        constants.append(by_channel(found.scale.reshape(1, -1)))
    if weights.zeros is not None:
        by.append(f"w{len(constants)}")
        constants.append(by_channel(weights.zeros.astype(np.int32)))
    epilogue = ByteEpilogue(task.epilogue, task.output.shape, found.channel, isa, len(constants))
    epilogue.result_stride = task.output.strides[found.channel]
    types = pointer_types(task, [*constants, *epilogue.constants]) | first.types
    zeros = None if weights.zeros is None else by[-1]
    text = "\n".join([*first.lines, _Writer(task, found, epilogue, by, zeros, types, isa).body()])
    return kernel(text, constants, epilogue, isa, first.scratch)


class _Writer:
    def __init__(
        self,
        task: Task,
        found: Convolution,
        epilogue: ByteEpilogue,
        by_channel: list[str],
        zeros: str | None,
        types: dict[str, str],
        isa: Isa,
    ) -> None:
        self.task, self.found, self.epilogue, self.types, self.isa = task, found, epilogue, types, isa
        self.by_channel, self.zeros = by_channel, zeros
        self.lanes = isa.lanes()
        self.x, self.at = task.view(0), found.at
        self.high, self.wide = (*self.at.kernel, 1)[:2]
        self.groups = -(-self.high // 4)
        steps = [self.x.strides[a] for a in found.spatial]
        self.row_step, self.column_step = (*steps, 0)[:2]
        self.stride = (*self.at.strides, 1)[:2]
        self.dilation = (*self.at.dilations, 1)[:2]
        self.out = (*self.at.out, 1)[:2]
        self.corner = -sum(b * s for b, s in zip(self.at.begin, steps, strict=True))
        self.results = [*epilogue.strides, "y0"]

    def _moves(self, axis: int) -> dict[str, int]:
        """Strides of output and operands along a spatial axis."""
        spatial = self.found.spatial
        return output_axes(self.task, self.epilogue, spatial[axis]) if axis < len(spatial) else {}

    def body(self) -> str:
        task, lanes = self.task, self.lanes
        channels = task.output.shape[self.found.channel]
        nests = []
        for first, live, count in ((0, lanes, channels // lanes), (channels // lanes * lanes, channels % lanes, 1)):
            if live and count:
                nests += [
                    self._nest(first, live, count, column, windows, times)
                    for column, windows, times in split(self.out[1], self._windows())
                ]
        text = render(
            "bytes/depthwise.c.jinja",
            nests=nests,
            groups=self.groups,
            taps=self.wide,
            start=self.by_channel[0],
            sums=self.zeros is not None,
            live=[min(4, self.high - 4 * g) for g in range(self.groups)],
            rows=[
                [self._row(4 * g + i) if 4 * g + i < self.high else self._row(4 * g) for i in range(4)]
                for g in range(self.groups)
            ],
            signed=self.x.dtype == ir.DataType.INT8,
        )
        return "\n".join([*self.epilogue.declarations(), text])

    def _row(self, tap: int) -> int:
        return tap * self.dilation[0] * self.row_step

    def _windows(self) -> int:
        """Windows of a tile: the most that divide a row, otherwise as many as registers hold."""
        room = self.isa.registers - self.groups * self.wide - 5
        room = room if self.zeros is None else (room - self.groups) // 2
        columns = max(typical(self.out[1]), 1)
        most = max(1, min(_WIDEST, room, columns))
        whole = [n for n in range(most, 0, -1) if columns % n == 0]
        return whole[0] if 2 * whole[0] >= most else most

    def _nest(self, first: int, live: int, count: int, column: int, windows: int, times: int) -> DepthwiseTile:
        task, lanes, found = self.task, self.lanes, self.found
        channel = output_axes(task, self.epilogue, found.channel)
        rows, columns, batch = self._moves(0), self._moves(1), output_axes(task, self.epilogue, 0)
        loops = [("n", task.output.shape[0]), ("r", self.out[0]), ("c", count), ("t", times)]
        loops = [loop for loop in loops if loop[1] != 1]
        looped = {name for name, _ in loops}
        panel = self.groups * self.wide * PANEL * 4
        pointers = []
        for name in ["x0", "w0", *self.by_channel, *self.results]:
            if name == "x0":
                per_column = self.stride[1] * self.column_step
                steps = {
                    "n": self.x.strides[0],
                    "r": self.stride[0] * self.row_step,
                    "c": lanes,
                    "t": windows * per_column,
                }
                fixed = self.corner + first + column * per_column
            elif name == "w0":
                # A vector is a part of a panel, or a panel.
                within = PANEL // lanes
                moved = f" + c / {within} * {panel} + c % {within} * {4 * lanes}" if "c" in looped else ""
                fixed = first // PANEL * panel + first % PANEL * 4
                pointers.append(("const int8_t *restrict", "w0", moved + (f" + {fixed}" if fixed else "")))
                continue
            elif name in self.by_channel:
                steps, fixed = {"c": lanes}, first
            else:
                steps = {
                    "n": batch[name],
                    "r": rows.get(name, 0),
                    "c": lanes * channel[name],
                    "t": windows * columns.get(name, 0),
                }
                fixed = first * channel[name] + column * columns.get(name, 0)
            moves = "".join(f" + {loop} * {step}" for loop, step in steps.items() if loop in looped and step)
            constant = "" if name == "y0" else "const "
            pointers.append((f"{constant}{self.types[name]} *restrict", name, moves + (f" + {fixed}" if fixed else "")))
        stores = self.epilogue.write([self._vector(m, live, columns) for m in range(windows)])
        part = live if live < lanes and self.x.slack < lanes else 0
        return DepthwiseTile(loops, pointers, windows, self._columns(windows), stores, part)

    def _columns(self, windows: int) -> list[InputColumn]:
        found: dict[int, list[tuple[int, int]]] = {}
        for m in range(windows):
            for tap in range(self.wide):
                found.setdefault(m * self.stride[1] + tap * self.dilation[1], []).append((m, tap))
        return [InputColumn(j * self.column_step, uses) for j, uses in sorted(found.items())]

    def _vector(self, window: int, live: int, columns: dict[str, int]) -> Vector:
        found = self.found

        def address(name: str) -> str:
            offset = window * columns.get(name, 0)
            return f"{name}p + {offset}" if offset else f"{name}p"

        def first() -> Value:
            total = f"c{window}" if self.zeros is None else f"(c{window} - LDI@({self.zeros}p) * s{window})"
            if found.scale is None:
                return Value(total, "i", ir.DataType.INT32)
            text = f"FLOAT@({total}) * LD@({self.by_channel[1]}p)"
            return self.epilogue.rounded(text, found.result_zero, self.task.epilogue.dtype)

        return Vector(first, address, live, window * columns.get("y0", 0))


FAMILY = register(Family("integer depthwise convolution", OPERATORS, accepts, generate, wants, rank=21))
