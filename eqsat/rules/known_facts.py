"""The facts of tensors and nodes over which expressions of rules are evaluated, and the error for a missing fact."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eqsat.schema.types import Attrs, OpKey, TensorType


class Unknown(Exception):
    """An expression needs an unknown fact: a symbolic dimension, the contents of a tensor, an absent value.

    A condition that raises it does not hold.
    """


@dataclass(frozen=True, slots=True, eq=False)
class TensorFacts:
    """The known facts about a value.

    Attributes:
        value: Contents, if it is a constant that is small enough.
        is_const: Whether it is a constant expression, with known or unknown contents.
        is_present: False for an absent optional operand, which has no other facts.
        free_term: Whether it is a sum that a constant may move out of.
        free_factor: Whether it is a product that a constant may move out of.
        bound: A number that no element reaches in magnitude; infinite if unknown.
    """

    type: TensorType | None
    value: np.ndarray | None = None
    is_const: bool = False
    is_present: bool = True
    free_term: bool = False
    free_factor: bool = False
    bound: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class NodeFacts:
    """A bound node: operator, attributes (defaults filled in), and the facts of its value."""

    op: OpKey
    attrs: Attrs
    output: TensorFacts | None = None


@dataclass(frozen=True, slots=True)
class SymbolicDim:
    """A dimension that is neither a number nor an expression of sizes.

    If it has a name, it is equal to itself; otherwise every comparison is unknown.
    """

    name: str | None
