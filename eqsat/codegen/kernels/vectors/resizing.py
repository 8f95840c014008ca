"""Resize of float32 in vectors along the innermost axis of memory, whatever axis that is.

The other axes are interpolated first: each row of the result is a weighted sum of rows of the input. If the innermost
axis is resized too, that row is kept in working memory, with its edge elements repeated on both sides, and then
interpolated itself: where its length becomes a multiple, each phase is a sum of shifted vectors; elsewhere elements are
collected by tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.loops.resizing import plan_of
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import NestLoop
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue, load, store
from eqsat.codegen.kernels.vectors.interleaving import interleaved
from eqsat.ops.families.resize import ResizePlan, axis_taps
from eqsat.schema.size_questions import is_free, magnitude
from eqsat.schema.types import OpKey, Shape

_PANEL = 16
"""Tables are a multiple of this long, so that all instruction sets share them."""
_UNROLLED = 16
"""Sums of more elements are loops."""
_MOST_TAPS = 1024
"""Elements that an output is the sum of."""
_MOST_PHASES = 8


@dataclass(frozen=True, slots=True)
class _Taps:
    """How one axis is interpolated.

    Attributes:
        index: Places in the input, ``[outputs, taps]``.
        weights: Likewise; None for the nearest element.
    """

    index: np.ndarray
    weights: np.ndarray | None

    @property
    def count(self) -> int:
        return self.index.shape[1]


@dataclass(frozen=True, slots=True)
class _Phases:
    """An axis whose outputs repeat a pattern of weights.

    Attributes:
        offsets: For each phase the distances of its taps from the input with the number of the output within the phase.
        weights: Likewise; None for the nearest element.
        before: Elements that are read before the first one.
        after: And after the last one.
    """

    offsets: np.ndarray
    weights: np.ndarray | None
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Equally computed pieces of a row."""

    count: int
    first: int
    step: int
    lines: list[str]


def _taps(plan: ResizePlan, shape: Shape) -> dict[int, _Taps] | None:
    """The taps of each axis that changes; None if some elements lie outside."""
    found: dict[int, _Taps] = {}
    for p in plan.axes:
        index, weights, beyond = axis_taps(p, shape[p.axis], plan.rule)
        if beyond is not None and beyond.any():
            return None
        if weights is None:
            found[p.axis] = _Taps(index.reshape(-1, 1), None)
        else:
            used = np.flatnonzero(weights.any(0))
            found[p.axis] = _Taps(index[:, used], weights[:, used].astype(np.float32))
    return found


def _accepts(task: Task) -> bool:
    x = task.inputs[0]
    if not isinstance(x, View) or x.dtype != ir.DataType.FLOAT or task.outputs[0] is None:
        return False
    if 0 in x.shape or 0 in task.output.shape or not is_vector_epilogue(task.epilogue):
        return False
    plan = plan_of(task)
    if plan is None or any(is_free(x.shape[p.axis]) for p in plan.axes):
        return False
    found = _taps(plan, x.shape)
    return found is not None and math.prod(t.count for t in found.values()) <= _MOST_TAPS


def _wants(task: Task) -> Wants:
    return Wants(outputs=(Want(follows=0),))


def _phases(taps: _Taps, length: int) -> _Phases | None:
    """The pattern of an axis that is enlarged by a whole factor, if it has one."""
    outputs = len(taps.index)
    times = outputs // length
    if times * length != outputs or not 1 < times <= _MOST_PHASES or length < 4:
        return None
    middle = length // 2 * times
    offsets = taps.index[middle : middle + times] - length // 2
    every = np.arange(length)[:, None, None] + offsets
    if not np.array_equal(np.clip(every, 0, length - 1).reshape(outputs, -1), taps.index):
        return None
    if taps.weights is None:
        weights = None
    else:
        weights = taps.weights[middle : middle + times]
        if not np.allclose(np.tile(weights, (length, 1)), taps.weights, rtol=0, atol=1e-6):
            return None
    return _Phases(offsets, weights, max(0, -int(offsets.min())), max(0, int(offsets.max())))


