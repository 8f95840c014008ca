"""Records the decisions of a plan for generated C in the model, as metadata on nodes that inlining keeps and lowering
reads.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.ops.functions import CHANNELS_FIRST, CHANNELS_LAST
from eqsat.partition.emit import COMPOSITE, TARGET
from eqsat.partition.emit import FAMILY as CHOSEN
from eqsat.schema.attributes import op_key

FAMILY = "codegen.family"
"""Metadata key: name of the kernel family that computes a node, as in target files."""
NAME = "codegen.name"
"""Metadata key: name of the node in the original model to which a node belongs."""
ORDER = "codegen.order"
"""Metadata key of an ``Identity``: whether its result has its channels ``last`` or ``first``."""
INSIDE = "codegen.inside"
"""Metadata key of an ``Identity`` with an order: it marks the ``operand`` or the ``result`` of the kernel next to it,
and converts nothing.
"""


def entry_name(family: str) -> str:
    """Name of a family in a target file: ``direct_convolution``."""
    return "".join(c if c.isalnum() else "_" for c in family.lower())


def mark(model: ir.Model, host: str) -> None:
    """Turns calls of the host's kernels and conversions into marks; the model is changed in place.

    Each call gets a function of its own, whose nodes have its name, so that reports show the names of layers.
    """
    for number, node in enumerate(list(model.graph)):
        function = model.functions.get(node.op_identifier())
        family = node.metadata_props.get(CHOSEN, "")
        is_kernel = function is not None and COMPOSITE in function.metadata_props
        if function is None or not is_kernel or function.metadata_props.get(TARGET) != host:
            _mark_order(node, inside=False)
            node.metadata_props[FAMILY] = family
            continue
        own = function.clone()
        own.name = f"{function.name}__{number}"
        for inner in list(own):
            inner.metadata_props[NAME] = node.name or ""
            inner.metadata_props[FAMILY] = family
            _mark_order(inner, inside=True)
        _mark_result(own)
        model.functions[own.identifier()] = own
        node.op_type = own.name


def _mark_order(node: ir.Node, *, inside: bool) -> None:
    op = op_key(node)
    if op not in (CHANNELS_LAST.op, CHANNELS_FIRST.op):
        return
    node.domain, node.op_type = "", "Identity"
    node.metadata_props[ORDER] = "last" if op == CHANNELS_LAST.op else "first"
    if inside:
        node.metadata_props[INSIDE] = "result" if op == CHANNELS_LAST.op else "operand"


def _mark_result(function: ir.Function) -> None:
    """Marks that a kernel writes its result in row-major order, if it reads channels that lie innermost."""
    marks = [n for n in function if ORDER in n.metadata_props]
    if not marks or any(n.metadata_props[INSIDE] == "result" for n in marks):
        return
    (value,) = function.outputs
    output = ir.Value(name=f"{value.name}_in_rows", type=value.type, shape=value.shape)
    function.append(
        ir.Node("", "Identity", [value], outputs=[output], metadata_props={ORDER: "first", INSIDE: "result"})
    )
    function.outputs[0] = output
