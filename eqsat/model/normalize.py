"""The normal form of a node's attributes and inputs, so that equal meanings have equal forms.

The declaration of an operator defines its normal form (see :mod:`eqsat.ops.normal`). An unknown value (a symbolic
dimension) stays unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.ops.normal import Given
from eqsat.ops.operators import operator
from eqsat.schema.types import Attrs, AttrValue, OpKey, TensorType


def complete(op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], outputs: int = 1) -> Attrs:
    """Attributes with all values filled in that follow from the inputs' types.

    Args:
        op: The operator.
        attrs: Its attributes, the schema's defaults filled in.
        inputs: Types of its inputs, None for an absent or unknown one.
        outputs: Number of its outputs in use.

    Returns:
        The normal form; applying this again changes nothing.
    """
    given = Given(op, attrs, inputs, outputs)
    changes: dict[str, AttrValue | None] = {}
    for form in operator(op).normal_form:
        changes |= form(given)
    if not changes:
        return attrs
    merged: dict[str, AttrValue | None] = dict(attrs) | changes
    return tuple(sorted((key, value) for key, value in merged.items() if value is not None))


def constant_axes(op: OpKey, inputs: Sequence[TensorType | None]) -> int | None:
    """Position of the input that lists axes, for operators that take axes as a tensor."""
    axes = operator(op).axes
    return axes.input if axes is not None and axes.input < len(inputs) else None


def normal_axes(op: OpKey, inputs: Sequence[TensorType | None], axes: np.ndarray) -> np.ndarray:
    """Axes counted from the front, ascending if their order has no meaning.

    Args:
        op: An operator with :func:`constant_axes`.
        inputs: Types of its inputs.
        axes: Their present value.
    """
    first, listed = inputs[0], operator(op).axes
    if first is None or first.shape is None or listed is None:
        return axes
    rank = len(first.shape) + (axes.size if listed.of_result else 0)
    counted = np.where((axes < 0) & (axes >= -rank), axes + rank, axes).astype(axes.dtype)
    return counted if listed.ordered else np.sort(counted.reshape(-1))
