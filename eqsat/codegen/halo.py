"""C that fills the memory around a tensor (its halo) with the values that padding reads there.

The halo is cut into slabs, axis by axis from the outermost: before and after the elements of an axis, across all inner
axes. A slab is one piece of memory for each index of the outer axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.backends import region
from eqsat.codegen import c_types
from eqsat.codegen.buffers import Buffer
from eqsat.codegen.program import ProgramTensor
from eqsat.schema.size_questions import any_free

Location = Callable[[ProgramTensor], str]
"""A pointer to the elements of a tensor."""


def fill_halo(buffer: Buffer, pointer: str, location: Location) -> list[str]:
    """Statements that fill the halo of a buffer; ``pointer`` is a byte pointer to its beginning."""
    assert buffer.pad is not None
    strides, extent = buffer.strides, buffer.extent
    value = _value(buffer, location)
    lines: list[str] = []
    for depth, axis in enumerate(buffer.order):
        low, high = buffer.halo[axis]
        n = buffer.owner.shape[axis]
        outside = [a for a in buffer.order[:depth] if extent[a] != 1]
        begin = sum(buffer.halo[a][0] * strides[a] for a in buffer.order[:depth])
        slabs = [(begin, low), (begin + (low + n) * strides[axis], high)]
        for start, count in slabs:
            if count:
                lines += _fill(buffer, pointer, outside, start, count * strides[axis], value)
    return lines


def _value(buffer: Buffer, location: Location) -> str:
    """C of the value that the halo holds."""
    pad, dtype = buffer.pad, buffer.owner.dtype
    assert pad is not None
    if isinstance(pad, ProgramTensor):
        return f"*({location(pad)})"
    assert not isinstance(pad, region.Tensor), "a tensor that is not one of a program"
    return str(int(pad) & 255) if _is_bytewise(buffer) else c_types.literal(pad, dtype)


def _is_bytewise(buffer: Buffer) -> bool:
    """Whether all bytes of the halo are equal."""
    return c_types.size(buffer.owner.dtype) == 1 or (not isinstance(buffer.pad, ProgramTensor) and buffer.pad == 0)


def _fill(buffer: Buffer, pointer: str, outside: list[int], start: int, count: int, value: str) -> list[str]:
    c, size = c_types.storage(buffer.owner.dtype), c_types.size(buffer.owner.dtype)
    at = [str(start)]
    counter = "ptrdiff_t" if any_free(buffer.extent) else "size_t"
    lines: list[str] = []
    for a in outside:
        i = f"h{a}"
        lines.append("    " * len(lines) + f"for ({counter} {i} = 0; {i} < {buffer.owner.shape[a]}; {i}++) {{")
        at.append(f"{i} * {buffer.strides[a]}")
    indent = "    " * len(lines)
    place = " + ".join(at)
    if _is_bytewise(buffer):
        lines.append(f"{indent}memset({pointer} + ({place}) * {size}, {value}, {count * size});")
    else:
        lines.append(f"{indent}for ({counter} k = 0; k < {count}; k++) (({c} *){pointer})[{place} + k] = {value};")
    lines += ["    " * k + "}" for k in reversed(range(len(outside)))]
    return lines


def fill_halos(number: int, buffers: Sequence[Buffer], location: Location) -> list[str]:
    """Statements that fill the halos of the buffers that come to life with a node."""
    lines: list[str] = []
    for buffer in buffers:
        if buffer.first == number and buffer.has_halo:
            lines += fill_halo(buffer, f"(arena + {buffer.offset})", location)
    return lines
