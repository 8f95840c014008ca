"""Reductions of float32 over any axes, and the pools over whole planes, in vectors.

Vectors lie along the axis whose elements are side by side in the input. If that one is reduced, several sums of lanes
are added up at the end of each row; if it is kept, each lane has the sum of an element of the result. So it is where
rows are shorter than a vector, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.loops.reductions import reduced_axes
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue, load, store
from eqsat.codegen.kernels.vectors.shared_axes import SharedAxis, VectorLoop, merged, passes, side_by_side
from eqsat.schema.types import OpKey

_FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True, slots=True)
class _Reduction:
    """The steps of a reduction.

    Attributes:
        start: Each lane before the first element.
        step: The lanes ``s`` after the elements ``a``.
        joined: Two vectors of lanes, ``s`` and ``a``, as one.
        total: The lanes of ``s`` as one number.
        finish: The result from the sum ``s``, for one number and for a vector; ``n`` is the number of elements.
    """

    start: str
    step: str
    joined: str = "s + a"
    total: str = "total@(s)"
    finish: str = "s"
    finish_lanes: str = ""


_SUM = _Reduction("0.0f", "s + a")
_SQUARES = _Reduction("0.0f", "FMA@(a, a, s)")
_MEAN = replace(_SUM, finish="s / n", finish_lanes="s / n")
_MAX = _Reduction("-INFINITY", "maximum@(s, a)", "maximum@(s, a)", "highest@(s)")
_HOW = {
    "ReduceSum": _SUM,
    "ReduceMean": _MEAN,
    "GlobalAveragePool": _MEAN,
    "ReduceMax": _MAX,
    "GlobalMaxPool": _MAX,
    "ReduceMin": _Reduction("INFINITY", "minimum@(s, a)", "minimum@(s, a)", "-highest@(-s)"),
    "ReduceL1": _Reduction("0.0f", "s + abs@(a)"),
    "ReduceL2": replace(_SQUARES, finish="sqrtf(s)", finish_lanes="sqrt@(s)"),
    "ReduceSumSquare": _SQUARES,
}


def _axes(task: Task) -> tuple[int, ...] | None:
    if task.operator.name.startswith("Global"):
        return tuple(range(2, task.view(0).rank))
    return reduced_axes(task)


def _accepts(task: Task) -> bool:
    x, y = task.inputs[0], task.output
    if not isinstance(x, View) or x.dtype != _FLOAT or y.dtype != _FLOAT or x.rank == 0 or x.elements == 0:
        return False
    # A number has no axis for vectors of an epilogue.
    if y.rank == 0 and any(isinstance(v, View) for v in task.epilogue.operands):
        return False
    return bool(_axes(task)) and is_vector_epilogue(task.epilogue)


def _split(task: Task, strides: Mapping[str, Sequence[int]]) -> tuple[list[SharedAxis], list[SharedAxis]]:
    """Kept and reduced axes, each from the outermost to the innermost one in the input."""
    x, reduced = task.view(0), _axes(task) or ()
    keeps = task.output.rank == x.rank
    kept: list[SharedAxis] = []
    summed: list[SharedAxis] = []
    place = 0
    for axis, (size, step) in enumerate(zip(x.shape, x.strides, strict=True)):
        if axis in reduced:
            summed.append(SharedAxis(size, {"x0": step}))
        else:
            at = axis if keeps else place
            kept.append(SharedAxis(size, {"x0": step, **{name: s[at] for name, s in strides.items()}}, at))
        place += axis not in reduced
    return merged(kept), merged(sorted(summed, key=lambda a: -abs(a.steps["x0"])))


class _Writer:
    """The kernel of one task."""

    def __init__(self, task: Task, isa: Isa) -> None:
        y = task.output
        self.task, self.isa, self.how = task, isa, _HOW[task.operator.name]
        # The axis along which the epilogue has vectors is known once the strides are, and its constants depend on it.
        self.epilogue = VectorEpilogue(task.epilogue, y.shape, max(y.rank - 1, 0), isa)
        kept, reduced = self._axes()
        self.along = kept[-1] if self._lanes(kept, reduced) is not None else None
        if self.along is not None and self.along.axis != self.epilogue.axis:
            self.epilogue = VectorEpilogue(task.epilogue, y.shape, self.along.axis, isa)
            kept, reduced = self._axes()
            self.along = kept[-1]
        self.kept = kept[:-1] if self.along is not None else kept
        self.reduced = reduced
        self.inner = reduced[-1] if reduced else SharedAxis(1, {"x0": 1})

    def _axes(self) -> tuple[list[SharedAxis], list[SharedAxis]]:
        kept, reduced = _split(self.task, {**self.epilogue.strides, "y0": self.task.output.strides})
        if (innermost := self._lanes(kept, reduced)) is not None:
            kept.append(kept.pop(innermost))
        return kept, reduced

    def _lanes(self, kept: list[SharedAxis], reduced: list[SharedAxis]) -> int | None:
        """The axis along which each lane has an element of the result."""
        return side_by_side(kept, reduced[-1] if reduced else None, self.isa.lanes())

    def written(self) -> GeneratedKernel:
        """The kernel."""
        names = ("x0", *self.epilogue.strides, "y0")
        count = math.prod(a.size for a in self.reduced)
        text = render(
            "vectors/reductions.c.jinja",
            how=self.how,
            loops=self.kept,
            pointers=[
                (name, "".join(f" + n{k} * {a.steps[name]}" for k, a in enumerate(self.kept) if a.steps[name]))
                for name in names
            ],
            outer=self.reduced[:-1],
            inner=self.inner,
            count=c_types.literal(float(count), _FLOAT),
            **(self._along_kept() if self.along is not None else self._along_reduced()),
        )
        body, helpers = finish(text, self.isa)
        return GeneratedKernel(body, tuple(self.epilogue.constants), helpers=(*self.epilogue.helpers, *helpers))

    def _finished(self, address: Callable[[str], str], live: int, step: int) -> str:
        lines, result = self.epilogue.write("t", address, live)
        return "\n".join([*lines, store(address("y0"), result, step, live, self.isa)])

    def _along_reduced(self) -> dict[str, object]:
        """Rows of elements that lie side by side, or at least evenly."""
        # A scalar sum of many elements would lose more than the lanes of a vector.
        sums = 4 if self.isa.lanes() > 1 else 16
        parts = passes(self.inner.size, self.isa.lanes(), sums)
        most = max(len(p.vectors) for p in parts)

        def element(part: VectorLoop, first: int, live: int) -> str:
            at = f"p + i * {part.step * self.inner.steps['x0']} + {(part.first + first) * self.inner.steps['x0']}"
            return self._padded(at, self.inner.steps["x0"], live)

        return {
            "sums": most,
            "parts": parts,
            "element": element,
            "finish": self._finished(lambda name: f"{name}p", 1, 1),
        }

    def _padded(self, at: str, step: int, live: int) -> str:
        """Elements; unused lanes do not change the result."""
        # A load leaves zeros in unused lanes, except that it repeats the one element of an axis that is stretched.
        if live == self.isa.lanes() or (self.how.start == "0.0f" and step):
            return load(at, step, live, self.isa)
        if step == 1:
            return f"load_part_or@({at}, {live}, SPLAT@({self.how.start}))"
        return f"lanes_or@({load(at, step, live, self.isa)}, {live}, SPLAT@({self.how.start}))"

    def _along_kept(self) -> dict[str, object]:
        """Elements of the result that lie side by side in the input."""
        along = self.along
        assert along is not None
        parts = passes(along.size, self.isa.lanes(), 8 if self.isa.registers >= 32 else 4)

        def address(part: VectorLoop, first: int) -> Callable[[str], str]:
            def pointer(name: str) -> str:
                step = along.steps[name]
                return f"{name}p + i * {part.step * step} + {(part.first + first) * step}"

            return pointer

        def element(part: VectorLoop, first: int, live: int) -> str:
            step = along.steps["x0"]
            return load(f"p + {first * step}", step, live, self.isa)

        def finished(part: VectorLoop, first: int, live: int) -> str:
            return self._finished(address(part, first), live, along.steps["y0"])

        return {"along": along, "parts": parts, "element": element, "finished": finished}


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    return _Writer(task, isa).written()


register(Family("reducing vectors", tuple(OpKey("", name) for name in _HOW), _accepts, _generate, rank=9))
