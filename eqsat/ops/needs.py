"""What an operator needs before it is computed: the elements that it allocates, and its operations.

A few operators make much of little: an Expand of one number, a product of two vectors, a window in a sea of padding. Each
has a function here, which looks at shapes and parameters alone and costs microseconds; all others need no more than some
times their operands. Sizes are Python's integers, so that nothing overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.model.types import OpKey
from eqsat.ops.kernels.windows import integers, windows


class Need(NamedTuple):
    """What computing one operator takes.

    Attributes:
        elements: Of its results, and of what it allocates on the way.
        operations: As fast as those of a matrix product; slower ones count more than once.
    """

    elements: int
    operations: int


SLOW = 16
"""What one operation outside of a matrix product counts."""

Attributes = Mapping[str, Any]
Operands = Sequence[Any]
"""Arrays, or whatever has a shape; contents are asked of those inputs only that are shapes, counts and the like."""
_Function = Callable[[Attributes, Operands], Need]


def need_of(op: OpKey, attrs: Attributes, inputs: Operands) -> Need:
    """What an operator needs on these operands; of those without a function here, their elements.

    Raises:
        Exception: The inputs do not fit together; evaluating them says how.
    """
    found = _NEEDS.get(op.name)
    if found is not None and (not op.domain or op.name in _ELSEWHERE):
        return found(attrs, inputs)
    size = sum(_size(x) for x in inputs)
    return Need(size, SLOW * size)


def is_parametric(op: OpKey) -> bool:
    """Whether a parameter sets the size, however small the operands are."""
    return op.name in _PARAMETRIC and (not op.domain or op.name in _ELSEWHERE)


def product_of_sizes(inputs: Operands) -> int:
    """What broadcasting, products and lookups of these operands can make at most."""
    size = 1
    for x in inputs:
        if x is not None:
            size *= max(_size(x), 1)
    return size


def _size(x: Any) -> int:
    if x is None:
        return 0
    if isinstance(x, list):
        return sum(_size(v) for v in x)
    return math.prod(x.shape)


def _numbers(x: Any) -> list[int]:
    return [int(v) for v in np.asarray(x).reshape(-1).tolist()]


def _made(size: int) -> Need:
    return Need(size, SLOW * size)


# ---- sizes given by parameters -------------------------------------------------------------------


def _expand(attrs: Attributes, inputs: Operands) -> Need:
    return _made(_broadcast([inputs[0].shape, _numbers(inputs[1])]))


def _broadcast(shapes: Sequence[Sequence[int]]) -> int:
    """Elements of the shape that several broadcast to, as far as they fit."""
    rank = max((len(s) for s in shapes), default=0)
    size = 1
    for i in range(1, rank + 1):
        dims = [s[-i] for s in shapes if len(s) >= i]
        size *= 0 if 0 in dims else max(dims)
    return size


def _tile(attrs: Attributes, inputs: Operands) -> Need:
    x = inputs[0]
    if len(inputs) > 2:  # before version 6: a count and an axis
        return _made(_size(x) * max(_numbers(inputs[1])[0], 0))
    return _made(_size(x) * math.prod(max(n, 0) for n in _numbers(inputs[1])))


def _constant_of_shape(attrs: Attributes, inputs: Operands) -> Need:
    return _made(math.prod(max(d, 0) for d in _numbers(inputs[0])))


def _range(attrs: Attributes, inputs: Operands) -> Need:
    start, limit, delta = (np.asarray(x).reshape(-1)[0].item() for x in inputs[:3])
    count = (limit - start) / delta if delta else math.inf
    return _made(max(math.ceil(count), 0) if math.isfinite(count) else 1 << 62)


def _pad(attrs: Attributes, inputs: Operands) -> Need:
    shape = list(inputs[0].shape)
    given = attrs.get("pads") or attrs.get("paddings")
    pads = list(given) if given else _numbers(inputs[1])
    axes = _numbers(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else list(range(len(shape)))
    for k, axis in enumerate(axes):
        shape[axis] += pads[k] + pads[k + len(axes)]
    return _made(math.prod(max(d, 0) for d in shape))


def _resize(attrs: Attributes, inputs: Operands) -> Need:
    shape = list(inputs[0].shape)
    axes = [a % len(shape) for a in attrs.get("axes") or range(len(shape))]
    sizes = inputs[3] if len(inputs) > 3 else None
    scales = inputs[2] if len(inputs) > 2 else None
    factors: Sequence[float] = attrs.get("scales") or ()
    if sizes is not None and _size(sizes):
        wanted = _numbers(sizes)
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [w / shape[a] for w, a in zip(wanted, axes, strict=True)]
            wanted = [math.ceil(max(ratios) * shape[a]) for a in axes]
    else:
        if scales is None or not _size(scales):
            scales = inputs[1] if len(inputs) == 2 else scales
        factors = factors or [float(f) for f in np.asarray(scales).reshape(-1).tolist()]
        if not all(math.isfinite(f) for f in factors):
            return _made(1 << 62)
        wanted = [math.ceil(f * shape[a]) for f, a in zip(factors, axes, strict=True)]
    for axis, size in zip(axes, wanted, strict=True):
        shape[axis] = max(size, 0)
    # One axis after the other; antialiasing has a matrix for each.
    matrices = sum(n * m for n, m in zip(inputs[0].shape, shape, strict=True)) if attrs.get("antialias") else 0
    return _made(2 * math.prod(shape) + matrices)


def _one_hot(attrs: Attributes, inputs: Operands) -> Need:
    return _made(_size(inputs[0]) * max(_numbers(inputs[1])[0], 0))


def _of_shape_attribute(attrs: Attributes, inputs: Operands) -> Need:
    return _made(math.prod(max(d, 0) for d in attrs.get("shape") or ()))


def _multinomial(attrs: Attributes, inputs: Operands) -> Need:
    return _made(_size(inputs[0]) + inputs[0].shape[0] * max(attrs.get("sample_size", 1), 0))


def _window_function(attrs: Attributes, inputs: Operands) -> Need:
    return _made(max(_numbers(inputs[0])[0], 0))


def _mel_weights(attrs: Attributes, inputs: Operands) -> Need:
    return _made(max(_numbers(inputs[0])[0], 0) * max(_numbers(inputs[1])[0] // 2 + 1, 0))


def _affine_grid(attrs: Attributes, inputs: Operands) -> Need:
    return _made(4 * math.prod(max(d, 0) for d in _numbers(inputs[1])))


def _center_crop_pad(attrs: Attributes, inputs: Operands) -> Need:
    shape = list(inputs[0].shape)
    axes = attrs.get("axes") or range(len(shape))
    for axis, size in zip(axes, _numbers(inputs[1]), strict=False):
        shape[axis] = max(size, 0)
    return _made(math.prod(shape))


def _col2im(attrs: Attributes, inputs: Operands) -> Need:
    x, image = inputs[0], _numbers(inputs[1])
    pads = sum(abs(p) for p in attrs.get("pads") or ())
    return _made(_size(x) + math.prod(x.shape[:2]) * math.prod(max(d, 0) + pads for d in image))


def _fourier(attrs: Attributes, inputs: Operands) -> Need:
    x = inputs[0]
    length = _numbers(inputs[1])[0] if len(inputs) > 1 and inputs[1] is not None else 0
    axis = _numbers(inputs[2])[0] if len(inputs) > 2 and inputs[2] is not None else attrs.get("axis", 1)
    size = 2 * _size(x)
    if length > 0 and x.shape[axis]:
        size = size // x.shape[axis] * length + 2 * _size(x)
    return Need(2 * size, SLOW * 64 * size)


def _short_fourier(attrs: Attributes, inputs: Operands) -> Need:
    signal, step = inputs[0], max(_numbers(inputs[1])[0], 1)
    window = inputs[2] if len(inputs) > 2 else None
    length = inputs[3] if len(inputs) > 3 else None
    frame = _size(window) if window is not None else _numbers(length)[0]
    size = 2 * _size(signal) * max(frame, 1) // step + _size(signal)
    return Need(size, SLOW * 64 * size)


def _roi_align(attrs: Attributes, inputs: Operands) -> Need:
    size = inputs[1].shape[0] * inputs[0].shape[1]
    size *= max(attrs.get("output_height", 1), 1) * max(attrs.get("output_width", 1), 1)
    return Need(size, SLOW * 4 * size * max(attrs.get("sampling_ratio", 0), 1) ** 2)


def _max_roi_pool(attrs: Attributes, inputs: Operands) -> Need:
    return _made(inputs[1].shape[0] * inputs[0].shape[1] * math.prod(attrs.get("pooled_shape") or ()))


def _max_unpool(attrs: Attributes, inputs: Operands) -> Need:
    shape = inputs[0].shape
    size = math.prod(shape[:2])
    strides, kernel = integers(attrs, "strides", (1,) * (len(shape) - 2)), integers(attrs, "kernel_shape", ())
    for d, s, k in zip(shape[2:], strides, kernel, strict=True):
        size *= max((d - 1) * s + k, 0)
    if len(inputs) > 2 and inputs[2] is not None:
        size += math.prod(max(d, 0) for d in _numbers(inputs[2]))
    return _made(size)


def _split_to_sequence(attrs: Attributes, inputs: Operands) -> Need:
    x = inputs[0]
    pieces = max(x.shape[attrs.get("axis", 0)], 1) if len(x.shape) else 1
    if len(inputs) > 1 and inputs[1] is not None and not inputs[1].shape:
        pieces = -(-pieces // max(_numbers(inputs[1])[0], 1))
    return _made(_size(x) + 16 * pieces)


# ---- windows -------------------------------------------------------------------------------------


def _slide(attrs: Attributes, shape: Sequence[int], kernel: Sequence[int], filters: int, depth: int) -> Need:
    """Windows over a padded array.

    Args:
        attrs: With strides, dilations, pads and the like.
        shape: Of the input.
        kernel: Of a window.
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
    return Need(
        rows * math.prod(reach) + result + (row if depth else counted), taps * depth if depth else SLOW * taps
    )


