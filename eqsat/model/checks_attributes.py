"""Attributes outside of what the specification allows: words that name nothing, axes beyond the rank, sizes of zero.

See :mod:`eqsat.model.checks`; importing this module makes its checks known there. ONNX's schemas do not know the
allowed words, and its inference looks at some axes only.
"""

from __future__ import annotations

import numpy as np

from eqsat.model.checks import Mismatch, Operands, normal_axis, register_checks, show
from eqsat.model.windows import AUTO_PAD
from eqsat.schema.types import OpKey

# ---- words ---------------------------------------------------------------------------------------

_WINDOWS = "Conv ConvInteger ConvTranspose DeformConv QLinearConv AveragePool MaxPool LpPool"
_DIRECTION = ("forward", "reverse", "bidirectional")
_SCATTER = ("none", "add", "mul", "max", "min")
_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    **{name: {"auto_pad": AUTO_PAD} for name in _WINDOWS.split()},
    **{name: {"direction": _DIRECTION} for name in ("RNN", "GRU", "LSTM")},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "nearest", "cubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "NegativeLogLikelihoodLoss": {"reduction": ("none", "sum", "mean")},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "coordinate_transformation_mode": (
            *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
            "tf_crop_and_resize",
        ),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    },
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "ScatterElements": {"reduction": _SCATTER},
    "ScatterND": {"reduction": _SCATTER},
    "SoftmaxCrossEntropyLoss": {"reduction": ("none", "sum", "mean")},
    "StringNormalizer": {"case_change_action": ("NONE", "LOWER", "UPPER")},
    "TfIdfVectorizer": {"mode": ("TF", "IDF", "TFIDF")},
}


def _words(node: Operands) -> None:
    for name, allowed in _WORDS[node.op.name].items():
        word = node.attr(name)
        if isinstance(word, str) and word not in allowed:
            raise Mismatch(f"{name} is {word!r}, not {', '.join(allowed[:-1])} or {allowed[-1]}")


# ---- axes ----------------------------------------------------------------------------------------

_ONE_AXIS = "ArgMax ArgMin Compress Hardmax LayerNormalization LogSoftmax LpNormalization RMSNormalization Softmax TopK"
_REDUCE = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
# Operator -> position of the input that lists axes. Unsqueeze counts them in the result.
_LISTED = {**{f"Reduce{kind}": 1 for kind in _REDUCE.split()}, "Pad": 3, "Slice": 3, "Squeeze": 1, "Unsqueeze": 1}


def _axis(node: Operands) -> None:
    rank, axis = node.rank(0), node.attr("axis")
    if rank is not None and isinstance(axis, int):
        normal_axis(axis, rank)


def _axes(node: Operands) -> None:
    rank, axes = node.rank(0), node.value(_LISTED[node.op.name])
    if rank is None or axes is None:
        return
    _distinct([int(a) for a in np.ravel(axes)], rank + (axes.size if node.op.name == "Unsqueeze" else 0))


def _listed_in_attribute(node: Operands) -> None:
    rank, axes = node.rank(0), node.attr("axes")
    if rank is not None and isinstance(axes, tuple):
        _distinct([int(a) for a in axes], rank)


def _distinct(axes: list[int], rank: int) -> None:
    counted = [normal_axis(a, rank) for a in axes]
    if len(set(counted)) != len(counted):
        raise Mismatch(f"the axes {axes} name one of the {rank} axes twice")


def _reverse_sequence(node: Operands) -> None:
    time, batch = node.int_attr("time_axis"), node.int_attr("batch_axis", 1)
    if {time, batch} != {0, 1}:
        raise Mismatch(f"time_axis {time} and batch_axis {batch} are not 0 and 1")


# ---- numbers -------------------------------------------------------------------------------------

_POSITIVE = {
    "DepthToSpace": ("blocksize",),
    "GroupNormalization": ("num_groups",),
    "LRN": ("size",),
    "LpPool": ("p",),
    "MaxUnpool": ("kernel_shape", "strides"),
    "RoiAlign": ("output_height", "output_width"),
    "SpaceToDepth": ("blocksize",),
}


def _positive(node: Operands) -> None:
    for name in _POSITIVE[node.op.name]:
        value = node.attr(name)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(v, int) and v < 1 for v in numbers):
            raise Mismatch(f"{name} is {list(numbers) if isinstance(value, tuple) else value}, which is not positive")


