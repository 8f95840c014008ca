"""Contradictions that ONNX's shape inference does not detect: a runtime would find them only during execution.

Each check follows the operator's specification and only uses known facts; a symbol or an unknown dimension contradicts
nothing. This file has the parts that checks share; :mod:`eqsat.ops.checks.attributes` has the checks of attributes,
:mod:`eqsat.ops.checks.movement` those of operators that move and combine elements, :mod:`eqsat.ops.checks.layers` those
of layers. The declaration of an operator lists its checks, which are made in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, Dim, OpKey, TensorType


class Mismatch(Exception):
    """A contradiction, as a sentence without the final full stop."""


@dataclass(frozen=True, slots=True)
class CheckedNode:
    """A node in the form that checks read; absent inputs are None."""

    op: OpKey
    attrs: Attrs
    inputs: Sequence[TensorType | None]
    values: Sequence[np.ndarray | None]
    outputs: Sequence[TensorType | None]

    def shape(self, i: int) -> tuple[Dim, ...] | None:
        known = self.inputs[i] if i < len(self.inputs) else None
        return None if known is None else known.shape

    def rank(self, i: int) -> int | None:
        shape = self.shape(i)
        return None if shape is None else len(shape)

    def dim(self, i: int, axis: int) -> int | None:
        """The dimension where it is a known number."""
        shape = self.shape(i)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        found = shape[axis]
        return found if isinstance(found, int) else None

    def value(self, i: int) -> np.ndarray | None:
        return self.values[i] if i < len(self.values) else None

    def attr(self, name: str, default: object = None) -> object:
        return attr(self.attrs, name, default)

    def int_attr(self, name: str, default: int = 0) -> int:
        value = attr(self.attrs, name, default)
        return value if isinstance(value, int) else default


Check = Callable[[CheckedNode], None]

# ---- helpers for checks --------------------------------------------------------------------------


def same(a: Dim | None, b: Dim | None) -> bool:
    """Whether two dimensions may be equal."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def require_rank(node: CheckedNode, i: int, *ranks: int, what: str) -> None:
    """The input's rank, if it is known, is one of those given."""
    rank = node.rank(i)
    if rank is not None and rank not in ranks:
        raise Mismatch(f"{what} has rank {rank}, not {' or '.join(map(str, ranks))}")


def require_vector(node: CheckedNode, i: int, length: int | None, *, what: str) -> None:
    """The input, if present, is one-dimensional and of that length."""
    require_rank(node, i, 1, what=what)
    if length is not None and not same(node.dim(i, 0), length):
        raise Mismatch(f"{what} has {node.dim(i, 0)} elements, not {length}")


def require_broadcast(shape: Sequence[Dim] | None, target: Sequence[Dim] | None, *, what: str) -> None:
    """The shape broadcasts to the target without enlarging it."""
    if shape is None or target is None:
        return
    if len(shape) > len(target):
        raise Mismatch(f"{what} of rank {len(shape)} does not broadcast to rank {len(target)}")
    for d, t in zip(reversed(shape), reversed(target), strict=False):
        if d != 1 and not same(d, t):
            raise Mismatch(f"{what} of shape {show(shape)} does not broadcast to {show(target)}")


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise Mismatch(f"axis {axis} is not within rank {rank}")
    return axis % rank


def show(shape: Sequence[Dim]) -> str:
    """``[2, N, ?]``."""
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
