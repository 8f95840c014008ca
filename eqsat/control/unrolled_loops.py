"""Loops as copies of their bodies, one for each round: rewriting then sees across rounds, and nothing is launched.

The unrolled program is next to the loop in the e-graph, and extraction chooses the cheaper one.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.control.node_as_model import alternative, piece_of
from eqsat.egraph.alternatives import Alternative
from eqsat.simplify.edit import Editor
from eqsat.simplify.unroll import copies, unroll

NAME = "unrolled loops"
"""In the place of a rule's name."""


def unrolled(node: ir.Node, model: ir.Model) -> Alternative | None:
    """A loop as copies of its body, one for each round; None if their number is unknown or too large.

    Args:
        node: A Loop or Scan of the model's main graph.
        model: The loaded model; not changed.
    """
    rounds = copies(node)
    if not rounds or any(not isinstance(v.type, ir.TensorType | None) for v in node.outputs):
        return None
    piece = piece_of(node, model)
    loop = next(iter(piece.graph))
    return alternative(NAME, piece) if unroll(loop, Editor(piece.graph), rounds) else None
