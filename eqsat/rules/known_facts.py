"""What expressions of rules are evaluated over: facts of tensors and nodes, and how a missing fact is said."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eqsat.schema.types import Attrs, OpKey, TensorType


class Unknown(Exception):
    """An expression needs what is not known: a symbolic dimension, the contents of a tensor, an absent value.

    A condition that meets it does not hold.
    """


@dataclass(frozen=True, slots=True, eq=False)
class TensorFacts:
    """What is known of a value.

    Attributes:
        value: Contents, where it is a constant small enough to look at.
        is_const: Whether it is a constant expression (it may be so without its contents being known).
        is_present: False for an optional operand that is not there; nothing else is known of it then.
        free_term: Whether it is a sum that a constant may move out of.
        free_factor: Whether it is a product that a constant may move out of.
        bound: A number that no element reaches in magnitude; infinite where none is known.
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

    It is equal to itself if it has a name; otherwise nothing is known of it.
    """

    name: str | None
