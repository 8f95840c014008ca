"""Softmax of rows that are shorter than a vector, or little longer: each lane of a vector has a row of its own.

Vectors along such rows would be filled in part, and end with sums over lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import GeneratedKernel, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop, collapse
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, load, store
from eqsat.schema.size_questions import any_free


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that are computed in the same way: loops, pointers and their offsets, C of the columns."""

    loops: list[NestLoop]
    pointers: list[tuple[str, str]]
    loads: list[str]
    stores: list[str]


def are_short(task: Task, axis: int, isa: Isa) -> bool:
    """Whether lanes are filled better by rows than by what these contain."""
    shape = task.output.shape
    if isa.lanes() == 1 or any_free(shape):
        return False
    rows, _, along = _rows(task, axis)
    return shape[axis] <= isa.lanes() * 3 // 2 and len(shape) > 1 and rows.output.shape[along] >= isa.lanes()


def are_spread(task: Task, axis: int) -> bool:
    """Whether a lane would not have the row beside that of the lane before."""
    rows, _, along = _rows(task, axis)
    return not all(view.strides[along] == 1 for view in (rows.view(0), rows.output))


def softmax(task: Task, axis: int, isa: Isa) -> GeneratedKernel:
    """The kernel; of LogSoftmax as well."""
    task, axis, along = _rows(task, axis)
    epilogue = VectorEpilogue(task.epilogue, task.output.shape, along, isa)
    rows, lanes = task.output.shape[along], isa.lanes()
    parts = ((0, rows // lanes, lanes), (rows // lanes * lanes, 1, rows % lanes))
    blocks = [_block(task, axis, along, epilogue, isa, *part) for part in parts if part[1] and part[2]]
    log = task.operator.name == "LogSoftmax"
    body, helpers = finish(render("vectors/softmax_of_short_rows.c.jinja", blocks=blocks, log=log), isa)
    return GeneratedKernel(body, tuple(epilogue.constants), helpers=(*epilogue.helpers, *helpers))


def _block(
    task: Task, axis: int, along: int, epilogue: VectorEpilogue, isa: Isa, first: int, count: int, live: int
) -> _Block:
    x, y, others = task.view(0), task.output, [a for a in range(task.output.rank) if a not in (axis, along)]
    made = {"x0": x.strides, **epilogue.strides, "y0": y.strides}
    pointers = []
    for pointer, strides in made.items():
        moves = [f" + n{a} * {strides[a]}" for a in others if strides[a]]
        if strides[along]:
            moves.append(f" + i * {isa.lanes() * strides[along]} + {first * strides[along]}")
        pointers.append((pointer, "".join(moves)))

    def at(column: int) -> Callable[[str], str]:
        return lambda name: f"{name}p + {column * made[name][axis]}"

    columns, stores = range(y.shape[axis]), []
    for c in columns:
        lines, result = epilogue.write("t", at(c), live)
        stores.append("\n".join([*lines, store(at(c)("y0"), result, y.strides[along], live, isa)]))
    loops = [*(NestLoop(f"n{a}", y.shape[a]) for a in others), NestLoop("i", count)]
    return _Block(loops, pointers, [load(at(c)("x0"), x.strides[along], live, isa) for c in columns], stores)


def _rows(task: Task, axis: int) -> tuple[Task, int, int]:
    """A task, its axis of columns, and the axis of the rows that lanes have: all of them, where they are one axis."""
    x, y = task.view(0), task.output
    kept = [a for a in range(y.rank) if a != axis]
    joined = collapse([Axis(y.shape[a], {"x0": x.strides[a], "y0": y.strides[a]}) for a in kept])
    if len(joined) == 1 and not task.epilogue.operands:
        (rows,) = joined

        def matrix(view: View, name: str) -> View:
            return replace(
                view, shape=(rows.extent, y.shape[axis]), strides=(rows.stride(name), view.strides[axis]), halo=()
            )

        return replace(task, inputs=(matrix(x, "x0"),), outputs=(matrix(y, "y0"),)), 1, 0
    return task, axis, max(kept, key=lambda a: y.shape[a], default=axis)