class _Writer:
    def __init__(self, task: Task, isa: Isa) -> None:
        self.task, self.isa, self.lanes = task, isa, isa.lanes()
        self.x, self.y = task.view(0), task.output
        plan = plan_of(task)
        assert plan is not None
        taps = _taps(plan, self.x.shape)
        assert taps is not None
        self.taps = taps
        axes = [a for a in range(self.y.rank) if self.y.shape[a] != 1] or [self.y.rank - 1]
        self.inner = min(axes, key=lambda a: (magnitude(self.y.strides[a]), -a))
        self.tables: list[np.ndarray] = []
        self.outer = [
            a for a in sorted(range(self.y.rank), key=lambda a: -magnitude(self.y.strides[a])) if a != self.inner
        ]
        self.declarations = self._sources()
        self.row = self.taps.get(self.inner)
        self.width = -(-len(self.row.index) // _PANEL) * _PANEL if self.row is not None else 0
        self.phases = None if self.row is None else _phases(self.row, self.x.shape[self.inner])
        self.across = ("", None) if self.row is None or self.phases is not None else self._row_tables()
        self.epilogue = VectorEpilogue(task.epilogue, self.y.shape, self.inner, isa, first_constant=len(self.tables))
        self.made: dict[str, Shape] = {"y0": self.y.strides, **self.epilogue.strides}

    def _table(self, array: np.ndarray) -> str:
        self.tables.append(array)
        return f"w{len(self.tables) - 1}"

    def _sources(self) -> list[str]:
        """Declarations of the rows that are summed, and of their weights."""
        moves, choices = "", []
        for a in self.outer:
            taps = self.taps.get(a)
            if taps is None:
                if self.x.shape[a] != 1 and self.x.strides[a]:
                    moves += f" + n{a} * {self.x.strides[a]}"
                continue
            index = self._table((taps.index * self.x.strides[a]).astype(np.int32).ravel())
            weights = None if taps.weights is None else self._table(taps.weights.ravel())
            choices.append((a, taps.count, index, weights))
        self.sums = math.prod(count for _, count, _, _ in choices)
        self.weighted = any(weights for _, _, _, weights in choices)
        lines = []
        if self.sums > _UNROLLED:
            lines = [f"const float *from[{self.sums}];", f"float share[{self.sums}];", "ptrdiff_t s = 0;"]
            for a, count, _, _ in choices:
                lines.append(f"for (ptrdiff_t t{a} = 0; t{a} < {count}; t{a}++)")
            at = [(f"[n{a} * {count} + t{a}]", index, weights) for a, count, index, weights in choices]
            place = "".join(f" + {index}{k}" for k, index, _ in at)
            share = " * ".join(f"{weights}{k}" for k, _, weights in at)
            return [*lines, f"{{ from[s] = x0{moves}{place}; share[s++] = {share}; }}"]
        for number, some in enumerate(product(*(range(count) for _, count, _, _ in choices))):
            at = [(f"[n{a} * {n} + {t}]", i, w) for t, (a, n, i, w) in zip(some, choices, strict=True)]
            lines.append(f"const float *from{number} = x0{moves}{''.join(f' + {i}{k}' for k, i, _ in at)};")
            if self.weighted:
                lines.append(f"const float share{number} = {' * '.join(f'{w}{k}' for k, _, w in at)};")
        return lines

    def _row_tables(self) -> tuple[str, str | None]:
        """Tables of places and weights along the innermost axis, tap by tap."""
        assert self.row is not None
        outputs, count = self.row.index.shape
        index = np.zeros((count, self.width), np.int32)
        index[:, :outputs] = self.row.index.T
        index[:, outputs:] = index[:, outputs - 1 : outputs]
        places = self._table(index.ravel())
        if self.row.weights is None:
            return places, None
        weights = np.zeros((count, self.width), np.float32)
        weights[:, :outputs] = self.row.weights.T
        return places, self._table(weights.ravel())

    def kernel(self) -> GeneratedKernel:
        lines = list(self.declarations)
        scratch = 0
        if self.row is None:
            parts = self._rows(self.y.shape[self.inner], self._finished)
        else:
            more, parts, scratch = self._interpolated()
            lines += more
        names = [
            (n, "".join(f" + n{a} * {s[a]}" for a in self.outer if s[a] and self.y.shape[a] != 1))
            for n, s in self.made.items()
        ]
        loops = [NestLoop(f"n{a}", self.y.shape[a]) for a in self.outer if self.y.shape[a] != 1 or a in self.taps]
        text = render("vectors/resizing.c.jinja", loops=loops, pointers=names, lines=lines, parts=parts)
        body, helpers = finish(text, self.isa)
        return GeneratedKernel(
            body,
            (*self.tables, *self.epilogue.constants),
            scratch,
            (*self.epilogue.helpers, *helpers),
        )

    def _rows(self, length: int, each: Callable[[int], list[str]]) -> list[_Part]:
        """Pieces of the sum of rows, each passed to a function that writes its use."""
        found = []
        whole, rest = divmod(length, self.lanes)
        for first, count, live in ((0, whole, self.lanes), (whole * self.lanes, 1, rest)):
            if count == 0 or live == 0:
                continue
            step = self.x.strides[self.inner]
            place = f" + (i * {step})"
            if self.sums > _UNROLLED:
                value = load(f"from[k]{place}", step, live, self.isa)
                lines = ["vf@ t = SPLAT@(0.0f);"]
                lines.append(f"for (ptrdiff_t k = 0; k < {self.sums}; k++) t = FMA1@(share[k], {value}, t);")
            else:
                values = [load(f"from{k}{place}", step, live, self.isa) for k in range(self.sums)]
                lines = [f"vf@ t = {f'SPLAT@(share0) * {values[0]}' if self.weighted else values[0]};"]
                lines += [f"t = FMA1@(share{k}, {value}, t);" for k, value in enumerate(values) if k]
            found.append(_Part(count, first, self.lanes, [*lines, *each(live)]))
        return found

    def _finished(self, live: int) -> list[str]:
        """The epilogue and the store of the vector ``t`` at output ``i``."""

        def address(name: str) -> str:
            return f"{name}p + i * {self.made[name][self.inner]}"

        lines, result = self.epilogue.write("t", address, live)
        return [*lines, store(address("y0"), result, self.made["y0"][self.inner], live, self.isa)]

    def _interpolated(self) -> tuple[list[str], list[_Part], int]:
        """Declarations, pieces, and bytes of working memory of a row that is interpolated itself."""
        row = self.row
        assert row is not None
        length = self.x.shape[self.inner]
        phases = self.phases
        before, after = (phases.before, phases.after) if phases is not None else (0, 0)
        whole = self.sums == 1 and not self.weighted and self.x.strides[self.inner] == 1
        direct = whole and before == 0 and after == 0 and (phases is not None or length >= self.lanes)
        if direct:
            lines, parts, scratch = ["const float *row = from0;"], [], 0
        else:
            front = -(-before // _PANEL) * _PANEL
            scratch = 4 * (front + length + after + 2 * _PANEL)
            lines = [f"float *row = (float *)scratch + {front};"]
            parts = self._rows(length, lambda live: [store("row + i", "t", 1, live, self.isa)])
            edges = [f"row[{-1 - k}] = row[0];" for k in range(before)]
            edges += [f"row[{length + k}] = row[{length - 1}];" for k in range(after)]
            parts.append(_Part(1, 0, 0, edges))
        parts += self._by_phases(phases, length) if phases is not None else self._by_tables(row, length, direct)
        return lines, parts, scratch

    def _by_phases(self, phases: _Phases, length: int) -> list[_Part]:
        found = []
        times = len(phases.offsets)
        whole, rest = divmod(length, self.lanes)
        for first, count, live in ((0, whole, self.lanes), (whole * self.lanes, 1, rest)):
            if not count or not live:
                continue
            lines, names = [], []
            for p, offsets in enumerate(phases.offsets):
                values = [load(f"row + i + {o}", 1, live, self.isa) for o in offsets]
                if phases.weights is None:
                    text = values[0]
                else:
                    shares = [f"{float(w)!r}f" for w in phases.weights[p]]
                    text = f"SPLAT@({shares[0]}) * {values[0]}"
                    for share, value in zip(shares[1:], values[1:], strict=True):
                        text = f"FMA@(SPLAT@({share}), {value}, {text})"
                lines.append(f"const vf@ p{p} = {text};")
                names.append(f"p{p}")
            more, vectors = interleaved(names, self.lanes)
            lines += more
            for k, vector in enumerate(vectors):
                some = min(self.lanes, live * times - k * self.lanes)
                if some <= 0:
                    break

                def address(name: str, k: int = k) -> str:
                    step = self.made[name][self.inner]
                    return f"{name}p + (i * {times * step} + {k * self.lanes * step})"

                steps, result = self.epilogue.write("t", address, some)
                end = store(address("y0"), result, self.made["y0"][self.inner], some, self.isa)
                lines.append(" ".join(["{", f"const vf@ t = {vector};", *steps, end, "}"]))
            found.append(_Part(count, first, self.lanes, lines))
        return found

    def _by_tables(self, row: _Taps, length: int, direct: bool) -> list[_Part]:
        found = []
        outputs = len(row.index)
        last = length - self.lanes if direct else length
        near = self._fits_a_vector(row.index, last)
        places, shares = self.across
        whole, rest = divmod(outputs, self.lanes)
        for first, count, live in ((0, whole, self.lanes), (whole * self.lanes, 1, rest)):
            if not count or not live:
                continue
            lines = []
            if near:
                lines.append(f"const ptrdiff_t b = {places}[i] < {last} ? {places}[i] : {last};")
                lines.append("const vf@ v = LD@(row + b);")

            def tap(k: str) -> str:
                at = f"LDI@({places} + {k} + i)"
                return f"permute@(v, {at} - (int32_t)b)" if near else f"gather@(row, {at})"

            if shares is None:
                lines.append(f"vf@ t = {tap('0')};")
            else:
                lines.append(f"vf@ t = LD@({shares} + i) * {tap('0')};")
                step = f"t = FMA@(LD@({shares} + k * {self.width} + i), {tap(f'k * {self.width}')}, t);"
                lines.append(f"for (ptrdiff_t k = 1; k < {row.count}; k++) {step}")
            found.append(_Part(count, first, self.lanes, lines + self._finished(live)))
        return found

    def _fits_a_vector(self, index: np.ndarray, last: int) -> bool:
        """Whether the elements of each vector of outputs lie within a vector of inputs."""
        if self.lanes == 1:
            return False
        for q in range(0, len(index), self.lanes):
            some, begin = index[q : q + self.lanes], min(int(index[q, 0]), last)
            if some.min() < begin or some.max() >= begin + self.lanes:
                return False
        return True


register(
    Family(
        "resizing of vectors",
        (OpKey("", "Resize"),),
        _accepts,
        lambda task, isa: _Writer(task, isa).kernel(),
        _wants,
        rank=10,
    )
)
