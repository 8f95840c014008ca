"""Loop nests around tiles of pixels, planned in the same way for kernels of floats and of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.codegen.kernels.shared.tiling import Tile, split, texts


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop and how far each tensor moves in it, in elements."""

    extent: int
    strides: Mapping[str, int]

    def stride(self, tensor: str) -> int:
        return self.strides.get(tensor, 0)


@dataclass(frozen=True, slots=True)
class NestLoop:
    """A loop in C; ``strides`` in elements, by pointer, or one ``stride`` where there is one pointer."""

    name: str
    extent: int
    stride: int = 0
    strides: Mapping[str, int] = field(default_factory=dict)


def loops_over(letter: str, axes: Iterable[Axis]) -> list[NestLoop]:
    """A loop for each axis; their variables are numbered."""
    return [NestLoop(f"{letter}{i}", axis.extent, strides=axis.strides) for i, axis in enumerate(axes)]


def moves_of(name: str, loops: Iterable[NestLoop]) -> str:
    """The offset that the variables of loops add to a pointer."""
    return "".join(f" + {loop.name} * {loop.strides[name]}" for loop in loops if loop.strides.get(name))


def collapse(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The same loops without those of one iteration; loops over adjacent memory in every tensor are joined."""
    done: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if done:
            last, names = done[-1], sorted(set(done[-1].strides) | set(axis.strides))
            if all(last.stride(n) == axis.extent * axis.stride(n) for n in names):
                done[-1] = replace(axis, extent=last.extent * axis.extent)
                continue
        done.append(axis)
    return tuple(done)


def collapse_taps(taps: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same reduction in as few loops as possible; at least one."""
    joined = collapse([Axis(n, {"x": s}) for n, s in taps])
    return tuple((a.extent, a.stride("x")) for a in joined) or ((1, 1),)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of one size.

    Attributes:
        rows, columns: The loops over them, of one iteration where there is one tile.
        start: From each pointer to the first tile.
        places: Row and column of the pixels of a tile.
    """

    rows: NestLoop
    columns: NestLoop
    start: dict[str, int]
    places: list[tuple[int, int]]


class Pixels:
    """The pixels of an output that share their weights.

    Args:
        axes: Outermost first; tiles lie in the last two, which may be missing.

    Attributes:
        others: The axes around tiles.
        rows, columns: Those of tiles.
    """

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.others = axes[:-2]
        self.rows = axes[-2] if len(axes) > 1 else Axis(1, {})
        self.columns = axes[-1] if axes else Axis(1, {})

    def offset(self, name: str, place: tuple[int, int]) -> int:
        """From a pointer at a tile to one of its pixels."""
        return place[0] * self.rows.stride(name) + place[1] * self.columns.stride(name)

    def tiles(self, tile: Tile, names: Sequence[str]) -> Iterator[Tiles]:
        """The tiles that cover all pixels, smaller ones at the ends; ``names`` are the pointers that move."""
        if tile.across:
            for first, size, times, tall in texts(self.rows.extent, self.columns.extent, tile.columns):
                yield Tiles(
                    NestLoop("r", times, strides={n: tall * self.rows.stride(n) for n in names}),
                    NestLoop("q", 1),
                    dict.fromkeys(names, 0),
                    [divmod(pixel, self.columns.extent) for pixel in range(first, first + size)],
                )
            return
        for row, tall, times in split(self.rows.extent, tile.rows):
            for column, wide, turns in split(self.columns.extent, tile.columns):
                yield Tiles(
                    NestLoop("r", times, strides={n: tall * self.rows.stride(n) for n in names}),
                    NestLoop("q", turns, strides={n: wide * self.columns.stride(n) for n in names}),
                    {n: row * self.rows.stride(n) + column * self.columns.stride(n) for n in names},
                    [(i, j) for i in range(tall) for j in range(wide)],
                )
