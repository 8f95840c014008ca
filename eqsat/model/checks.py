"""Contradictions that ONNX's shape inference lets pass: what a runtime would only find when it executes the node.

Each check follows the operator's specification and looks at what is known; a symbol or an unknown dimension
contradicts nothing. Here is what the checks share; :mod:`eqsat.model.checks_data` has those of operators that move and
combine elements, :mod:`eqsat.model.checks_nn` those of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.errors import ModelError
from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, Dim, OpKey, TensorType


class Mismatch(Exception):
    """What contradicts what, as a sentence without the final stop."""


@dataclass(frozen=True, slots=True)
class Operands:
    """A node as the checks see it; absent inputs are None."""

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


Check = Callable[[Operands], None]
_CHECKS: dict[OpKey, list[Check]] = {}


def check_types(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: Sequence[TensorType | None],
    place: str,
) -> None:
    """Raises where inputs, attributes and inferred outputs contradict each other.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs, None for an absent one.
        values: Their values where known.
        outputs: Types that inference gave.
        place: For the message.

    Raises:
        ModelError: They do.
    """
    node = Operands(op, attrs, inputs, values, outputs)
    try:
        for check in _CHECKS.get(op, ()):
            check(node)
        for output in outputs:
            if output is not None and any(isinstance(d, int) and d < 0 for d in output.shape or ()):
                raise Mismatch(f"an output would have the shape {output}")
    except Mismatch as mismatch:
        raise contradiction(place, inputs, str(mismatch)) from None


def contradiction(place: str, inputs: Sequence[TensorType | None], why: str) -> ModelError:
    """The error for inputs that do not fit together or not to the attributes."""
    actual = ", ".join("absent" if t is None else str(t) for t in inputs)
    return ModelError("inputs and attributes that fit together are required", place=place, actual=actual, hint=why)


def register_checks(checks: Mapping[OpKey, Check]) -> None:
    """Adds checks; those of one operator are made in the order in which they were added."""
    for op, check in checks.items():
        _CHECKS.setdefault(op, []).append(check)


# ---- helpers for checks --------------------------------------------------------------------------


def same(a: Dim | None, b: Dim | None) -> bool:
    """Whether two dimensions may be equal."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def require_rank(node: Operands, i: int, *ranks: int, what: str) -> None:
    """The input's rank is one of those given, where it is known."""
    rank = node.rank(i)
    if rank is not None and rank not in ranks:
        raise Mismatch(f"{what} has rank {rank}, not {' or '.join(map(str, ranks))}")


def require_vector(node: Operands, i: int, length: int | None, *, what: str) -> None:
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


def normal_axis(axis: int, rank: int, *, what: str = "axis") -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise Mismatch(f"{what} {axis} is not within rank {rank}")
    return axis % rank


def show(shape: Sequence[Dim]) -> str:
    """``[2, N, ?]``."""
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
