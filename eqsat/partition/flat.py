"""A model without functions, for tools that know none: regions and composites are inlined, metadata say what was one.

Each node says on which target and in which region it runs. The nodes of a composite also name it and the kernel: the
call that they replace. Tensors and nodes keep their names; of the kernels of one composite, all but the first get names
with numbers where they would clash.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from eqsat.model.write.functions import with_definitions
from eqsat.partition.emit import CALL, COMPOSITE, COST, FAMILY, KERNEL, RULE, is_ours
from eqsat.partition.subgraphs import unshadow
from eqsat.schema.attributes import op_key

_OF_KERNEL = (CALL, FAMILY)
"""What is true of a composite as one kernel, and of no node of it."""
_OF_ROOT = (COST, RULE)
"""What is said once for each kernel: with its last node."""


def flat(model: ir.Model) -> ir.Model:
    """The model without functions; not changed itself, tensors are shared."""
    model = with_definitions(model).clone()
    scopes: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for scope in scopes:
        for node in scope:
            if COMPOSITE in node.metadata_props and node.op_identifier() in model.functions:
                # Inlined nodes inherit what the call says.
                node.metadata_props[KERNEL] = node.name or node.outputs[0].name or ""
                for key in _OF_KERNEL:
                    node.metadata_props.pop(key, None)
    InlinePass()(model)
    unshadow(model.graph)
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
    for domain in [d for d in model.graph.opset_imports if is_ours(d) and d not in used]:
        del model.graph.opset_imports[domain]
    return model
