"""Which outputs of an operator must be there though nobody reads them.

A schema says of each output whether it is optional, but not which ones go together.
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
        inputs: How many inputs it has; ONNX Runtime wants the present of an Attention wherever there is a past.
        used: Positions that somebody reads.
    """
    if op == _BATCH_NORMALIZATION and attr(attrs, "training_mode", 0):
        return frozenset({0, 1, 2})
    if op == _ATTENTION and ({1, 2} & set(used) or inputs > 4):
        return frozenset({1, 2}) | set(used)
    return frozenset(used)
