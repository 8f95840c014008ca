"""The place of a tensor: a piece of a buffer, addressed through the buffer's axes until its strides are final.

A buffer belongs to one tensor, its owner, and has the axes of that tensor, stored in some order, perhaps with a halo.
Other tensors are pieces of it: transposed, sliced, without axes of one element. A halo may still grow while places are
assigned, because a place only refers to indices of the buffer. A reshaped piece needs strides instead; the buffer then
becomes *rigid* and refuses any halo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from eqsat.backends import region
from eqsat.codegen import c_types
from eqsat.codegen.kernel import Halo, Pad, View
from eqsat.codegen.program import ProgramTensor
from eqsat.schema.dimension import common_divisor
from eqsat.schema.size import Undecided, bounds, closer_bounds
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import any_free, greatest, is_free, magnitude
from eqsat.schema.types import Shape

ALIGNMENT = 64
"""Alignment of buffers in the arena, in bytes."""
SLACK = 64
"""Bytes after the arena and after the weights that may be read."""

BufferKind = Literal["arena", "input", "output"]


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of a tensor and of its pieces.

    Attributes:
        owner: The tensor whose axes it has.
        order: Axes from the outermost to the innermost.
        kind: Whose memory it is: the arena's or the caller's.
        index: Number of the input or output.
        rigid: Whether its strides are final: no halo.
        halo: By axis, the elements before the first and after the last one.
        pad: What is in the halo; None without one.
        tensors: All tensors in it.
        first: Node that writes first.
        last: Node that reads last.
        offset: Bytes from the beginning of the arena.
    """

    owner: ProgramTensor
    order: tuple[int, ...]
    kind: BufferKind = "arena"
    index: int = 0
    rigid: bool = False
    halo: list[tuple[int, int]] = field(default_factory=list)
    pad: Pad | None = None
    tensors: list[ProgramTensor] = field(default_factory=list)
    first: int = 0
    last: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        self.halo = [(0, 0)] * len(self.owner.shape)

    @property
    def extent(self) -> Shape:
        """Dimensions with the halo."""
        return tuple(lo + n + hi for n, (lo, hi) in zip(self.owner.shape, self.halo, strict=True))

    @property
    def strides(self) -> Shape:
        """In elements."""
        strides = [0] * len(self.order)
        step = 1
        for axis in reversed(self.order):
            strides[axis] = step
            step *= self.extent[axis] or 1
        return tuple(strides)

    @property
    def has_halo(self) -> bool:
        return any(lo or hi for lo, hi in self.halo)

    @property
    def bytes(self) -> int:
        """Size without slack; at the greatest sizes of a program that receives sizes."""
        return greatest(math.prod(self.extent)) * c_types.size(self.owner.dtype)

    @property
    def contents(self) -> str:
        """Names of the tensors in it: its owner, the tensors computed in place, and its pieces."""
        names = list(dict.fromkeys(t.name for t in (self.owner, *self.tensors)))
        return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

    def origin(self) -> int:
        """Elements before element [0, ..., 0] of the owner."""
        return sum(lo * s for (lo, _), s in zip(self.halo, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class BufferPiece:
    """A piece of a buffer.

    Attributes:
        buffer: Which.
        base: Index in the buffer of element [0, ..., 0].
        axes: For each axis of the piece the buffer's axis and the step along it; (-1, 0) repeats the only element.
        strides: Of a rigid buffer's reshaped piece; ``base`` and ``axes`` do not matter then.
        offset: Of its first element, in elements.
    """

    buffer: Buffer
    base: Shape = ()
    axes: tuple[tuple[int, int], ...] = ()
    strides: Shape | None = None
    offset: int = 0

    @classmethod
    def whole(cls, buffer: Buffer) -> BufferPiece:
        """The owner's own place."""
        rank = len(buffer.owner.shape)
        return cls(buffer, (0,) * rank, tuple((axis, 1) for axis in range(rank)))

    def view(self, tensor: ProgramTensor) -> View:
        """The view of a tensor here, as the buffer is now."""
        buffer, size = self.buffer, c_types.size(tensor.dtype)
        arena = buffer.kind == "arena"
        halo: Halo = ()
        if arena and buffer.has_halo and self.strides is None:
            halo = tuple(self._halo(axis, n) for axis, n in enumerate(tensor.shape))
            if not any(lo or hi for lo, hi in halo):
                halo = ()
        return View(
            tensor.dtype,
            tensor.shape,
            self.current_strides(),
            halo,
            0 if not halo or buffer.pad is None or isinstance(buffer.pad, region.Tensor) else buffer.pad,
            common_divisor(self.start() * size, ALIGNMENT) if arena else size,
            SLACK if arena else 0,
        )

    def current_strides(self) -> Shape:
        if self.strides is not None:
            return self.strides
        outer = self.buffer.strides
        return tuple(step * outer[axis] if axis >= 0 else 0 for axis, step in self.axes)

    def start(self) -> int:
        """Elements from the buffer's beginning to element [0, ..., 0]."""
        if self.strides is not None:
            return self.offset
        return self.buffer.origin() + sum(i * s for i, s in zip(self.base, self.buffer.strides, strict=True))

    def _covers(self, axis: int, n: int) -> bool:
        outer, step = self.axes[axis]
        return outer >= 0 and step == 1 and self.base[outer] == 0 and n == self.buffer.owner.shape[outer]

    def _halo(self, axis: int, n: int) -> tuple[int, int]:
        return self.buffer.halo[self.axes[axis][0]] if self._covers(axis, n) else (0, 0)

    def grow_halo(self, shape: Shape, halo: Halo, pad: Pad) -> bool:
        """Extend the halo around the piece; False if the buffer cannot."""
        buffer = self.buffer
        if buffer.rigid or buffer.kind != "arena" or self.strides is not None:
            return False
        if buffer.pad is not None and not _same(buffer.pad, pad):
            return False
        wanted = [(axis, n, room) for axis, (n, room) in enumerate(zip(shape, halo, strict=True)) if any(room)]
        if not all(self._covers(axis, n) for axis, n, _ in wanted):
            return False
        for axis, _, (lo, hi) in wanted:
            outer = self.axes[axis][0]
            before, after = buffer.halo[outer]
            # A halo larger than what is read does no harm, so a halo of free sizes becomes a number too.
            buffer.halo[outer] = (max(before, closer_bounds(lo)[1]), max(after, closer_bounds(hi)[1]))
            buffer.pad = pad
        return True

    # ---- pieces of pieces ------------------------------------------------------------------------------

    def permuted(self, perm: tuple[int, ...]) -> BufferPiece:
        """Axes in another order."""
        if self.strides is not None:
            return BufferPiece(self.buffer, strides=tuple(self.strides[p] for p in perm), offset=self.offset)
        return BufferPiece(self.buffer, self.base, tuple(self.axes[p] for p in perm))

    def sliced(self, axis: int, start: int, step: int = 1) -> BufferPiece:
        """The piece from an index of an axis on."""
        if self.strides is not None:
            strides = tuple(s * step if a == axis else s for a, s in enumerate(self.strides))
            return BufferPiece(self.buffer, strides=strides, offset=self.offset + start * self.strides[axis])
        outer, old = self.axes[axis]
        base, axes = list(self.base), list(self.axes)
        if outer >= 0:
            base[outer] += start * old
            axes[axis] = (outer, old * step)
        return BufferPiece(self.buffer, tuple(base), tuple(axes))

    def expanded(self, shape: Shape, to: Shape) -> BufferPiece:
        """Repeated to a shape that it broadcasts to."""
        lead = len(to) - len(shape)
        factors = [0 if axis < lead else _repeats(shape[axis - lead], n) for axis, n in enumerate(to)]
        if self.strides is not None:
            strides = tuple(0 if f == 0 else f * self.strides[axis - lead] for axis, f in enumerate(factors))
            return BufferPiece(self.buffer, strides=strides, offset=self.offset)
        own = self.axes
        axes = [(-1, 0) if f == 0 else (own[a - lead][0], f * own[a - lead][1]) for a, f in enumerate(factors)]
        return BufferPiece(self.buffer, self.base, tuple(axes))

    def without_ones(self, shape: Shape, to: Shape) -> BufferPiece | None:
        """The piece with axes of one element added or dropped; None for any other reshape."""
        kept = [axis for axis, n in enumerate(shape) if n != 1]
        if [shape[a] for a in kept] != [n for n in to if n != 1]:
            return None
        if self.strides is not None:
            rest = iter([self.strides[a] for a in kept])
            strides = tuple(0 if n == 1 else next(rest) for n in to)
            return BufferPiece(self.buffer, strides=strides, offset=self.offset)
        pieces = iter([self.axes[a] for a in kept])
        return BufferPiece(self.buffer, self.base, tuple((-1, 0) if n == 1 else next(pieces) for n in to))

    def split(self, shape: Shape, to: Shape) -> BufferPiece | None:
        """The piece with some axes cut into several; None if axes would have to be joined."""
        if self.strides is not None or 0 in shape:
            return None
        axes: list[tuple[int, int]] = []
        pending = [(axis, n) for axis, n in zip(self.axes, shape, strict=True) if n != 1]
        at = 0
        rest = pending[0][1] if pending else 1
        for n in to:
            if n == 1:
                axes.append((-1, 0))
                continue
            if rest == 1:
                at += 1
                if at == len(pending):
                    return None
                rest = pending[at][1]
            if not _is_factor(n, rest):
                return None
            rest //= n
            (outer, step), _ = pending[at]
            axes.append((outer, step * rest))
        return BufferPiece(self.buffer, self.base, tuple(axes))

    def reshaped(self, shape: Shape, to: Shape) -> BufferPiece | None:
        """The piece with other dimensions over the same elements in the same order; None if no strides express that."""
        strides = reshaped_strides(shape, self.current_strides(), to)
        return None if strides is None else BufferPiece(self.buffer, strides=strides, offset=self.start())


def _repeats(n: int, to: int) -> int:
    """Factor of the stride of an axis that gets another size: 0 if it has one element; for a free size a
    conditional.
    """
    if n == 1:
        return 0 if to != 1 else 1
    if n == to or not is_free(n) or bounds(n)[0] > 1:
        return 1
    return smallest(largest(n - 1, 0), 1)


def _is_factor(n: int, size: int) -> bool:
    """Whether one size divides another for all values of free sizes."""
    try:
        return size % n == 0
    except Undecided:
        return False


def _same(a: Pad, b: Pad) -> bool:
    return a == b or (a != a and b != b)


def reshaped_strides(shape: Shape, strides: Shape, to: Shape) -> Shape | None:
    """Strides after a row-major reshape that moves no element; None if no strides express it.

    Dimensions are grouped so that both shapes have the same number of elements in each group; inside a group the old
    axes must follow each other without gaps.
    """
    if 0 in shape:
        return (0,) * len(to)
    if math.prod(shape) != math.prod(to):
        return None  # Sizes that are equal, but not known to be.
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result = [0] * len(to)
    i, axis = 0, 0
    while axis < len(to):
        if to[axis] == 1:
            axis += 1
            continue
        have, first = old[i][0], i
        want, begin = to[axis], axis
        while have != want:
            if _is_factor(have, want) or (not any_free((have, want)) and have < want):
                i += 1
                have *= old[i][0]
            elif any_free((have, want)) and not _is_factor(want, have):
                return None
            else:
                axis += 1
                want *= to[axis]
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(first, i)):
            return None
        step = old[i][1]
        for k in range(axis, begin - 1, -1):
            if to[k] != 1:
                result[k] = step
                step *= to[k]
        i += 1
        axis += 1
    return tuple(result)


def memory_order(view: View) -> tuple[int, ...]:
    """Axes from the outermost to the innermost in memory."""
    return tuple(sorted(range(view.rank), key=lambda a: (-magnitude(view.strides[a]), a)))