def _depth_to_space(node: Operands) -> None:
    block, channels = node.int_attr("blocksize", 1), node.dim(0, 1)
    if channels is not None and channels % (block * block):
        raise Mismatch(f"{channels} channels do not divide into blocks of {block} x {block}")


def _space_to_depth(node: Operands) -> None:
    block = node.int_attr("blocksize", 1)
    for axis in (2, 3):
        size = node.dim(0, axis)
        if size is not None and size % block:
            raise Mismatch(f"{size} elements in axis {axis} do not divide into blocks of {block}")


def _norm(node: Operands) -> None:
    if node.int_attr("p", 2) not in (1, 2):
        raise Mismatch(f"p is {node.int_attr('p', 2)}, not 1 or 2")


def _mod(node: Operands) -> None:
    x = node.inputs[0]
    if x is not None and x.dtype.is_floating_point() and not node.int_attr("fmod"):
        raise Mismatch("fmod must be 1 for floats")


# ---- inputs that are parameters ------------------------------------------------------------------


def _slice(node: Operands) -> None:
    sizes = {i: node.dim(i, 0) for i in range(1, 5) if node.dim(i, 0) is not None}
    if len(set(sizes.values())) > 1:
        raise Mismatch(f"starts, ends, axes and steps differ in length: {', '.join(map(str, sizes.values()))}")
    steps = node.value(4)
    if steps is not None and np.any(steps == 0):
        raise Mismatch("a step is 0")


def _range(node: Operands) -> None:
    delta = node.value(2)
    if delta is not None and np.any(delta == 0):
        raise Mismatch("the step is 0")


def _resize(node: Operands) -> None:
    scales, sizes = node.value(2), node.value(3)
    if scales is not None and np.any(~(scales > 0)):
        raise Mismatch(f"the scales {scales.tolist()} are not all positive")
    if sizes is not None and np.any(sizes < 0):
        raise Mismatch(f"the sizes {sizes.tolist()} are not all positive")


def _pad(node: Operands) -> None:
    pads, axes, shape = node.value(1), node.value(3), node.shape(0)
    if pads is None or shape is None or node.attr("mode", "constant") == "constant" or 2 * len(shape) != pads.size:
        return
    if axes is None and node.shape(3) is None:
        for axis, size in enumerate(shape):
            if size == 0 and (pads[axis] > 0 or pads[axis + len(shape)] > 0):
                raise Mismatch(f"there is nothing to repeat in axis {axis} of {show(shape)}")


def _indices_along(node: Operands) -> None:
    rank, indices = node.rank(0), node.value(1)
    if rank is None or indices is None or not indices.size:
        return
    _within(indices, node.dim(0, normal_axis(node.int_attr("axis"), rank)))


def _indices_nd(node: Operands) -> None:
    indices, batch = node.value(1), node.int_attr("batch_dims")
    if indices is not None and indices.size and indices.ndim:
        for k in range(indices.shape[-1]):
            _within(indices[..., k], node.dim(0, batch + k))


def _within(indices: np.ndarray, size: int | None) -> None:
    low, high = int(indices.min()), int(indices.max())
    if size is not None and (low < -size or high >= size):
        raise Mismatch(f"index {low if low < -size else high} is not within {size} elements")


register_checks({OpKey("", name): _words for name in _WORDS})
register_checks({OpKey("", name): _axis for name in _ONE_AXIS.split()})
register_checks({OpKey("", name): _axes for name in _LISTED})
register_checks({OpKey("", name): _listed_in_attribute for name in ("CenterCropPad", "MeanVarianceNormalization")})
register_checks({OpKey("", name): _positive for name in _POSITIVE})
register_checks(
    {
        OpKey("", "DepthToSpace"): _depth_to_space,
        OpKey("", "GatherElements"): _indices_along,
        OpKey("", "GatherND"): _indices_nd,
        OpKey("", "LpNormalization"): _norm,
        OpKey("", "Mod"): _mod,
        OpKey("", "Pad"): _pad,
        OpKey("", "Range"): _range,
        OpKey("", "Resize"): _resize,
        OpKey("", "ReverseSequence"): _reverse_sequence,
        OpKey("", "ScatterElements"): _indices_along,
        OpKey("", "ScatterND"): _indices_nd,
        OpKey("", "Slice"): _slice,
        OpKey("", "SpaceToDepth"): _space_to_depth,
    }
)
