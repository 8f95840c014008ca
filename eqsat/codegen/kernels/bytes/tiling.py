"""Chooses the tile of a product of bytes that stays in registers; as ``shared/tiling.py`` does for floats.

The bound is estimated for 4 bytes of the sum: ``vpdpbusd`` takes one operation for a vector of products, the
instructions that replace it four, and more to spread the operands.
"""

from __future__ import annotations

from functools import lru_cache

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernels.bytes.weights import PANEL
from eqsat.codegen.kernels.shared.tiling import Tile, cheapest, pieces

_WAYS, _SETS, _LINE = 6, 64, 64
"""Pixels of a tile that may fall into one set of an 8-way L1 cache."""


def _fits(pixels: int, vectors: int, isa: Isa, spare: int) -> bool:
    """Whether accumulators, weights and a word of the input have registers."""
    if not isa.vectors:
        return pixels * vectors <= 8
    if isa.dot4 == "vpdpbusd":
        return pixels * vectors <= 28 and pixels * vectors + vectors + 1 + spare <= isa.registers
    return pixels * vectors + 2 * vectors + 3 + spare <= isa.registers


def _cycles(pixels: int, vectors: int, isa: Isa, spare: int) -> float:
    """Estimated cycles for 4 bytes of the sum."""
    products = pixels * (vectors + (spare > 1))
    if isa.dot4 == "vpdpbusd":
        # 64-byte operations take both halves of the machine on Zen 4, one of two ports elsewhere.
        width = 1.0 if isa.vector_bytes >= 64 else 2.0
        return max(products / width, (pixels + vectors) / width, 4.0) + 0.35
    # Two products and two sums, two operations to spread each word, three for each vector of weights.
    return (4 * products + 3 * pixels + 3 * vectors) / 3 + 0.35


def _collides(rows: int, columns: int, row_bytes: int, column_bytes: int) -> bool:
    sets = [
        (i * row_bytes + j * column_bytes) // _LINE % _SETS
        for i, j in {(i, j) for i in range(rows) for j in range(columns)}
        if (i * row_bytes + j * column_bytes) % (_SETS * _LINE) == 0
    ]
    return len(sets) > _WAYS


@lru_cache(maxsize=4096)
def choose(rows: int, columns: int, row_bytes: int, column_bytes: int, channels: int, isa: Isa, spare: int) -> Tile:
    """The tile with the least estimated time.

    Args:
        rows: Outer axis of the output's pixels.
        columns: Inner axis.
        row_bytes: Distance from an input byte to the one in the next row.
        column_bytes: Distance from an input byte to the one in the next column.
        channels: Of the output.
        isa: Instruction set.
        spare: Registers that are used otherwise.
    """
    vectors = -(-channels // isa.lanes())
    # Vectors of a tile fill panels of weights, or share one evenly.
    widths = [
        v
        for v in (1, 2, 3, 4, 5, 6, 8)
        if v <= vectors
        and (v <= 4 or rows * columns <= 4)
        and (PANEL % (v * isa.lanes()) == 0 or v * isa.lanes() % PANEL == 0)
    ]
    found = cheapest(
        rows,
        columns,
        widths,
        fits=lambda pixels, v: _fits(pixels, v, isa, spare + (pixels if spare > 1 else 0)),
        collides=lambda tall, wide: _collides(tall, wide, row_bytes, column_bytes),
        time=lambda tile: sum(
            count * _cycles(h * w, v, isa, spare) for h, w, v, count in pieces(rows, columns, vectors, tile)
        ),
    )
    return found if found is not None else Tile(1, 1, 1)
