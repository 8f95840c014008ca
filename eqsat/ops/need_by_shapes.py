"""Needs of windows, products and lookups, whose operands' shapes determine the size of the result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.ops.need import SLOW, GivenOperands, Need, NeedRule, broadcast_size, made, numbers, size_of
from eqsat.ops.windows import integers, windows
from eqsat.schema.types import Attributes


def _slide(attrs: Attributes, shape: Sequence[int], kernel: Sequence[int], filters: int, depth: int) -> Need:
    """Windows over a padded array.

    Args:
        attrs: Strides, dilations, pads and the like.
        shape: Shape of the input.
        kernel: Sizes of a window.
        filters: Channels of the result.
        depth: Channels that one of them reads; 0 for a pooling.
    """
    spatial = tuple(shape[2:])
    at = windows(attrs, spatial, tuple(kernel), ceil=bool(attrs.get("ceil_mode", 0)))
    rows = math.prod(shape[:2])
    reach = [
        max(size + max(b, 0) + max(e, 0), (n - 1) * s + x)
        for size, b, e, n, s, x in zip(spatial, at.begin, at.end, at.out, at.strides, at.extent, strict=True)
    ]
    area = math.prod(at.out)
    result = shape[0] * filters * area
    # The matrix of windows is gathered in blocks of at least one row of the result.
    row = max(1, depth) * math.prod(kernel) * (area // at.out[0] if at.out and at.out[0] else 1)
    counted = sum(n * k for n, k in zip(at.out, kernel, strict=True))
    taps = result * math.prod(kernel)
    return Need(rows * math.prod(reach) + result + (row if depth else counted), taps * depth if depth else SLOW * taps)


def need_convolution(x_at: int, w_at: int) -> NeedRule:
    def need(attrs: Attributes, inputs: GivenOperands) -> Need:
        x, w = inputs[x_at].shape, inputs[w_at].shape
        return _slide(attrs, x, w[2:], w[0], w[1])

    return need


def need_pooling(attrs: Attributes, inputs: GivenOperands) -> Need:
    shape = inputs[0].shape
    return _slide(attrs, shape, integers(attrs, "kernel_shape", ()), shape[1], 0)


def need_transposed_convolution(attrs: Attributes, inputs: GivenOperands) -> Need:
    x, w = inputs[0].shape, inputs[1].shape
    rank = len(x) - 2
    strides, dilations = integers(attrs, "strides", (1,) * rank), integers(attrs, "dilations", (1,) * rank)
    extra = [*integers(attrs, "output_padding", (0,) * rank), *integers(attrs, "output_shape", ())]
    full = [
        max((d - 1) * s + (k - 1) * t + 1 + max((0, *extra)), 0)
        for d, s, k, t in zip(x[2:], strides, w[2:], dilations, strict=True)
    ]
    filters = w[1] * attrs.get("group", 1)
    products = x[0] * filters * math.prod(w[2:]) * math.prod(x[2:])
    return Need(products + 2 * x[0] * filters * math.prod(full), products * (SLOW + w[0]))


# ---- products and lookups ------------------------------------------------------------------------


def need_broadcasting(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(broadcast_size([x.shape for x in inputs if x is not None]))


def need_product(b_at: int) -> NeedRule:
    """A matrix product with broadcasting; in the fused form either may be transposed."""

    def need(attrs: Attributes, inputs: GivenOperands) -> Need:
        a, b = list(inputs[0].shape), list(inputs[b_at].shape)
        if not a or not b:
            return Need(0, 0)
        depth = a[-2] if attrs.get("transA") and len(a) > 1 else a[-1]
        width = 1 if len(b) < 2 else b[-2] if attrs.get("transB") else b[-1]
        height = 1 if len(a) < 2 else a[-1] if attrs.get("transA") else a[-2]
        size = broadcast_size([a[:-2], b[:-2]]) * height * width
        return Need(size, size * depth)

    return need


def need_distances(attrs: Attributes, inputs: GivenOperands) -> Need:
    a, b = inputs[0].shape, inputs[1].shape
    return Need(4 * a[0] * b[0] + size_of(inputs[0]) + size_of(inputs[1]), a[0] * b[0] * (a[1] + SLOW))


def need_einsum(attrs: Attributes, inputs: GivenOperands) -> Need:
    """The largest array on the way of a pairwise summation, and the product of all ranges as its operations."""
    equation = str(attrs.get("equation", "")).replace(" ", "")
    left, _, right = equation.partition("->")
    sizes: dict[str, int] = {}
    terms = left.split(",")
    hidden = 1
    for term, x in zip(terms, inputs, strict=True):
        labels = term.replace("...", "")
        spare = len(x.shape) - len(labels)
        before = len(term.split("...")[0]) if "..." in term else 0
        dims = [*x.shape[:before], *x.shape[before + spare :]] if "..." in term else list(x.shape)
        if "..." in term:
            hidden = max(hidden, math.prod(x.shape[before : before + spare]))
        for label, d in zip(labels, dims, strict=True):
            sizes[label] = max(sizes.get(label, 1), d)
    operations, largest = 0, 0
    kept = set(terms[0].replace("...", ""))
    result = set(right.replace("...", "")) if "->" in equation else {c for c in sizes if left.count(c) == 1}
    for i, term in enumerate(terms[1:], start=1):
        joined = kept | set(term.replace("...", ""))
        operations += hidden * math.prod(sizes[c] for c in joined)
        kept = joined & result.union(*(set(t.replace("...", "")) for t in terms[i + 1 :]))
        largest = max(largest, hidden * math.prod(sizes[c] for c in kept))
    if len(terms) == 1:
        operations = hidden * math.prod(sizes.values())
    size = hidden * math.prod(sizes[c] for c in result)
    return Need(size + largest, operations if len(terms) > 1 else SLOW * operations)


def need_gather(attrs: Attributes, inputs: GivenOperands) -> Need:
    x, indices = inputs[0].shape, inputs[1]
    axis = attrs.get("axis", 0)
    return made(math.prod(x) // x[axis] * size_of(indices) if x and x[axis] else 0)


def need_gather_nd(attrs: Attributes, inputs: GivenOperands) -> Need:
    x, indices = list(inputs[0].shape), list(inputs[1].shape)
    return made(math.prod(indices[:-1]) * math.prod(x[attrs.get("batch_dims", 0) + indices[-1] :]))


def need_attention(attrs: Attributes, inputs: GivenOperands) -> Need:
    q, k = inputs[0].shape, inputs[1].shape
    past = inputs[4].shape[-2] if len(inputs) > 4 and inputs[4] is not None else 0
    heads = q[1] if len(q) == 4 else attrs.get("q_num_heads", 1)
    scores = q[0] * heads * q[-2] * (k[-2] + past)
    depth = q[-1] if len(q) == 4 else -(-q[-1] // max(heads, 1))
    return Need(4 * scores + 2 * size_of(inputs[0]), scores * (2 * depth + SLOW))


def need_contrib_attention(attrs: Attributes, inputs: GivenOperands) -> Need:
    """Attention of ``com.microsoft``, whose operands have three axes; the last operand of more axes holds the past."""
    batch, rows, width = inputs[0].shape[:3]
    keys = rows + max((x.shape[-2] for x in inputs[1:] if x is not None and len(x.shape) >= 3), default=0)
    scores = batch * max(attrs.get("num_heads", 1), 1) * rows * keys
    sizes = sum(size_of(x) for x in inputs)
    columns = inputs[1].shape[-1] if len(inputs) > 1 and inputs[1] is not None else width
    return Need(
        4 * scores + 4 * batch * rows * columns + 4 * sizes,
        batch * rows * width * (columns + 2 * keys) + SLOW * (scores + sizes),
    )


def need_grouped_attention(attrs: Attributes, inputs: GivenOperands) -> Need:
    """The number of tokens, a value, is the size of the cache that is returned."""
    batch, rows, width = inputs[0].shape
    past = inputs[3].shape[2] if len(inputs) > 3 and inputs[3] is not None else 0
    room = max(past, rows, *numbers(inputs[6]), *(n + 1 for n in numbers(inputs[5])))
    size = batch * room * width
    return Need(4 * size + 4 * size_of(inputs[0]), SLOW * rows * size)


def need_blocks(attrs: Attributes, inputs: GivenOperands) -> Need:
    """A product with weights that are unpacked first."""
    depth, width = max(attrs.get("K", 0), 0), max(attrs.get("N", 0), 0)
    rows = size_of(inputs[0]) // max(depth, 1)
    return Need(8 * depth * width + rows * width, rows * depth * width + SLOW * 8 * depth * width)


def need_gathered_blocks(attrs: Attributes, inputs: GivenOperands) -> Need:
    each = need_gather({"axis": attrs.get("gather_axis", 0)}, inputs)
    return made(8 * each.elements * (8 // max(attrs.get("bits", 4), 1) if inputs[0].dtype.itemsize == 1 else 1))


def need_embedding(table: int) -> NeedRule:
    """A row of a table for each index."""
    return lambda attrs, inputs: made(8 * size_of(inputs[0]) * inputs[table].shape[-1])


def need_suppression(attrs: Attributes, inputs: GivenOperands) -> Need:
    batches, classes, boxes = inputs[1].shape
    return Need(batches * classes * boxes * 8, SLOW * batches * classes * boxes * boxes)


def need_non_zero(attrs: Attributes, inputs: GivenOperands) -> Need:
    return made(size_of(inputs[0]) * max(len(inputs[0].shape), 1))


def need_grid_sample(attrs: Attributes, inputs: GivenOperands) -> Need:
    x, grid = inputs[0].shape, inputs[1].shape
    return Need(8 * (size := x[0] * x[1] * math.prod(grid[1:-1])), SLOW * 16 * size)


def need_recurrent(gates: int) -> NeedRule:
    def need(attrs: Attributes, inputs: GivenOperands) -> Need:
        x, w = inputs[0].shape, inputs[1].shape
        hidden = w[1] // gates
        size = x[0] * x[1] * w[0] * hidden
        return Need(2 * size * (gates + 1), size * gates * (hidden + x[-1] + SLOW))

    return need


def need_transposed_recurrent(attrs: Attributes, inputs: GivenOperands) -> Need:
    """Weights are (directions, features, gates * hidden)."""
    x, (directions, hidden, columns) = inputs[0].shape, inputs[2].shape
    size = x[0] * x[1] * directions * columns
    return Need(4 * size, size * (hidden + x[-1] + SLOW))


def need_determinant(attrs: Attributes, inputs: GivenOperands) -> Need:
    shape = inputs[0].shape
    return Need(size_of(inputs[0]), SLOW * size_of(inputs[0]) * (shape[-1] if shape else 1))
