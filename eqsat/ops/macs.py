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

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.model.body import Body
from eqsat.model.infer import infer_body
from eqsat.model.opset import MICROSOFT
from eqsat.model.types import Attrs, AttrValue, GraphAttr, OpKey, TensorType
from eqsat.ops.functions import function_body
from eqsat.ops.properties import is_data_movement

Types = Sequence[TensorType | None]
_Counter = Callable[["_Node"], int]


class _Node:
    """One operator with static shapes, as the counting functions see it."""

    def __init__(self, op: OpKey, attrs: Mapping[str, AttrValue], inputs: Types, outputs: Types) -> None:
        self.op = op
        self.attrs = attrs
        self.inputs = inputs
        self.outputs = outputs

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input."""
        return self._static(self.inputs, index, "input")

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        return self._static(self.outputs, index, "output")

    def elements(self, index: int) -> int:
        return math.prod(self.shape(index))

    @property
    def output_elements(self) -> int:
        return math.prod(self.output_shape())

    def integer(self, name: str, default: int = 0) -> int:
        value = self.attrs.get(name, default)
        return int(value) if isinstance(value, int | float) else default

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.attrs.get(name, ())
        return tuple(int(v) for v in value) if isinstance(value, tuple) else ()

    def text(self, name: str, default: str = "") -> str:
        value = self.attrs.get(name, default)
        return value if isinstance(value, str) else default

    def _static(self, types: Types, index: int, kind: str) -> tuple[int, ...]:
        tensor = types[index] if index < len(types) else None
        if tensor is None or tensor.shape is None or not tensor.is_static:
            raise OptimizationError(
                f"the shape of {kind} {index} must be known to count the work",
                place=str(self.op),
                actual="no such value" if tensor is None else str(tensor),
                hint="bind symbolic dimensions, for example with --dim N=1",
            )
        return tuple(int(d) for d in tensor.shape if isinstance(d, int))


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
    node = _Node(op, dict(attrs), inputs, outputs)
    return _COUNTERS.get(op, _output_elements)(node)


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


def _output_elements(node: _Node) -> int:
    tensor = node.outputs[0] if node.outputs else None
    if tensor is not None and tensor.dtype == ir.DataType.STRING:
        return 0
    return node.output_elements


def _input_elements(node: _Node) -> int:
    return node.elements(0)


def _variadic(node: _Node) -> int:
    return node.output_elements * max(1, len(node.inputs) - 1)


def _convolution(weight: int) -> _Counter:
    return lambda node: node.output_elements * math.prod(node.shape(weight)[1:])


def _transposed_convolution(node: _Node) -> int:
    return node.elements(0) * math.prod(node.shape(1)[1:])


def _deformable_convolution(node: _Node) -> int:
    n, _, *spatial = node.output_shape()
    kernel = node.shape(1)[2:]
    samples = n * node.shape(0)[1] * math.prod(spatial) * math.prod(kernel)
    return _convolution(1)(node) + samples * 2 ** len(kernel)


def _product(node: _Node) -> int:
    """MatMul and its relatives; ``transA`` exists in the fused form only."""
    a = node.shape(0)
    return node.output_elements * a[-2 if node.integer("transA") and len(a) > 1 else -1]


def _einsum(node: _Node) -> int:
    equation = node.text("equation").replace(" ", "")
    left, _, right = equation.partition("->")
    terms = [_labels(term, len(node.shape(i))) for i, term in enumerate(left.split(","))]
    size: dict[str, int] = {}
    for i, term in enumerate(terms):
        for label, dim in zip(term, node.shape(i), strict=True):
            size[label] = max(size.get(label, 1), dim)
    if "->" not in equation:
        once = sorted(c for c in size if len(c) == 1 and sum(term.count(c) for term in terms) == 1)
        result = [c for c in size if len(c) > 1] + once
    else:
        result = _labels(right, len(node.output_shape()))
    if len(terms) == 1:
        moved = len(set(terms[0])) == len(terms[0]) and len(result) == len(terms[0])
        return 0 if moved else math.prod(size[label] for label in set(terms[0]))
    total = 0
    kept = set(terms[0])
    for i, term in enumerate(terms[1:], start=1):
        joined = kept | set(term)
        total += math.prod(size[label] for label in joined)
        needed = set(result).union(*terms[i + 1 :])
        kept = joined & needed
    return total


def _labels(term: str, rank: int) -> list[str]:
    """One label an axis; the axes of an ellipsis are numbered from the right, as broadcasting aligns them."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    hidden = rank - len(before) - len(after)
    return [*before, *(f"...{i}" for i in range(hidden, 0, -1)), *after]


def _recurrent(gates: int) -> _Counter:
    def count(node: _Node) -> int:
        first, second, features = node.shape(0)
        directions, _, hidden = node.shape(2)
        return first * second * directions * gates * hidden * (features + hidden)

    return count


