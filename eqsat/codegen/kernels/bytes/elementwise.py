"""Chains of elementwise operators on bytes (and to and from floats), and copies of bytes, in vectors of 32 bits.

Vectors lie along the axis on which most operands are contiguous. Where the layout changes in between, as for an image
that is quantized into channels last, one side is gathered or scattered element by element.
"""

from __future__ import annotations

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.c_values import Vector
from eqsat.codegen.kernels.bytes.conv import kernel, pointer_types
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.epilogue_steps import is_supported
from eqsat.codegen.kernels.loops.elementwise import flattened, wants_of_chain
from eqsat.codegen.kernels.shared.copies import copied
from eqsat.codegen.kernels.shared.families import register
from eqsat.schema.dtypes import BYTES
from eqsat.schema.types import OpKey, Shape

IDENTITY = OpKey("", "Identity")


def accepts(task: Task) -> bool:
    """A chain in which something has 8 bits."""
    x = task.inputs[0] if len(task.inputs) == 1 else None
    if not isinstance(x, View) or task.outputs[0] is None or task.output.elements < 2:
        return False
    return any(t in BYTES for t in task.epilogue.dtypes()) and is_supported(task.epilogue)


def _vector_axis(y: View, others: list[Shape]) -> int:
    """The axis on which fewest operands are scattered; of equals the longest, then the innermost."""

    def scattered(axis: int) -> int:
        return sum(s[axis] not in (0, 1) for s in (y.strides, *others))

    return min(range(y.rank), key=lambda axis: (scattered(axis), -y.shape[axis], -axis))


def generate(task: Task, isa: Isa) -> GeneratedKernel:
    """Loops over the other axes, and vectors along one."""
    task = flattened(task)
    x, y = task.view(0), task.output
    if not task.epilogue.steps and (moved := copied(x, y, isa)) is not None:
        return moved
    others = [x.strides, *(o.strides for o in task.epilogue.operands if isinstance(o, View))]
    axis = _vector_axis(y, others)
    epilogue = ByteEpilogue(task.epilogue, y.shape, axis, isa, 0)
    epilogue.bind_anchor("x0", x.strides)
    epilogue.result_stride = y.strides[axis]
    types = pointer_types(task, epilogue.constants)
    strides = {**epilogue.strides, "y0": y.strides}
    loops = [(f"n{a}", y.shape[a], a) for a in range(y.rank) if a != axis]
    lanes, extent = isa.lanes(), y.shape[axis]
    copy = not task.epilogue.steps and x.strides[axis] == y.strides[axis] == 1
    parts = []
    for first, count, vectors, live in _parts(extent, lanes):
        pointers = []
        for name, s in strides.items():
            step = s[axis]
            moves = f" + i * {vectors * lanes * step}" if step and count > 1 else ""
            pointers.append((_pointer(types, name), name, moves + (f" + {first * step}" if first * step else "")))
        made = [_vector(epilogue, {n: k * lanes * s[axis] for n, s in strides.items()}, live) for k in range(vectors)]
        parts.append((count, pointers, [] if copy else epilogue.write(made)))
    text = render(
        "bytes/elementwise.c.jinja",
        loops=loops,
        pointers=[
            (_pointer(types, name), name, "".join(f" + {n} * {s[a]}" for n, _, a in loops if s[a]))
            for name, s in strides.items()
        ],
        parts=[] if copy else parts,
        copy=extent * (1 if y.dtype in BYTES else 4) if copy else 0,
    )
    text = "\n".join([*epilogue.declarations(), text])
    return kernel(text, [], epilogue, isa)


def _parts(extent: int, lanes: int) -> list[tuple[int, int, int, int]]:
    """(first element, count, vectors, lanes in use): vectors by four, one by one, and what remains."""
    whole, rest = divmod(extent, lanes)
    found = [(0, whole // 4, 4, lanes), (whole // 4 * 4 * lanes, whole % 4, 1, lanes), (whole * lanes, 1, 1, rest)]
    return [part for part in found if part[1] and part[3]]


def _vector(epilogue: ByteEpilogue, offsets: dict[str, int], live: int) -> Vector:
    def address(name: str) -> str:
        return f"{name}p + {offsets[name]}" if offsets[name] else f"{name}p"

    return Vector(epilogue.anchor, address, live, offsets["y0"])


def _pointer(types: dict[str, str], name: str) -> str:
    return f"{'' if name == 'y0' else 'const '}{types[name]} *"


FAMILY = register(Family("elementwise bytes", (IDENTITY,), accepts, generate, wants_of_chain, rank=20))
