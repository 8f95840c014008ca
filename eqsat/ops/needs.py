"""What an operator needs before it is computed: the elements that it allocates, and its operations.

A few operators make much of little: an Expand of one number, a product of two vectors, a window in a sea of padding.
Each has a function, which looks at shapes and parameters alone and costs microseconds; all others need no more than
some times their operands. Sizes are Python's integers, so that nothing overflows.
"""

from __future__ import annotations

from eqsat.ops import need_by_parameters as by_parameters
from eqsat.ops import need_by_shapes as by_shapes
from eqsat.ops.need import SLOW, Attributes, Need, Operands, Rule, size_of
from eqsat.schema.types import OpKey


def need_of(op: OpKey, attrs: Attributes, inputs: Operands) -> Need:
    """What an operator needs on these operands; of those without a function here, their elements.

    Raises:
        Exception: The inputs do not fit together; evaluating them says how.
    """
    found = _NEEDS.get(op.name)
    if found is not None and (not op.domain or op.name in _ELSEWHERE):
        return found(attrs, inputs)
    size = sum(size_of(x) for x in inputs)
    return Need(size, SLOW * size)


def is_parametric(op: OpKey) -> bool:
    """Whether a parameter sets the size, however small the operands are."""
    return op.name in _PARAMETRIC and (not op.domain or op.name in _ELSEWHERE)


def product_of_sizes(inputs: Operands) -> int:
    """What broadcasting, products and lookups of these operands can make at most."""
    size = 1
    for x in inputs:
        if x is not None:
            size *= max(size_of(x), 1)
    return size


_PARAMETRIC: dict[str, Rule] = {
    "AffineGrid": by_parameters.need_affine_grid,
    "AveragePool": by_shapes.need_pooling,
    "BlackmanWindow": by_parameters.need_window_function,
    "CenterCropPad": by_parameters.need_center_crop_pad,
    "Col2Im": by_parameters.need_col2im,
    "ConstantOfShape": by_parameters.need_constant_of_shape,
    "Conv": by_shapes.need_convolution(0, 1),
    "ConvInteger": by_shapes.need_convolution(0, 1),
    "ConvTranspose": by_shapes.need_transposed_convolution,
    "DFT": by_parameters.need_fourier,
    "Expand": by_parameters.need_expand,
    "FusedConv": by_shapes.need_convolution(0, 1),
    "HammingWindow": by_parameters.need_window_function,
    "HannWindow": by_parameters.need_window_function,
    "LpPool": by_shapes.need_pooling,
    "MaxPool": by_shapes.need_pooling,
    "MaxRoiPool": by_parameters.need_max_roi_pool,
    "MaxUnpool": by_parameters.need_max_unpool,
    "MelWeightMatrix": by_parameters.need_mel_weights,
    "Multinomial": by_parameters.need_multinomial,
    "OneHot": by_parameters.need_one_hot,
    "Pad": by_parameters.need_pad,
    "QLinearConv": by_shapes.need_convolution(0, 3),
    "RandomNormal": by_parameters.need_of_shape_attribute,
    "RandomUniform": by_parameters.need_of_shape_attribute,
    "Range": by_parameters.need_range,
    "Resize": by_parameters.need_resize,
    "RoiAlign": by_parameters.need_roi_align,
    "STFT": by_parameters.need_short_fourier,
    "SplitToSequence": by_parameters.need_split_to_sequence,
    "StringConcat": by_parameters.need_string_concat,
    "Tile": by_parameters.need_tile,
    "Upsample": by_parameters.need_resize,
}
"""Operators with a parameter that says how much there is to do."""

_BROADCASTING = (
    *("Add", "And", "BiasAdd", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
    *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "QLinearAdd"),
    *("QLinearMul", "QLinearWhere", "Sub", "Sum", "Where", "Xor"),
)

_NEEDS: dict[str, Rule] = {
    **_PARAMETRIC,
    **dict.fromkeys(
        (
            *("Add", "And", "BiasAdd", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
            *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow"),
            *("QLinearAdd", "QLinearMul", "QLinearWhere", "Sub", "Sum", "Where", "Xor"),
        ),
        by_shapes.need_broadcasting,
    ),
    "Attention": by_shapes.need_attention,
    "Det": by_shapes.need_determinant,
    "DynamicQuantizeMatMul": by_shapes.need_product(1),
    "Einsum": by_shapes.need_einsum,
    "FusedGemm": by_shapes.need_product(1),
    "FusedMatMul": by_shapes.need_product(1),
    "GRU": by_shapes.need_recurrent(3),
    "Gather": by_shapes.need_gather,
    "GatherND": by_shapes.need_gather_nd,
    "Gemm": by_shapes.need_product(1),
    "GridSample": by_shapes.need_grid_sample,
    "LSTM": by_shapes.need_recurrent(4),
    "MatMul": by_shapes.need_product(1),
    "MatMulInteger": by_shapes.need_product(1),
    "MatMulIntegerToFloat": by_shapes.need_product(1),
    "NonMaxSuppression": by_shapes.need_suppression,
    "NonZero": by_shapes.need_non_zero,
    "QGemm": by_shapes.need_product(3),
    "QLinearMatMul": by_shapes.need_product(3),
    "RNN": by_shapes.need_recurrent(1),
    "TransposeMatMul": by_shapes.need_product(1),
}

_ELSEWHERE = frozenset({
    "BiasAdd", "DynamicQuantizeMatMul", "FusedConv", "FusedGemm", "FusedMatMul", "MatMulIntegerToFloat", "QGemm",
    "QLinearAdd", "QLinearConv", "QLinearMul", "QLinearWhere", "TransposeMatMul",
})  # fmt: skip
"""Those of other domains."""
