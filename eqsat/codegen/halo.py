"""C that fills the memory around a tensor (its halo) with the values that padding reads there.

The halo is cut into slabs, axis by axis from the outermost: before and after the elements of an axis, across all inner
axes. A slab is one piece of memory for each index of the outer axes.
"""

from __future__ import annotations

from eqsat.codegen import dtypes
from eqsat.codegen.buffers import Buffer
from eqsat.schema.size_questions import any_free


def fill_halo(buffer: Buffer, pointer: str) -> list[str]:
    """Statements that fill the halo of a buffer; ``pointer`` is a byte pointer to its beginning."""
    assert buffer.pad is not None
    dtype = buffer.owner.dtype
    c, size = dtypes.storage(dtype), dtypes.size(dtype)
    strides, extent = buffer.strides, buffer.extent
    lines: list[str] = []
    for depth, axis in enumerate(buffer.order):
        low, high = buffer.halo[axis]
        n = buffer.owner.shape[axis]
        outside = [a for a in buffer.order[:depth] if extent[a] != 1]
        begin = sum(buffer.halo[a][0] * strides[a] for a in buffer.order[:depth])
        slabs = [(begin, low), (begin + (low + n) * strides[axis], high)]
        for start, count in slabs:
            if count:
                lines += _fill(buffer, pointer, outside, start, count * strides[axis], c, size)
    return lines


def _fill(buffer: Buffer, pointer: str, outside: list[int], start: int, count: int, c: str, size: int) -> list[str]:
    at = [str(start)]
    counter = "ptrdiff_t" if any_free(buffer.extent) else "size_t"
    lines: list[str] = []
    for a in outside:
        i = f"h{a}"
        lines.append("    " * len(lines) + f"for ({counter} {i} = 0; {i} < {buffer.owner.shape[a]}; {i}++) {{")
        at.append(f"{i} * {buffer.strides[a]}")
    indent = "    " * len(lines)
    place = " + ".join(at)
    pad = buffer.pad
    if pad == 0 or size == 1:
        value = int(pad or 0) & 255
        lines.append(f"{indent}memset({pointer} + ({place}) * {size}, {value}, {count * size});")
    else:
        value = dtypes.literal(pad, buffer.owner.dtype)
        lines.append(f"{indent}for ({counter} k = 0; k < {count}; k++) (({c} *){pointer})[{place} + k] = {value};")
    lines += ["    " * k + "}" for k in reversed(range(len(outside)))]
    return lines


def fill_halos(number: int, buffers: list[Buffer]) -> list[str]:
    """Statements that fill the halos of the buffers that come to life with a node."""
    lines: list[str] = []
    for buffer in buffers:
        if buffer.first == number and buffer.has_halo:
            lines += fill_halo(buffer, f"(arena + {buffer.offset})")
    return lines
