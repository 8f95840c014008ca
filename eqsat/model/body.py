"""A small straight-line program of standard operators: what a composite or a function of ours computes.

It is the definition from which types, MAC counts, ONNX function bodies and fallback execution follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.types import Attrs, OpKey


@dataclass(frozen=True, slots=True)
class BodyNode:
    """One operator of a body.

    Attributes:
        inputs: Value numbers, None for an absent optional input. Values are numbered: the body's inputs
            first, then the outputs of the nodes in order.
        outputs: How many values the node defines.
    """

    op: OpKey
    attrs: Attrs
    inputs: tuple[int | None, ...]
    outputs: int = 1


@dataclass(frozen=True, slots=True)
class Body:
    """Attributes:
    inputs: Number of inputs.
    nodes: In topological order; constants are ``Constant`` nodes with a ``value`` attribute.
    results: The values returned.
    """

    inputs: int
    nodes: tuple[BodyNode, ...]
    results: tuple[int, ...]