def _convolution(x_at: int, w_at: int) -> _Function:
    def need(attrs: Attributes, inputs: Operands) -> Need:
        x, w = inputs[x_at].shape, inputs[w_at].shape
        return _slide(attrs, x, w[2:], w[0], w[1])

    return need


def _pooling(attrs: Attributes, inputs: Operands) -> Need:
    shape = inputs[0].shape
    return _slide(attrs, shape, integers(attrs, "kernel_shape", ()), shape[1], 0)


def _transposed_convolution(attrs: Attributes, inputs: Operands) -> Need:
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


def _broadcasting(attrs: Attributes, inputs: Operands) -> Need:
    return _made(_broadcast([x.shape for x in inputs if x is not None]))


def _product(b_at: int) -> _Function:
    """A matrix product with broadcasting; in the fused form either may be transposed."""

    def need(attrs: Attributes, inputs: Operands) -> Need:
        a, b = tuple(inputs[0].shape), tuple(inputs[b_at].shape)
        if not a or not b:
            return Need(0, 0)
        depth = a[-2] if attrs.get("transA") and len(a) > 1 else a[-1]
        width = 1 if len(b) < 2 else b[-2] if attrs.get("transB") else b[-1]
        height = 1 if len(a) < 2 else a[-1] if attrs.get("transA") else a[-2]
        size = _broadcast([a[:-2], b[:-2]]) * height * width
        return Need(size, size * depth)

    return need


