"""Tensors of a graph under construction: the results of ``eqsat.input`` and of operators.

A tensor knows its type at once, so that a wrong operand is reported in the line that uses it. Tensors are compared by
identity: using one twice is sharing its value, computing it twice is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from eqsat.errors import ModelError
from eqsat.schema.types import Attrs, Dim, OpKey, TensorType

_created = itertools.count()


@dataclass(frozen=True, eq=False, slots=True)
class PendingNode:
    """One node under construction.

    Attributes:
        order: Its number in the order of creation.
        name: The node's name as the caller gives it, or None.
        branches: Its subgraphs, by attribute name.
    """

    op: OpKey
    attrs: Attrs
    inputs: tuple[Tensor | None, ...]
    outputs: int
    name: str | None
    order: int
    branches: tuple[tuple[str, Branch], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Branch:
    """A subgraph under construction: the steps made since ``start``; tensors made before are captured."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    start: int


class Tensor:
    """A value of a graph under construction; see :func:`eqsat.input` and :func:`eqsat.graph`.

    Examples:
        >>> import eqsat
        >>> x = eqsat.input("x", (2, 3))
        >>> y = 2 * x + 1
        >>> y.shape
        (2, 3)
    """

    __array_ufunc__ = None  # numpy must leave `array * tensor` to this class
    operate: ClassVar[Callable[[OpKey, Sequence[Any]], tuple[Tensor, ...]]]
    """Applies an operator; :mod:`eqsat.model.construction.apply`, which needs this class, sets it."""

    def __init__(
        self,
        known: TensorType | None,
        *,
        step: PendingNode | None = None,
        index: int = 0,
        name: str | None = None,
        value: np.ndarray | None = None,
    ) -> None:
        self.type = known
        self.step = step
        self.index = index
        self.name = name
        self.value = value
        """Contents where they are known: of constants, and of small integers computed from shapes."""
        self.order = step.order if step is not None else next(_created)

    @property
    def is_input(self) -> bool:
        return self.step is None and self.value is None

    @property
    def is_constant(self) -> bool:
        return self.step is None and self.value is not None

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """Dimensions: numbers, symbols, or None; None where not even the rank is known."""
        return None if self.type is None else self.type.shape

    @property
    def rank(self) -> int | None:
        return None if self.type is None else self.type.rank

    @property
    def dtype(self) -> np.dtype | None:
        """The numpy element type."""
        return None if self.type is None else self.type.dtype.numpy()

    def __repr__(self) -> str:
        what = self.step.op.name if self.step is not None else "constant" if self.is_constant else "input"
        name = f" {self.name!r}" if self.name else ""
        return f"<eqsat {what}{name} {self.type or '?'}>"

    def __bool__(self) -> bool:
        raise ModelError(
            "a tensor of a graph has no truth value: it has no contents yet",
            place=repr(self),
            hint="`op.Where(condition, a, b)` chooses between elements of tensors",
        )

    def __iter__(self) -> Any:
        raise ModelError("a tensor cannot be iterated over", place=repr(self), hint="take parts of it with op.Split")

    def __getitem__(self, key: Any) -> Any:
        raise ModelError(
            "a tensor of a graph cannot be indexed: it has no contents yet",
            place=repr(self),
            hint="take parts of it with op.Slice, op.Gather or op.Split",
        )

    def __add__(self, other: Any) -> Tensor:
        return _apply("Add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _apply("Add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _apply("Sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _apply("Sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _apply("Mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _apply("Mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _apply("Div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _apply("Div", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return _apply("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _apply("MatMul", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _apply("Pow", self, other)

    def __neg__(self) -> Tensor:
        return _apply("Neg", self)

    def __abs__(self) -> Tensor:
        return _apply("Abs", self)


def made_so_far() -> int:
    """A number that separates the tensors made until now from those to come."""
    return next(_created)


def _apply(name: str, *operands: Any) -> Tensor:
    return Tensor.operate(OpKey("", name), operands)[0]
