"""How much arithmetic an operator does, in multiply-accumulates (MACs): the unit of the roofline cost model.

What is counted, always from static shapes:

========================================  =====================================================================
operators                                 MACs
========================================  =====================================================================
convolutions                              output elements x (input channels / group) x kernel; positions in the
                                          padding count as well, as kernels compute or skip them alike
transposed convolution                    input elements x (output channels / group) x kernel
matrix products, einsum                   product of all index ranges; einsum of more than two operands is taken
                                          from left to right
recurrent networks                        matrix products of all gates, steps and directions
attention                                 both matrix products, one for each score (softmax)
pooling                                   output elements x kernel; global pooling: input elements
local response normalisation              elements x window
interpolation (Resize, GridSample, ...)   output elements x taps; nearest neighbour moves data: 0
reductions, arg-reductions, scans, sort   input elements
normalisations, softmax, losses           input elements
elementwise                               output elements; n operands count n - 1 times
data movement                             0
functions of ours                         the sum over their bodies
everything else                           output elements
========================================  =====================================================================

A bias, an activation or a zero point inside one of the products is free, as in the literature's MAC counts.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.model.infer import infer_body
from eqsat.ops import counters as count
from eqsat.ops.counters import Counter, Node, Types
from eqsat.ops.properties import is_data_movement
from eqsat.schema.body import Body
from eqsat.schema.functions import function_body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType


def macs(op: OpKey, attrs: Attrs, inputs: Types, outputs: Types) -> int:
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
    node = Node(op, dict(attrs), inputs, outputs)
    return _COUNTERS.get(op, count.output_elements)(node)


def body_macs(body: Body, inputs: Types) -> int:
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


def _branches(node: Node) -> int:
    return max((_graph_macs(v.graph) for v in node.attrs.values() if isinstance(v, GraphAttr)), default=0)


def _scan(node: Node) -> int:
    scanned = node.integer("num_scan_inputs")
    axes = node.integers("scan_input_axes") or (0,) * scanned
    steps = node.shape(len(node.inputs) - _captured(node) - scanned)[axes[0]] if scanned else 1
    return steps * _branches(node)


def _captured(node: Node) -> int:
    return sum(len(v.captured) for v in node.attrs.values() if isinstance(v, GraphAttr))


def _graph_macs(graph: ir.Graph) -> int:
    """MACs of a body's nodes; nodes whose shapes are not known are taken as free, a loop as one round."""
    total = 0
    for node in graph:
        attrs = {k: a.value for k, a in node.attributes.items() if a.type in _PLAIN_ATTRIBUTES}
        bound = tuple((k, tuple(v) if isinstance(v, list | tuple) else v) for k, v in attrs.items())
        bodies = ((k, a.as_graph()) for k, a in node.attributes.items() if a.type == ir.AttributeType.GRAPH)
        graphs = tuple((k, GraphAttr(body, ())) for k, body in bodies)
        op = OpKey("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        try:
            total += macs(op, (*bound, *graphs), [_type(v) for v in node.inputs], [_type(v) for v in node.outputs])
        except OptimizationError:
            continue
    return total


def _type(value: ir.Value | None) -> TensorType | None:
    if value is None or value.dtype is None or value.shape is None:
        return None
    return TensorType(value.dtype, tuple(d if isinstance(d, int) else d.value for d in value.shape))


_PLAIN_ATTRIBUTES = frozenset(
    {
        ir.AttributeType.INT,
        ir.AttributeType.INTS,
        ir.AttributeType.FLOAT,
        ir.AttributeType.FLOATS,
        ir.AttributeType.STRING,
        ir.AttributeType.STRINGS,
    }
)

_BY_INPUT = (
    "ArgMax", "ArgMin", "BatchNormalization", "Col2Im", "CumProd", "CumSum", "DynamicQuantizeLinear",
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "Hardmax", "InstanceNormalization",
    "LayerNormalization", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss",
    "NonMaxSuppression", "NonZero", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax",
    "SoftmaxCrossEntropyLoss", "TopK", "Unique",
)  # fmt: skip

_COUNTERS: dict[OpKey, Counter] = {
    **{OpKey("", name): count.input_elements for name in _BY_INPUT},
    **{OpKey("", name): count.variadic for name in ("Sum", "Max", "Min", "Mean")},
    **{OpKey("", name): count.pooling for name in ("AveragePool", "MaxPool", "LpPool")},
    OpKey("", "Conv"): count.convolution(1),
    OpKey("", "ConvInteger"): count.convolution(1),
    OpKey("", "QLinearConv"): count.convolution(3),
    OpKey("", "ConvTranspose"): count.transposed_convolution,
    OpKey("", "DeformConv"): count.deformable_convolution,
    OpKey("", "MatMul"): count.product,
    OpKey("", "MatMulInteger"): count.product,
    OpKey("", "QLinearMatMul"): count.product,
    OpKey("", "Gemm"): count.product,
    OpKey("", "Einsum"): count.einsum,
    OpKey("", "RNN"): count.recurrent(1),
    OpKey("", "GRU"): count.recurrent(3),
    OpKey("", "LSTM"): count.recurrent(4),
    OpKey("", "Attention"): count.attention,
    OpKey("", "RotaryEmbedding"): count.rotary,
    OpKey("", "LRN"): count.local_response,
    OpKey("", "Resize"): count.resize,
    OpKey("", "Upsample"): count.resize,
    OpKey("", "GridSample"): count.grid_sample,
    OpKey("", "RoiAlign"): count.roi_align,
    OpKey("", "Det"): count.determinant,
    OpKey("", "DFT"): count.fourier,
    OpKey("", "ScatterElements"): count.scatter,
    OpKey("", "ScatterND"): count.scatter,
    OpKey("", "If"): _branches,
    OpKey("", "Loop"): _branches,
    OpKey("", "Scan"): _scan,
    OpKey(MICROSOFT, "DynamicQuantizeMatMul"): count.product,
    OpKey(MICROSOFT, "FusedConv"): count.convolution(1),
    OpKey(MICROSOFT, "FusedGemm"): count.product,
    OpKey(MICROSOFT, "FusedMatMul"): count.product,
    OpKey(MICROSOFT, "MatMulIntegerToFloat"): count.product,
    OpKey(MICROSOFT, "NhwcFusedConv"): count.convolution(1),
    OpKey(MICROSOFT, "QGemm"): count.product,
    OpKey(MICROSOFT, "QLinearAveragePool"): count.pooling,
    OpKey(MICROSOFT, "QLinearConv"): count.convolution(3),
    OpKey(MICROSOFT, "QLinearGlobalAveragePool"): count.input_elements,
    OpKey(MICROSOFT, "QLinearReduceMean"): count.input_elements,
    OpKey(MICROSOFT, "QLinearSoftmax"): count.input_elements,
    OpKey(MICROSOFT, "SkipLayerNormalization"): count.input_elements,
}
