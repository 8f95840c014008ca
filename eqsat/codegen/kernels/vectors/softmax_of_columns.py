"""Softmax along an axis whose elements lie apart in memory: each lane of a vector has a column of its own.

Such columns would have to be brought together and taken apart again, which costs more than the exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.nests import NestLoop
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, load, store
from eqsat.codegen.kernels.vectors.shared_axes import SharedAxis, VectorLoop, merged, passes
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import Shape

_LEAST = 8
"""Columns side by side from which on vectors are filled well enough."""
_VECTORS = 4
"""Of a pass: lines of the cache are read as a whole."""


@dataclass(frozen=True, slots=True)
class _Vector:
    """A vector of columns of one row: the expressions that the template asks for."""

    first: int
    live: int
    along: SharedAxis
    epilogue: VectorEpilogue
    isa: Isa

    def _at(self, name: str) -> str:
        offset = self.first * self.along.steps[name]
        return f"{name}p + {offset}" if offset else f"{name}p"

    @property
    def load(self) -> str:
        return load(self._at("x0"), self.along.steps["x0"], self.live, self.isa)

    @property
    def get(self) -> str:
        return load(self._at("y0"), self.along.steps["y0"], self.live, self.isa)

    def put(self, value: str) -> str:
        return store(self._at("y0"), value, self.along.steps["y0"], self.live, self.isa)

    @property
    def finish(self) -> str:
        """The epilogue of ``t``, and its store."""
        lines, result = self.epilogue.write("t", self._at, self.live)
        return "\n".join([*lines, self.put(result)])


@dataclass(frozen=True, slots=True)
class _Block:
    """Passes over as many columns each: loops, pointers and their offsets, the vectors of a row."""

    loops: list[NestLoop]
    pointers: list[tuple[str, str]]
    parts: list[_Vector]


def are_apart(shape: Shape, axis: int) -> bool:
    """Whether the elements along an axis lie apart in ONNX's layout, with enough columns side by side."""
    return not any_free(shape) and math.prod(shape[axis + 1 :]) >= _LEAST


def softmax(task: Task, axis: int, isa: Isa) -> GeneratedKernel:
    """The kernel; of LogSoftmax as well."""
    x, y = task.view(0), task.output
    innermost = max((a for a in range(y.rank) if a != axis), key=lambda a: y.shape[a] > 1 and y.strides[a] == 1)
    epilogue = VectorEpilogue(task.epilogue, y.shape, innermost, isa)
    kept, along = _columns(axis, y.shape, {"x0": x.strides, **epilogue.strides, "y0": y.strides})
    if along.axis != innermost:
        epilogue = VectorEpilogue(task.epilogue, y.shape, along.axis, isa)
        kept, along = _columns(axis, y.shape, {"x0": x.strides, **epilogue.strides, "y0": y.strides})
    body, helpers = finish(
        render(
            "vectors/softmax_of_columns.c.jinja",
            blocks=[_block(kept, along, epilogue, isa, part) for part in passes(along.size, isa.lanes(), _VECTORS)],
            rows=y.shape[axis],
            steps={
                "x0": x.strides[axis],
                **{name: strides[axis] for name, strides in epilogue.strides.items()},
                "y0": y.strides[axis],
            },
            copied=along.steps["x0"] != 1,
            log=task.operator.name == "LogSoftmax",
        ),
        isa,
    )
    return GeneratedKernel(body, tuple(epilogue.constants), helpers=(*epilogue.helpers, *helpers))


def _columns(axis: int, shape: Shape, strides: Mapping[str, Sequence[int]]) -> tuple[list[SharedAxis], SharedAxis]:
    """The axes of the columns, and the one along which vectors lie: where they are stored in one go, and are long."""
    kept = merged(
        [SharedAxis(n, {name: s[a] for name, s in strides.items()}, a) for a, n in enumerate(shape) if a != axis]
    )
    along = max(kept, key=lambda a: (a.steps["y0"] == 1, a.steps["x0"] == 1, a.size))
    return [a for a in kept if a is not along], along


def _block(
    kept: Sequence[SharedAxis], along: SharedAxis, epilogue: VectorEpilogue, isa: Isa, part: VectorLoop
) -> _Block:
    pointers = []
    for name in along.steps:
        moves = [f" + n{k} * {a.steps[name]}" for k, a in enumerate(kept) if a.steps[name]]
        if along.steps[name]:
            moves.append(f" + i * {part.step * along.steps[name]} + {part.first * along.steps[name]}")
        pointers.append((name, "".join(moves)))
    loops = [*(NestLoop(f"n{k}", a.size) for k, a in enumerate(kept)), NestLoop("i", part.count)]
    return _Block(loops, pointers, [_Vector(first, live, along, epilogue, isa) for first, live in part.vectors])
