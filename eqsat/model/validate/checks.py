"""Runs the checks of an operator on a node; :mod:`eqsat.ops.checks` defines them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.errors import ModelError
from eqsat.ops.checks.check import CheckedNode, Mismatch
from eqsat.ops.operators import operator
from eqsat.schema.types import Attrs, OpKey, TensorType


def check_types(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: Sequence[TensorType | None],
    place: str,
) -> None:
    """Raises an error if inputs, attributes and inferred outputs contradict each other.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs, None for an absent one.
        values: Their values where known.
        outputs: The inferred types.
        place: For the message.

    Raises:
        ModelError: They contradict each other.
    """
    node = CheckedNode(op, attrs, inputs, values, outputs)
    try:
        for check in operator(op).checks:
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
