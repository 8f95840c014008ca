"""Values of halos that the program computes, such as a zero point: when they are known.

A halo is filled where its buffer comes to life. By then its value must have been computed and be readable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from eqsat.codegen.buffers import Buffer
from eqsat.codegen.kernel import Pad, Want
from eqsat.codegen.program import ProgramNode, ProgramTensor


class HaloValues:
    """Decides which values are known at the points where buffers come to life.

    Args:
        inputs: Inputs of the program, which are known from its beginning.
    """

    def __init__(self, inputs: Collection[ProgramTensor]) -> None:
        self._inputs = inputs
        self._known_at: dict[ProgramTensor, int] = {}
        self._made: dict[Buffer, tuple[int, int | None]] = {}

    def make(self, buffer: Buffer, at: int, group: int | None) -> None:
        """A buffer comes to life at a step of the program, in a group of nodes or in none."""
        self._made[buffer] = at, group

    def compute(self, tensors: Iterable[ProgramTensor], at: int) -> None:
        """Tensors are computed at a step."""
        self._known_at.update(dict.fromkeys(tensors, at))

    def made_in(self, buffer: Buffer) -> int | None:
        """The group in which a buffer comes to life."""
        return self._made[buffer][1]

    def is_known(self, pad: Pad, buffer: Buffer, group: int | None) -> bool:
        """Whether the value can be read, from within a group, where the buffer comes to life."""
        if not isinstance(pad, ProgramTensor):
            return True
        at, made_in = self._made[buffer]
        ready = pad in self._inputs or self._known_at.get(pad, at) < at
        return ready and made_in in (None, group)


def resolved(want: Want, node: ProgramNode) -> Want:
    """The want of a node with the value of its halo, which may be a tensor's."""
    x = None if want.pad_input is None else node.inputs[want.pad_input]
    if x is None:
        return want
    return replace(want, pad=x if isinstance(x, ProgramTensor) else x.reshape(())[()])
