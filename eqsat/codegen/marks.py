"""What the selection chose, written into the model for lowering: metadata on nodes that inlining keeps."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.codegen.kernels.registry import families
from eqsat.model.attributes import op_key
from eqsat.ops.functions import CHANNELS_FIRST, CHANNELS_LAST
from eqsat.partition.emit import COMPOSITE, TARGET

FAMILY = "codegen.family"
"""Metadata key: name of the kernel family that computes a node."""
ORDER = "codegen.order"
"""Metadata key of an ``Identity``: whether its result has its channels ``last`` or ``first``."""
INSIDE = "codegen.inside"
"""Metadata key of an ``Identity`` with an order: the kernel around it reads or writes so, and nothing is converted."""


def entry_name(family: str) -> str:
    """Name of a family in a target file: ``direct_convolution``."""
    return "".join(c if c.isalnum() else "_" for c in family.lower())


def mark(model: ir.Model, host: str) -> None:
    """Turns calls of the host's kernels and conversions into marks; the model is changed in place."""
    for function in model.functions.values():
        entry = function.metadata_props.get(COMPOSITE)
        if entry is None or function.metadata_props.get(TARGET) != host:
            continue
        for node in list(function):
            _mark_order(node, inside=True)
            for family in families(op_key(node)):
                if entry_name(family.name) == entry:
                    node.metadata_props[FAMILY] = family.name
    for node in list(model.graph):
        _mark_order(node, inside=False)


def _mark_order(node: ir.Node, *, inside: bool) -> None:
    op = op_key(node)
    if op not in (CHANNELS_LAST.op, CHANNELS_FIRST.op):
        return
    node.domain, node.op_type = "", "Identity"
    node.metadata_props[ORDER] = "last" if op == CHANNELS_LAST.op else "first"
    if inside:
        node.metadata_props[INSIDE] = "1"
