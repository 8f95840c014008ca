"""How many multiply-accumulates single operators do, one function a kind of operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.ops.definition import integers
from eqsat.schema.types import AttrValue, GraphAttr, OpKey, TensorTypes

Counter = Callable[["CountedNode"], int]


class CountedNode:
    """One operator with static shapes, as the counting functions see it; ``of_graph`` counts the body of a loop."""

    def __init__(
        self,
        op: OpKey,
        attrs: Mapping[str, AttrValue],
        inputs: TensorTypes,
        outputs: TensorTypes,
        of_graph: Callable[[ir.Graph], int] = lambda graph: 0,
    ) -> None:
        self.op = op
        self.of_graph = of_graph
        self.attrs = attrs
        self.inputs = inputs
        self.outputs = outputs

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input."""
        return self._static(self.inputs, index, "input")

    def output_shape(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self._static(self.outputs, 0, "output")

    def elements(self, index: int) -> int:
        return math.prod(self.shape(index))

    @property
    def output_elements(self) -> int:
        return math.prod(self.output_shape())

    def integer(self, name: str, default: int = 0) -> int:
        value = self.attrs.get(name, default)
        return int(value) if isinstance(value, int | float) else default

    def integers(self, name: str) -> tuple[int, ...]:
        return integers(self.attrs, name)

    def text(self, name: str, default: str = "") -> str:
        value = self.attrs.get(name, default)
        return value if isinstance(value, str) else default

    def _static(self, types: TensorTypes, index: int, kind: str) -> tuple[int, ...]:
        tensor = types[index] if index < len(types) else None
        if tensor is None or tensor.shape is None or not tensor.is_static:
            raise OptimizationError(
                f"the shape of {kind} {index} must be known to count the work",
                place=str(self.op),
                actual="no such value" if tensor is None else str(tensor),
                hint="bind symbolic dimensions, for example with --dim N=1",
            )
        return tuple(int(d) for d in tensor.shape if isinstance(d, int))


def output_elements(node: CountedNode) -> int:
    """One per element of the output: elementwise operators, and all operators without a better count."""
    tensor = node.outputs[0] if node.outputs else None
    if tensor is not None and tensor.dtype == ir.DataType.STRING:
        return 0
    return node.output_elements


def input_elements(node: CountedNode) -> int:
    """One an element of the input: reductions, normalisations, sorts."""
    return node.elements(0)


def variadic(node: CountedNode) -> int:
    """Elementwise with one step less than operands."""
    return node.output_elements * max(1, len(node.inputs) - 1)


def convolution(weight: int) -> Counter:
    """Output elements times the window over one group's channels; the weights are the input at an index."""
    return lambda node: node.output_elements * math.prod(node.shape(weight)[1:])


def transposed_convolution(node: CountedNode) -> int:
    """Input elements times the window over one group's output channels."""
    return node.elements(0) * math.prod(node.shape(1)[1:])


def deformable_convolution(node: CountedNode) -> int:
    """A convolution, and the interpolation of each sample that it reads."""
    n, _, *spatial = node.output_shape()
    kernel = node.shape(1)[2:]
    samples = n * node.shape(0)[1] * math.prod(spatial) * math.prod(kernel)
    return convolution(1)(node) + samples * 2 ** len(kernel)


def product(node: CountedNode) -> int:
    """MatMul and its relatives; ``transA`` exists in the fused form only."""
    a = node.shape(0)
    return node.output_elements * a[-2 if node.integer("transA") and len(a) > 1 else -1]


def einsum(node: CountedNode) -> int:
    """Product of all index ranges, pairwise from left to right."""
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


def recurrent(gates: int) -> Counter:
    """Products of all gates with inputs and states, in all steps and directions."""

    def count(node: CountedNode) -> int:
        first, second, features = node.shape(0)
        directions, _, hidden = node.shape(2)
        return first * second * directions * gates * hidden * (features + hidden)

    return count


def transposed_recurrent(node: CountedNode) -> int:
    """As :func:`recurrent`, of weights (directions, features, gates * hidden)."""
    steps, batch, features = node.shape(0)
    directions, hidden, columns = node.shape(2)
    return steps * batch * directions * columns * (hidden + features)


def attention(node: CountedNode) -> int:
    """Scores, their softmax, and the mixing of values."""
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


def projected_attention(node: CountedNode) -> int:
    """Attention of ``com.microsoft``: the projections, then as :func:`attention`."""
    batch, rows, width = node.shape(0)
    columns = node.shape(1)[1]
    values = node.output_shape()[2]
    at = 8 if node.op.name == "QAttention" else 4
    past = node.shape(at)[3] if len(node.inputs) > at and node.inputs[at] is not None else 0
    heads = node.integer("num_heads", 1)
    scores = batch * rows * (rows + past) * ((columns - values) // 2 + values + heads)
    return batch * rows * width * columns + scores


def multi_head_attention(node: CountedNode) -> int:
    """MultiHeadAttention of ``com.microsoft``: scores, their softmax, and the mixing of values."""
    batch, rows, width = node.shape(0)
    values = node.output_shape()[2]
    key = node.shape(1)
    past = node.shape(6)[2] if len(node.inputs) > 6 and node.inputs[6] is not None else 0
    columns = past + (key[2] if len(key) == 4 else key[1])
    return batch * rows * columns * (width + values + node.integer("num_heads", 1))


def grouped_attention(node: CountedNode) -> int:
    """GroupQueryAttention: scores, their softmax, and the mixing of values, over the whole cache."""
    batch, rows, width = node.output_shape()
    past = node.shape(3)[2] if len(node.inputs) > 3 and node.inputs[3] is not None else 0
    return batch * rows * max(past, rows) * (2 * width + node.integer("num_heads", 1))


def pooling(node: CountedNode) -> int:
    """Output elements times the window."""
    return node.output_elements * math.prod(node.integers("kernel_shape"))


def resize(node: CountedNode) -> int:
    """Taps of the interpolation along the axes that change."""
    taps = {"linear": 2, "bilinear": 2, "cubic": 4}.get(node.text("mode", "nearest"), 0)
    pairs = list(zip(node.shape(0), node.output_shape(), strict=True))
    return node.output_elements * taps ** sum(a != b for a, b in pairs) if taps and any(a != b for a, b in pairs) else 0


def grid_sample(node: CountedNode) -> int:
    """Taps of the interpolation in all spatial axes."""
    taps = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(node.text("mode", "linear"), 0)
    return node.output_elements * taps ** (len(node.shape(0)) - 2) if taps else 0


def roi_align(node: CountedNode) -> int:
    """Four taps for each sample of an output."""
    return node.output_elements * 4 * max(1, node.integer("sampling_ratio")) ** 2


def local_response(node: CountedNode) -> int:
    """Elements times the window across channels."""
    return node.elements(0) * node.integer("size", 1)


def rotary(node: CountedNode) -> int:
    """Two products an element."""
    return 2 * node.output_elements


def determinant(node: CountedNode) -> int:
    """A third of the cube, by elimination."""
    shape = node.shape(0)
    return math.prod(shape) * shape[-1] // 3


def inverse(node: CountedNode) -> int:
    """The cube, by elimination."""
    return node.elements(0) * node.shape(0)[-1]


def distances(node: CountedNode) -> int:
    """A product of all pairs of rows, and their squares."""
    return (node.output_elements + node.shape(0)[0] + node.shape(1)[0]) * node.shape(0)[1]


def fourier(node: CountedNode) -> int:
    """Radix-2 fast transform: half a complex butterfly, four real MACs, an element and level."""
    lengths = node.output_shape()[:-1]
    return 2 * math.prod(lengths) * max(1, math.ceil(math.log2(max(2, *lengths)))) if lengths else 0


def linear_model(node: CountedNode) -> int:
    """Each row times the coefficients."""
    shape, coefficients = node.shape(0), node.attrs.get("coefficients", ())
    return (shape[0] if len(shape) > 1 else 1) * (len(coefficients) if isinstance(coefficients, tuple) else 0)


def support_vectors(node: CountedNode) -> int:
    """The kernel of each row with each vector."""
    shape, vectors = node.shape(0), node.attrs.get("support_vectors", ())
    return (shape[0] if len(shape) > 1 else 1) * (len(vectors) if isinstance(vectors, tuple) else 0)


def trees(node: CountedNode) -> int:
    """One for each comparison, as many as if each tree were balanced."""
    nodes = len(node.integers("nodes_featureids"))
    count = len(set(node.integers("nodes_treeids"))) or len(node.integers("tree_roots")) or 1
    shape = node.shape(0)
    return (shape[0] if len(shape) > 1 else 1) * count * max(1, math.ceil(math.log2(max(2, nodes / count))))


def scatter(node: CountedNode) -> int:
    """One an update, where updates are combined and not only written."""
    return 0 if node.text("reduction", "none") == "none" else node.elements(2)


def branches(node: CountedNode) -> int:
    """If and Loop: the largest body, once."""
    return max((node.of_graph(v.graph) for v in node.attrs.values() if isinstance(v, GraphAttr)), default=0)


def scan(node: CountedNode) -> int:
    """The body for each step."""
    scanned = node.integer("num_scan_inputs")
    axes = node.integers("scan_input_axes") or (0,) * scanned
    captured = sum(len(v.captured) for v in node.attrs.values() if isinstance(v, GraphAttr))
    steps = node.shape(len(node.inputs) - captured - scanned)[axes[0]] if scanned else 1
    return steps * branches(node)
