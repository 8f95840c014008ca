"""Copies of tensors of any element type in which another axis becomes the innermost one, or none does.

Bits are moved unchanged. A copy that transposes moves squares, whose side is a vector of 16 bytes.
"""

from __future__ import annotations

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import GeneratedKernel, View
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.nests import NestLoop
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import Shape

_LINE, _WAY = 64, 2048
"""Bytes of a cache line; distance of addresses that compete for the same sets of half the cache."""
_FEWEST = 64
"""Bytes of rows from which on they are copied as a whole."""


def copied(x: View, y: View, isa: Isa) -> GeneratedKernel | None:
    """A copy between views of the same shape; None where elements are moved one by one, or all of them lie together."""
    inner, size = y.rank - 1, c_types.size(y.dtype)
    if x.dtype != y.dtype or y.strides[inner] != 1 or x.strides[inner] == 0:
        return None
    if x.strides[inner] == 1:
        return _by_rows(x, y, size)
    outer = next((a for a in range(inner) if x.strides[a] == 1), None)
    if outer is None or size not in (1, 2, 4, 8):
        return None
    axes = [a for a in range(inner) if a != outer]
    loops = [NestLoop(f"n{a}", y.shape[a]) for a in axes]
    body, helpers = finish(
        render(
            "shared/transposing_copy.c.jinja",
            loops=loops,
            source=_moves(loops, tuple(x.strides[a] for a in axes)),
            target=_moves(loops, tuple(y.strides[a] for a in axes)),
            inner=y.shape[inner],
            outer=y.shape[outer],
            free=is_free(y.shape[inner]) or is_free(y.shape[outer]),
            from_i=x.strides[inner],
            to_j=y.strides[outer],
            type=c_types.storage(y.dtype),
            size=size,
            side=16 // size,
            lanes=isa.lanes(),
            block=_block(x.strides[inner], y.strides[outer], size),
        ),
        isa,
    )
    return GeneratedKernel(body, helpers=helpers)


def _by_rows(x: View, y: View, size: int) -> GeneratedKernel | None:
    inner = y.rank - 1
    if inner == 0 or is_free(y.shape[inner]) or y.shape[inner] * size < _FEWEST:
        return None
    loops = [NestLoop(f"n{a}", n) for a, n in enumerate(y.shape[:inner])]
    head = "".join(f"for (ptrdiff_t {p.name} = 0; {p.name} < {p.extent}; {p.name}++) {{\n" for p in loops)
    moves = [_moves(loops, v.strides[:inner]) for v in (y, x)]
    body = f"memcpy(y0{moves[0]}, x0{moves[1]}, {y.shape[inner] * size});\n"
    return GeneratedKernel(f"/* parallel */\n{head}{body}{'}' * inner}\n", specialised=False)


def _moves(loops: list[NestLoop], strides: Shape) -> str:
    return "".join(f" + {loop.name} * {s}" for loop, s in zip(loops, strides, strict=True) if s)


def _block(from_i: int, to_j: int, size: int) -> tuple[int, int]:
    """Rows and columns of a block of a copy that transposes: few lines of that side on which they are so far apart that
    they displace each other.
    """
    line, way = max(_LINE // size, 16), _WAY // size
    if is_free(from_i) or is_free(to_j) or from_i % way == to_j % way == 0:
        return line, line
    return (line, 4 * line) if to_j % way == 0 else (4 * line, line)
