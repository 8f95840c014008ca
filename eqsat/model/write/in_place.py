"""Leaves out the sizes of results that ONNX Runtime would compute in place, where its kernel is wrong in place.

ONNX Runtime 1.31 writes a result over the operand if it knows that both have the same sizes. The kernel of
``Normalizer`` reads the sign of an element after that element has been overwritten by its square.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.model.write.runnable import scopes
from eqsat.schema.attributes import op_key
from eqsat.schema.types import OpKey

_WRONG_IN_PLACE = frozenset({OpKey("ai.onnx.ml", "Normalizer")})


def with_sizes_hidden(model: ir.Model) -> ir.Model:
    """A copy of the model without the sizes of such results; the model itself if there are none."""
    if not _found(model):
        return model
    copy = model.clone()
    for value in _found(copy):
        value.shape = None
    return copy


def _found(model: ir.Model) -> list[ir.Value]:
    nodes = [node for scope in scopes(model) for node in scope if op_key(node) in _WRONG_IN_PLACE]
    return [v for node in nodes for v in node.outputs if v.shape is not None and not v.is_graph_output()]
