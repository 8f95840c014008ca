"""ArgMax and ArgMin of float32 in vectors.

Where the axes that are kept lie side by side, each lane has the place of an element of the result. Otherwise the
extreme of a row is found in vectors, and then the first or last element that equals it.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.vectors.epilogue import load
from eqsat.codegen.kernels.vectors.shared_axes import SharedAxis, VectorLoop, merged, passes, side_by_side
from eqsat.schema.types import OpKey

_FLOAT = ir.DataType.FLOAT
_VECTORS = 4
"""Vectors that are compared together, because each comparison waits for the one before."""


def _accepts(task: Task) -> bool:
    x = task.inputs[0]
    if not isinstance(x, View) or x.dtype != _FLOAT or x.rank == 0 or x.elements == 0 or task.epilogue.steps:
        return False
    return x.shape[_axis(task)] < 2**31


def _axis(task: Task) -> int:
    return int(task.attributes["axis"]) % task.view(0).rank


def _kept(task: Task, lanes: int) -> tuple[list[SharedAxis], SharedAxis | None]:
    """The axes that the result has, and the one of which each lane has an element, if there is one."""
    x, y, axis = task.view(0), task.output, _axis(task)
    found = []
    for a, size in enumerate(x.shape):
        if a != axis:
            at = a if y.rank == x.rank or a < axis else a - 1
            found.append(SharedAxis(size, {"x0": x.strides[a], "y0": y.strides[at]}, at))
    kept = merged(found)
    innermost = side_by_side(kept, SharedAxis(x.shape[axis], {"x0": x.strides[axis]}), lanes)
    return kept, None if innermost is None else kept.pop(innermost)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, axis, lanes = task.view(0), _axis(task), isa.lanes()
    kept, along = _kept(task, lanes)
    largest = task.operator.name == "ArgMax"
    last = bool(task.attributes.get("select_last_index"))
    size, step = x.shape[axis], x.strides[axis]

    def lane_load(part: VectorLoop, first: int, live: int) -> str:
        apart = 1 if along is None else along.steps["x0"]
        return load(f"p + {first * apart}", apart, live, isa)

    def row_load(part: VectorLoop, first: int, live: int) -> str:
        at = f"x0p + i * {part.step * step} + {(part.first + first) * step}"
        if live == lanes:
            return load(at, step, live, isa)
        other = f"SPLAT@({'-' if largest else ''}INFINITY)"
        if step == 1:
            return f"load_part_or@({at}, {live}, {other})"
        return f"lanes_or@({load(at, step, live, isa)}, {live}, {other})"

    text = render(
        "vectors/arg_reductions.c.jinja",
        loops=kept,
        along=along,
        parts=passes(size if along is None else along.size, lanes, _VECTORS),
        sums=_VECTORS,
        element=row_load if along is None else lane_load,
        size=size,
        step=step,
        lanes=lanes,
        extreme="maximum@" if largest else "minimum@",
        start=f"{'-' if largest else ''}INFINITY",
        sign="" if largest else "-",
        before="LESS@(b, a)" if largest else "LESS@(a, b)",
        last=last,
        first_place=size - 1 if last else 0,
    )
    body, helpers = finish(text, isa)
    return GeneratedKernel(body, helpers=helpers)


register(
    Family("arg-reducing vectors", tuple(OpKey("", n) for n in ("ArgMax", "ArgMin")), _accepts, _generate, rank=10)
)
