"""Chooses the tile of an implicit GEMM that stays in registers: output pixels times vectors of output channels.

A step of the reduction on a tile of ``m`` pixels and ``v`` vectors takes ``m * v`` fused multiply-adds and ``m + v``
loads (one broadcast element per pixel). The larger of both bounds its time, or both together: two threads of a core
share the six operations that it issues a cycle. With few accumulators the latency of a sum bounds it (4 cycles on all
x86 of the last ten years, and some slack). After the reduction a tile is stored; short pieces of
a pixel's channels are expensive where the result is larger than the second cache and the reduction is short. Pixels
whose distance is a multiple of 4 KiB fall into the same set of an 8-way L1 cache: a tile with more than 6 of them loses
a quarter of its speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from eqsat.codegen.isa import Isa
from eqsat.schema.size_questions import is_free

PANEL = 16
"""Output channels that lie side by side in packed weights, for all instruction sets: a line of the cache."""

_WIDEST = 4
"""Vectors of a tile at most: streams of weights."""
_TALLEST = 4
"""Rows of a tile at most."""
_MOST_TEXTS = 16
"""Kinds of tiles that go on in the next row, at most."""
_ACROSS = 1.04
"""Cost factor of these."""
_WAYS = 6
_LINE = 64
_SETS = 64
_LATENCY = 4.8
_OVERHEAD = 0.35
_ISSUED = 3.0
"""Operations a cycle that one of two threads of a core issues."""
SECOND = 1 << 20
"""Bytes of the second cache."""
_SPILL = 1.03
"""Cost factor if the broadcast elements have no register of their own."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of ``rows`` by ``columns`` pixels and ``vectors`` vectors of output channels.

    With ``across`` its pixels, in one row by themselves, go on in the next row of the output.
    """

    rows: int
    columns: int
    vectors: int
    across: bool = False


def cycles(pixels: int, vectors: int, isa: Isa) -> float:
    """Estimated cycles of one step of the reduction."""
    # 64-byte operations take both halves of the machine on Zen 4, one of two ports elsewhere.
    width = 1.0 if isa.vector_bytes >= 64 else 2.0
    products, loads = pixels * vectors, pixels + vectors
    bound = max(products / width, loads / width, (products + loads + 1) / _ISSUED, _LATENCY)
    return bound * (_SPILL if pixels * vectors + vectors + 1 > isa.registers else 1.0) + _OVERHEAD


def stores(pixels: int, vectors: int, far: bool, isa: Isa) -> float:
    """Estimated cycles in which a tile is stored, ``far`` from the second cache or not."""
    return pixels * (vectors * isa.vector_bytes / 16 + (8.0 if far else 0.0))


def is_short_of_registers(isa: Isa) -> bool:
    """Whether sums take most of the vector registers of an x86 machine."""
    return isa.x86 and isa.registers < 32


def fits(pixels: int, vectors: int, isa: Isa) -> bool:
    """Whether accumulators, weights and a broadcast element have registers."""
    if not isa.vectors:
        return pixels * vectors <= 8
    # With 32 registers, the broadcast may come as a memory operand.
    if isa.registers >= 32:
        return pixels * vectors + vectors <= 32 and pixels * vectors <= 28
    return pixels * vectors + vectors + 1 <= isa.registers


def _collides(rows: int, columns: int, row_bytes: int, column_bytes: int) -> bool:
    lines = {(i * row_bytes + j * column_bytes) // _LINE for i in range(rows) for j in range(columns)}
    sets = [line % _SETS for line in lines]
    return max(sets.count(s) for s in set(sets)) > _WAYS


@lru_cache(maxsize=4096)
def choose(
    rows: int,
    columns: int,
    row_bytes: int,
    column_bytes: int,
    vectors: int,
    steps: int,
    isa: Isa,
    widths: tuple[int, ...] | None = None,
    across: bool = False,
) -> Tile:
    """The tile with the least estimated time.

    Args:
        rows: Outer axis of the output's pixels.
        columns: Inner axis.
        row_bytes: Distance from an input element to the one in the next row.
        column_bytes: Distance from an input element to the one in the next column.
        vectors: Vectors of output channels in all.
        steps: Of the reduction.
        isa: Instruction set.
        widths: Vectors that a tile may have, if not all will do.
        across: Whether tiles may go on in the next row; each of these has a text of its own.
    """
    # Narrow vectors share the lines of packed weights evenly.
    every = [v for v in range(min(_WIDEST, vectors), 0, -1) if isa.lanes() >= PANEL or not v & (v - 1)]
    widths = tuple(every) if widths is None else widths
    found = cheapest(
        rows,
        columns,
        widths,
        fits=lambda pixels, v: fits(pixels, v, isa),
        collides=lambda tall, wide: _collides(tall, wide, row_bytes, column_bytes),
        time=lambda tile: estimate(rows, columns, vectors, tile, steps, isa),
        across=across,
    )
    assert found is not None
    return found


def cheapest(
    rows: int,
    columns: int,
    widths: Iterable[int],
    *,
    fits: Callable[[int, int], bool],
    collides: Callable[[int, int], bool],
    time: Callable[[Tile], float],
    across: bool = False,
) -> Tile | None:
    """The possible tile with the least time, the first of equal ones; None if none is possible.

    Args:
        rows: Outer axis of the output's pixels.
        columns: Inner axis.
        widths: Vectors of output channels that a tile may have.
        fits: Whether a number of pixels and of vectors fit into registers.
        collides: Whether the pixels of a number of rows and columns displace each other in the cache.
        time: Time of all pixels and channels in such tiles, in any unit.
        across: Whether tiles may go on in the next row.
    """
    best: tuple[float, Tile] | None = None
    for v in widths:
        for tall in range(1, min(_TALLEST, rows) + 1):
            for wide in range(1, columns + 1):
                if not fits(tall * wide, v):
                    break
                if (tall > 1 and (columns % wide or rows % tall)) or collides(tall, wide):
                    continue
                tile = Tile(tall, wide, v)
                cost = time(tile)
                if best is None or cost < best[0] * (1 - 1e-9):
                    best = (cost, tile)
        for wide in range(2, rows * columns) if across else ():
            if not fits(wide, v):
                break
            if columns % wide and len(texts(rows, columns, wide)) <= _MOST_TEXTS and not collides(1, wide):
                tile = Tile(1, wide, v, across=True)
                cost = time(tile) * _ACROSS
                if best is None or cost < best[0] * (1 - 1e-9):
                    best = (cost, tile)
    return None if best is None else best[1]


def texts(rows: int, columns: int, size: int) -> list[tuple[int, int, int, int]]:
    """(first pixel, pixels, count, rows from one to the next) of tiles of adjacent pixels that go on in the next row:
    as many kinds as it takes until they begin at the same column again, and those of the rows that remain.
    """
    period = size // math.gcd(columns, size)
    turns = rows // period
    first = turns * period * columns
    found = [(k, size, turns, period) for k in range(0, period * columns, size)] if turns else []
    return found + [(k, min(size, rows * columns - k), 1, 0) for k in range(first, rows * columns, size)]


def estimate(rows: int, columns: int, vectors: int, tile: Tile, steps: int, isa: Isa) -> float:
    """Cycles of one step of the reduction for all pixels and channels, stores included."""
    far = 4 * rows * columns * vectors * isa.lanes() > SECOND
    return sum(
        count * (cycles(h * w, v, isa) + stores(h * w, v, far, isa) / max(steps, 1))
        for h, w, v, count in pieces(rows, columns, vectors, tile)
    )


def split(extent: int, size: int) -> list[tuple[int, int, int]]:
    """(start, size, count) of the whole parts of an axis and of its rest; for a free size the rest is cut into parts of
    half the size, then of a quarter, and so on.
    """
    if is_free(extent):
        found: list[tuple[int, int, int]] = []
        start, left = 0, extent
        while left != 0:
            found.append((start, size, left // size))
            start, left = start + left // size * size, left % size
            size = max(size // 2, 1)
        return [part for part in found if part[2] != 0]
    whole = [(0, size, extent // size)] if extent >= size else []
    rest = extent % size
    return whole + ([(extent - rest, rest, 1)] if rest else [])


def pieces(rows: int, columns: int, vectors: int, tile: Tile) -> list[tuple[int, int, int, int]]:
    """(rows, columns, vectors, count) of the kinds of tiles that cover everything, smaller ones at the ends."""
    if tile.across:
        rows, columns = 1, rows * columns
    return [
        (h, w, v, a * b * c)
        for _, h, a in split(rows, tile.rows)
        for _, w, b in split(columns, tile.columns)
        for _, v, c in split(vectors, tile.vectors)
    ]