def _attention(node: _Node) -> int:
    query, key, value = node.shape(0), node.shape(1), node.shape(2)
    past = node.shape(4)[2] if len(node.inputs) > 4 and node.inputs[4] is not None else 0
    if len(query) == 4:
        batch, heads, rows, size = query
        columns, value_size = key[2] + past, value[3]
    else:
        batch, rows, width = query
        heads = node.integer("q_num_heads", 1)
        size = width // heads
        columns, value_size = key[1] + past, value[2] // node.integer("kv_num_heads", heads)
    return batch * heads * rows * columns * (size + value_size + 1)


def _pooling(node: _Node) -> int:
    return node.output_elements * math.prod(node.integers("kernel_shape"))


def _resize(node: _Node) -> int:
    taps = {"linear": 2, "bilinear": 2, "cubic": 4}.get(node.text("mode", "nearest"), 0)
    pairs = list(zip(node.shape(0), node.output_shape(), strict=True))
    return node.output_elements * taps ** sum(a != b for a, b in pairs) if taps and any(a != b for a, b in pairs) else 0


def _grid_sample(node: _Node) -> int:
    taps = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(node.text("mode", "linear"), 0)
    return node.output_elements * taps ** (len(node.shape(0)) - 2) if taps else 0


def _roi_align(node: _Node) -> int:
    return node.output_elements * 4 * max(1, node.integer("sampling_ratio")) ** 2


def _local_response(node: _Node) -> int:
    return node.elements(0) * node.integer("size", 1)


def _rotary(node: _Node) -> int:
    return 2 * node.output_elements


def _determinant(node: _Node) -> int:
    shape = node.shape(0)
    return math.prod(shape) * shape[-1] // 3


def _fourier(node: _Node) -> int:
    """Radix-2 fast transform: half a complex butterfly, four real MACs, an element and level."""
    lengths = node.output_shape()[:-1]
    return 2 * math.prod(lengths) * max(1, math.ceil(math.log2(max(2, *lengths)))) if lengths else 0


def _scatter(node: _Node) -> int:
    return 0 if node.text("reduction", "none") == "none" else node.elements(2)


def _branches(node: _Node) -> int:
    return max((_graph_macs(v.graph) for v in node.attrs.values() if isinstance(v, GraphAttr)), default=0)


def _scan(node: _Node) -> int:
    scanned = node.integer("num_scan_inputs")
    axes = node.integers("scan_input_axes") or (0,) * scanned
    steps = node.shape(len(node.inputs) - _captured(node) - scanned)[axes[0]] if scanned else 1
    return steps * _branches(node)


def _captured(node: _Node) -> int:
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

_COUNTERS: dict[OpKey, _Counter] = {
    **{OpKey("", name): _input_elements for name in _BY_INPUT},
    **{OpKey("", name): _variadic for name in ("Sum", "Max", "Min", "Mean")},
    **{OpKey("", name): _pooling for name in ("AveragePool", "MaxPool", "LpPool")},
    OpKey("", "Conv"): _convolution(1),
    OpKey("", "ConvInteger"): _convolution(1),
    OpKey("", "QLinearConv"): _convolution(3),
    OpKey("", "ConvTranspose"): _transposed_convolution,
    OpKey("", "DeformConv"): _deformable_convolution,
    OpKey("", "MatMul"): _product,
    OpKey("", "MatMulInteger"): _product,
    OpKey("", "QLinearMatMul"): _product,
    OpKey("", "Gemm"): _product,
    OpKey("", "Einsum"): _einsum,
    OpKey("", "RNN"): _recurrent(1),
    OpKey("", "GRU"): _recurrent(3),
    OpKey("", "LSTM"): _recurrent(4),
    OpKey("", "Attention"): _attention,
    OpKey("", "RotaryEmbedding"): _rotary,
    OpKey("", "LRN"): _local_response,
    OpKey("", "Resize"): _resize,
    OpKey("", "Upsample"): _resize,
    OpKey("", "GridSample"): _grid_sample,
    OpKey("", "RoiAlign"): _roi_align,
    OpKey("", "Det"): _determinant,
    OpKey("", "DFT"): _fourier,
    OpKey("", "ScatterElements"): _scatter,
    OpKey("", "ScatterND"): _scatter,
    OpKey("", "If"): _branches,
    OpKey("", "Loop"): _branches,
    OpKey("", "Scan"): _scan,
    OpKey(MICROSOFT, "DynamicQuantizeMatMul"): _product,
    OpKey(MICROSOFT, "FusedConv"): _convolution(1),
    OpKey(MICROSOFT, "FusedGemm"): _product,
    OpKey(MICROSOFT, "FusedMatMul"): _product,
    OpKey(MICROSOFT, "MatMulIntegerToFloat"): _product,
    OpKey(MICROSOFT, "NhwcFusedConv"): _convolution(1),
    OpKey(MICROSOFT, "QGemm"): _product,
    OpKey(MICROSOFT, "QLinearAveragePool"): _pooling,
    OpKey(MICROSOFT, "QLinearConv"): _convolution(3),
    OpKey(MICROSOFT, "QLinearGlobalAveragePool"): _input_elements,
    OpKey(MICROSOFT, "QLinearReduceMean"): _input_elements,
    OpKey(MICROSOFT, "QLinearSoftmax"): _input_elements,
    OpKey(MICROSOFT, "SkipLayerNormalization"): _input_elements,
}
