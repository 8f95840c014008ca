"""Keeps ONNX Runtime from merging a Pad into the MaxPool after it, where that changes values.

ONNX Runtime 1.31 makes a Pad with zeros the padding of the MaxPool that reads it. But a MaxPool pads with the lowest
number, so that results become negative which have to be zero, and a file with a padding as wide as the window does not
load. Functions are inlined before that. A Reshape that changes nothing, and costs nothing, keeps the two apart.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.model.across_calls import AcrossCalls
from eqsat.model.unused_names import unused
from eqsat.model.write.runnable import names_of, scopes
from eqsat.ops.evaluate import constant_value
from eqsat.schema.attributes import tensor_of, to_attrs
from eqsat.schema.metadata import COST


def with_pads_unmerged(model: ir.Model) -> ir.Model:
    """A copy of the model with a Reshape after each such Pad; the model itself if there is none."""
    if not _found(model):
        return model
    copy = model.clone()
    taken = names_of(copy)
    for pad, rank in _found(copy):
        _keep_apart(pad, rank, taken)
    return copy


def _found(model: ir.Model) -> list[tuple[ir.Node, int]]:
    """Each Pad with zeros that a MaxPool reads, and the rank of its operand, where it is known.

    Results of graphs stay as they are: ONNX Runtime needs them.
    """
    pads = [
        node
        for scope in scopes(model)
        for node in scope
        if _pads_with_zeros(node) and (isinstance(scope, ir.Function) or not node.outputs[0].is_graph_output())
    ]
    across = AcrossCalls(model)
    pooled = [p for p in pads if any(n.op_type == "MaxPool" and not n.domain for n, _ in across.readers(p.outputs[0]))]
    ranks = [(pad, _rank(pad)) for pad in pooled]
    return [(pad, rank) for pad, rank in ranks if rank is not None]


def _pads_with_zeros(node: ir.Node) -> bool:
    if node.op_type != "Pad" or node.domain:
        return False
    mode = node.attributes.get("mode")
    if mode is not None and (mode.is_ref() or mode.as_string() != "constant"):
        return False
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    number = None if filled is None else _constant(filled)
    return filled is None or (number is not None and not number.any())


def _rank(pad: ir.Node) -> int | None:
    shape = pad.outputs[0].shape
    if shape is not None:
        return shape.rank()
    widths = None if len(pad.inputs) < 2 or pad.inputs[1] is None else _constant(pad.inputs[1])
    has_axes = len(pad.inputs) > 3 and pad.inputs[3] is not None
    return None if widths is None or has_axes else widths.size // 2


def _constant(value: ir.Value) -> np.ndarray | None:
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain or any(a.is_ref() for a in node.attributes.values()):
        return None
    return constant_value(to_attrs(node))


def _keep_apart(pad: ir.Node, rank: int, taken: set[str]) -> None:
    padded = pad.outputs[0]
    scope = pad.graph
    assert scope is not None
    shape, kept = (ir.Value(name=unused(f"{padded.name}_{what}", taken)) for what in ("as_it_is", "kept"))
    # Reshape keeps a size that is given as 0.
    sizes = ir.Attr("value", ir.AttributeType.TENSOR, tensor_of(np.zeros(rank, np.int64), ir.DataType.INT64))
    kept.type, kept.shape = padded.type, padded.shape
    made = [
        ir.Node("", "Constant", [], [sizes], outputs=[shape], name=shape.name),
        ir.Node("", "Reshape", [padded, shape], outputs=[kept], name=kept.name),
    ]
    for node in made:
        node.metadata_props.update({k: v for k, v in pad.metadata_props.items() if k != COST})
    ir.convenience.replace_all_uses_with(padded, kept, replace_graph_outputs=True)
    made[1].replace_input_with(0, padded)
    scope.insert_after(pad, made)
