"""A model without functions, for tools that do not support them: regions and composites are inlined and recorded in
metadata.

Each node names its target and region. The nodes of a composite also name the composite and the call that they replace,
the kernel. Tensors and nodes keep their names; of the kernels of one composite, all but the first get names with
numbers where they would clash. The functions themselves are kept as a record among the model's metadata, from which
:mod:`eqsat.model.read.flattened` makes the same model again.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.model.inlined_names import name_inlined, prepare_names
from eqsat.model.inlining import inline_calls
from eqsat.model.shadowing import unshadow
from eqsat.model.write.record import record_of
from eqsat.schema.attributes import op_key
from eqsat.schema.metadata import CALL, COMPOSITE, COST, FAMILY, FUNCTIONS, KERNEL, RULE, is_own_domain

_OF_CALL = (CALL, FAMILY)
"""Metadata of a composite or a region as a whole, which none of its nodes gets."""
_OF_ROOT = (COST, RULE)
"""Metadata that is written once for each kernel, on its last node."""


def flat(model: ir.Model) -> ir.Model:
    """A copy of the model without functions; tensors are shared.

    Args:
        model: A model that contains each function that it calls.
    """
    record = record_of(model) if model.functions else ""
    model = model.clone()
    inline_functions(model)
    if record:
        model.metadata_props[FUNCTIONS] = record
    return model


def inline_functions(model: ir.Model) -> None:
    """Inlines all functions in place, and records in each node's metadata the functions that it came from."""
    scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for scope in scopes:
        for node in ir.traversal.RecursiveGraphIterator(scope):
            if node.op_identifier() not in model.functions:
                continue
            # Inlined nodes inherit the metadata of the call.
            for key in _OF_CALL:
                node.metadata_props.pop(key, None)
            if COMPOSITE in node.metadata_props:
                node.metadata_props[KERNEL] = node.name or node.outputs[0].name or ""
    prepare_names(model)
    inline_calls(model)
    unshadow(model.graph)
    name_inlined(model.graph)
    last: dict[str, ir.Node] = {}
    for node in model.graph:
        kernel = node.metadata_props.get(KERNEL)
        if kernel is None:
            continue
        if kernel in last:
            for key in _OF_ROOT:
                last[kernel].metadata_props.pop(key, None)
        last[kernel] = node
    used = {op_key(node).domain for node in ir.traversal.RecursiveGraphIterator(model.graph)}
    for domain in [d for d in model.graph.opset_imports if is_own_domain(d) and d not in used]:
        del model.graph.opset_imports[domain]