def _einsum(attrs: Attributes, inputs: Operands) -> Need:
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


def _gather(attrs: Attributes, inputs: Operands) -> Need:
    x, indices = inputs[0].shape, inputs[1]
    axis = attrs.get("axis", 0)
    return _made(math.prod(x) // x[axis] * _size(indices) if x and x[axis] else 0)


def _gather_nd(attrs: Attributes, inputs: Operands) -> Need:
    x, indices = inputs[0].shape, inputs[1].shape
    return _made(math.prod(indices[:-1]) * math.prod(x[attrs.get("batch_dims", 0) + indices[-1] :]))


def _attention(attrs: Attributes, inputs: Operands) -> Need:
    q, k = inputs[0].shape, inputs[1].shape
    past = inputs[4].shape[-2] if len(inputs) > 4 and inputs[4] is not None else 0
    heads = q[1] if len(q) == 4 else attrs.get("q_num_heads", 1)
    scores = q[0] * heads * q[-2] * (k[-2] + past)
    depth = q[-1] if len(q) == 4 else -(-q[-1] // max(heads, 1))
    return Need(4 * scores + 2 * _size(inputs[0]), scores * (2 * depth + SLOW))


def _suppression(attrs: Attributes, inputs: Operands) -> Need:
    batches, classes, boxes = inputs[1].shape
    return Need(batches * classes * boxes * 8, SLOW * batches * classes * boxes * boxes)


def _non_zero(attrs: Attributes, inputs: Operands) -> Need:
    return _made(_size(inputs[0]) * max(len(inputs[0].shape), 1))


def _grid_sample(attrs: Attributes, inputs: Operands) -> Need:
    x, grid = inputs[0].shape, inputs[1].shape
    return Need(8 * (size := x[0] * x[1] * math.prod(grid[1:-1])), SLOW * 16 * size)


def _recurrent(gates: int) -> _Function:
    def need(attrs: Attributes, inputs: Operands) -> Need:
        x, w = inputs[0].shape, inputs[1].shape
        hidden = w[1] // gates
        size = x[0] * x[1] * w[0] * hidden
        return Need(2 * size * (gates + 1), size * gates * (hidden + x[-1] + SLOW))

    return need


def _determinant(attrs: Attributes, inputs: Operands) -> Need:
    shape = inputs[0].shape
    return Need(_size(inputs[0]), SLOW * _size(inputs[0]) * (shape[-1] if shape else 1))


def _string_concat(attrs: Attributes, inputs: Operands) -> Need:
    """Characters, not elements: strings grow when there are few of them."""
    size = _broadcast([x.shape for x in inputs])
    return _made(size * (8 + sum(_longest(x) for x in inputs) // 8))


def _longest(x: Any) -> int:
    return max((len(s) for s in np.asarray(x).reshape(-1).tolist()), default=0) if _size(x) else 0


# ---- the table -----------------------------------------------------------------------------------

_PARAMETRIC: dict[str, _Function] = {
    "AffineGrid": _affine_grid,
    "AveragePool": _pooling,
    "BlackmanWindow": _window_function,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _convolution(0, 1),
    "ConvInteger": _convolution(0, 1),
    "ConvTranspose": _transposed_convolution,
    "DFT": _fourier,
    "Expand": _expand,
    "FusedConv": _convolution(0, 1),
    "HammingWindow": _window_function,
    "HannWindow": _window_function,
    "LpPool": _pooling,
    "MaxPool": _pooling,
    "MaxRoiPool": _max_roi_pool,
    "MaxUnpool": _max_unpool,
    "MelWeightMatrix": _mel_weights,
    "Multinomial": _multinomial,
    "OneHot": _one_hot,
    "Pad": _pad,
    "QLinearConv": _convolution(0, 3),
    "RandomNormal": _of_shape_attribute,
    "RandomUniform": _of_shape_attribute,
    "Range": _range,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "STFT": _short_fourier,
    "SplitToSequence": _split_to_sequence,
    "StringConcat": _string_concat,
    "Tile": _tile,
    "Upsample": _resize,
}
"""Operators with a parameter that says how much there is to do."""

_NEEDS: dict[str, _Function] = {
    **_PARAMETRIC,
    **{
        name: _broadcasting
        for name in (
            *("Add", "And", "BiasAdd", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
            *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow"),
            *("QLinearAdd", "QLinearMul", "QLinearWhere", "Sub", "Sum", "Where", "Xor"),
        )
    },
    "Attention": _attention,
    "Det": _determinant,
    "DynamicQuantizeMatMul": _product(1),
    "Einsum": _einsum,
    "FusedGemm": _product(1),
    "FusedMatMul": _product(1),
    "GRU": _recurrent(3),
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _product(1),
    "GridSample": _grid_sample,
    "LSTM": _recurrent(4),
    "MatMul": _product(1),
    "MatMulInteger": _product(1),
    "MatMulIntegerToFloat": _product(1),
    "NonMaxSuppression": _suppression,
    "NonZero": _non_zero,
    "QGemm": _product(3),
    "QLinearMatMul": _product(3),
    "RNN": _recurrent(1),
    "TransposeMatMul": _product(1),
}

_ELSEWHERE = frozenset({
    "BiasAdd", "DynamicQuantizeMatMul", "FusedConv", "FusedGemm", "FusedMatMul", "MatMulIntegerToFloat", "QGemm",
    "QLinearAdd", "QLinearConv", "QLinearMul", "QLinearWhere", "TransposeMatMul",
})  # fmt: skip
"""Those of other domains."""

