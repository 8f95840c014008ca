"""Contradictions that ONNX's shape inference lets pass, such as channels of a convolution that do not match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.model.types import Attrs, OpKey, TensorType


def check_types(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: Sequence[TensorType | None],
    place: str,
) -> None:
    """Raises where inputs, attributes and inferred outputs contradict each other."""
