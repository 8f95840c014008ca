"""Chains of elementwise operators on float32, and copies between layouts, in vectors.

Operands and results may have half precision, which the chain converts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.loops.elementwise import flattened, wants_of_chain
from eqsat.codegen.kernels.shared.copies import copied
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import NestLoop
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, is_vector_epilogue, load, store
from eqsat.codegen.kernels.vectors.transposing_chain import COLUMNS, ROWS, Crossing, crossing, in_tiles, place
from eqsat.schema.types import OpKey, Shape


@dataclass(frozen=True, slots=True)
class AxisVectors:
    """Whole vectors of the innermost axis, or what remains."""

    count: int
    pointers: list[tuple[str, str]]
    lines: list[str]


def _accepts(task: Task) -> bool:
    x, y = task.inputs[0], task.output
    if len(task.inputs) != 1 or not isinstance(x, View) or y.elements in (0, 1):
        return False
    if not task.epilogue.steps:
        return x.dtype == y.dtype == ir.DataType.FLOAT
    return is_vector_epilogue(task.epilogue, halves=True)


def _moves(loops: list[NestLoop], strides: Shape) -> str:
    return "".join(f" + {loop.name} * {s}" for loop, s in zip(loops, strides, strict=False) if s)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    task = flattened(task)
    x, y, lanes = task.view(0), task.output, isa.lanes()
    if not task.epilogue.steps and x.strides[-1] != 1 and (found := copied(x, y, isa)) is not None:
        return found
    inner = y.rank - 1
    epilogue = VectorEpilogue(task.epilogue, y.shape, inner, isa)
    made: dict[str, Shape] = {"x0": x.strides, **epilogue.strides, "y0": y.strides}
    types = {"x0": x.dtype, **epilogue.types, "y0": y.dtype}
    across = crossing(y, {name: made[name] for name in made if name != "y0"}, types, isa)
    if across is not None:
        return _by_tiles(x, y, epilogue, across, isa)
    loops = [NestLoop(f"n{a}", y.shape[a]) for a in range(inner)]
    parts = []
    whole, rest = divmod(y.shape[inner], lanes)
    for first, count, live in ((0, whole, lanes), (whole * lanes, 1, rest)):
        if count == 0 or live == 0:
            continue
        pointers = []
        for name, strides in made.items():
            s = strides[inner]
            each = f" + i * {lanes * s}" if s and count != 1 else ""
            pointers.append((name, each + (f" {first * s:+d}" if first * s else "")))
        lines, result = epilogue.write("t", lambda name: f"{name}p", live)
        value = load("x0p", x.strides[inner], live, isa, dtype=x.dtype)
        parts.append(
            AxisVectors(
                count,
                pointers,
                [f"const vf@ t = {value};", *lines, store("y0p", result, y.strides[inner], live, isa, y.dtype)],
            )
        )
    text = render(
        "vectors/elementwise.c.jinja",
        loops=loops,
        pointers=[(name, _moves(loops, strides)) for name, strides in made.items()],
        parts=parts,
        types=_pointer_types(types),
    )
    return _kernel(text, epilogue, isa)


def _by_tiles(x: View, y: View, epilogue: VectorEpilogue, across: Crossing, isa: Isa) -> GeneratedKernel:
    """The same where operands lie across the result."""
    inner, lanes = y.rank - 1, isa.lanes()
    made: dict[str, Shape] = {"x0": x.strides, **epilogue.strides, "y0": y.strides}
    types = {"x0": x.dtype, **epilogue.types, "y0": y.dtype}
    near = made | {name: in_tiles(made[name]) for name in across.names}
    epilogue.strides.update({name: near[name] for name in epilogue.strides})

    def at(name: str) -> str:
        return place(name, across.names, made[name], across.axis)

    parts = []
    for live in (lanes, y.shape[inner] % lanes):
        if live and (live != lanes or y.shape[inner] >= lanes):
            lines, result = epilogue.write("t", at, live)
            first = load(at("x0"), near["x0"][inner], live, isa, dtype=x.dtype)
            last = store(at("y0"), result, 1, live, isa, y.dtype)
            parts.append(AxisVectors(int(live == lanes), [], [f"const vf@ t = {first};", *lines, last]))
    blocks = {across.axis: "j", inner: "i"}
    loops = [NestLoop(blocks.get(a, f"n{a}"), n) for a, n in enumerate(y.shape)]
    text = render(
        "vectors/transposing_chain.c.jinja",
        loops=[loop for a, loop in enumerate(loops) if a not in blocks],
        pointers=[(name, _moves(loops, strides)) for name, strides in made.items()],
        tiles=[(name, made[name][inner]) for name in across.names],
        parts=parts,
        types=_pointer_types(types),
        outer=y.shape[across.axis],
        inner=y.shape[inner],
        rows=ROWS,
        columns=COLUMNS,
        lanes=lanes,
    )
    return _kernel(text, epilogue, isa, 4 * ROWS * COLUMNS * len(across.names))


def _pointer_types(types: Mapping[str, ir.DataType]) -> dict[str, str]:
    return {name: f"{'' if name == 'y0' else 'const '}{c_types.storage(dtype)}" for name, dtype in types.items()}


def _kernel(text: str, epilogue: VectorEpilogue, isa: Isa, scratch: int = 0) -> GeneratedKernel:
    body, helpers = finish(text, isa)
    constants: tuple[np.ndarray, ...] = tuple(epilogue.constants)
    return GeneratedKernel(body, constants, scratch, (*epilogue.helpers, *helpers))


register(Family("elementwise vectors", (OpKey("", "Identity"),), _accepts, _generate, wants_of_chain, rank=10))
