"""Outputs of an operator that must be present even if they have no readers.

A schema tells whether an output is optional, but not which outputs go together.
"""

from __future__ import annotations

from collections.abc import Collection

from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, OpKey

_BATCH_NORMALIZATION = OpKey("", "BatchNormalization")
_ATTENTION = OpKey("", "Attention")


def required_outputs(op: OpKey, attrs: Attrs, inputs: int, used: Collection[int]) -> frozenset[int]:
    """Positions of the outputs that a node must name.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Number of its inputs; ONNX Runtime requires the ``present`` outputs of an Attention if it has ``past``
        inputs.
        used: Positions of the outputs that have readers.
    """
    if op == _BATCH_NORMALIZATION and attr(attrs, "training_mode", 0):
        return frozenset({0, 1, 2})
    if op == _ATTENTION and ({1, 2} & set(used) or inputs > 4):
        return frozenset({1, 2}) | set(used)
    return frozenset(used)
