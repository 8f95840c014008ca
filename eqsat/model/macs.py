"""The arithmetic of an operator in multiply-accumulates (MACs), the unit of the roofline cost model.

What is counted, always from static shapes:

======================================== ===================================================================== operators
MACs ======================================== =====================================================================
convolutions output elements x (input channels / group) x kernel; positions in the padding count as well transposed
convolution input elements x (output channels / group) x kernel matrix products, einsum product of all index ranges;
einsum of more than two operands is taken from left to right recurrent networks matrix products of all gates, steps and
directions attention both matrix products, one for each score (softmax) pooling output elements x kernel; global
pooling: input elements local response normalisation elements x window interpolation (Resize, GridSample, ...) output
elements x taps; nearest neighbour moves data: 0 reductions, arg-reductions, scans, sort input elements normalisations,
softmax, losses input elements elementwise output elements; n operands count n - 1 times data movement 0 functions of
ours the sum over their bodies everything else output elements ========================================
=====================================================================

A bias, an activation or a zero point inside one of the products is free, as in the MAC counts of the literature. The
declarations of operators assign them to these kinds; :mod:`eqsat.ops.counters` counts each kind.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.model.inference.infer import infer_body
from eqsat.ops.counters import CountedNode
from eqsat.ops.operators import operator
from eqsat.ops.properties import is_data_movement
from eqsat.schema.attributes import PARAMETERS, op_key
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import function_body
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorTypes, type_of


def macs(op: OpKey, attrs: Attrs, inputs: TensorTypes, outputs: TensorTypes) -> int:
    """Multiply-accumulates of one operator.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Type of each input, None where absent. Only the shapes that the count needs must be static.
        outputs: Type of each output, None where absent.

    Raises:
        OptimizationError: A shape that the count needs is not static.
    """
    if is_data_movement(op):
        return 0
    body = function_body(op, attrs)
    if body is not None:
        return body_macs(body, inputs)
    return operator(op).macs(CountedNode(op, dict(attrs), inputs, outputs, _graph_macs))


def body_macs(body: Body, inputs: TensorTypes) -> int:
    """Multiply-accumulates of a straight-line program.

    Args:
        body: The program.
        inputs: Type of each input.

    Raises:
        OptimizationError: A shape that the count needs is not static.
        ModelError: The types do not fit the program.
    """
    types = infer_body(body, inputs)
    total, first = 0, body.inputs
    for node in body.nodes:
        operands = [None if i is None else types[i] for i in node.inputs]
        total += macs(node.op, node.attrs, operands, types[first : first + node.outputs])
        first += node.outputs
    return total


def _graph_macs(graph: ir.Graph) -> int:
    """MACs of a body's nodes; nodes of unknown shapes count as free, a loop as one iteration."""
    total = 0
    for node in graph:
        attrs = {k: a.value for k, a in node.attributes.items() if a.type in PARAMETERS}
        bound = tuple((k, tuple(v) if isinstance(v, list | tuple) else v) for k, v in attrs.items())
        bodies = ((k, a.as_graph()) for k, a in node.attributes.items() if a.type == ir.AttributeType.GRAPH)
        graphs = tuple((k, GraphAttr(body, ())) for k, body in bodies)
        op = op_key(node)
        try:
            total += macs(op, (*bound, *graphs), [type_of(v) for v in node.inputs], [type_of(v) for v in node.outputs])
        except OptimizationError:
            continue
    return total
