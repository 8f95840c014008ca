"""Algebraic and structural properties of operators that their ONNX schemas do not state.

The tables follow the ONNX operator specification at opset 26 and, for ``com.microsoft``, ONNX Runtime's
contrib operator documentation. A test walks every schema, so that an operator added by a newer opset cannot
silently be taken for one without special inputs.
"""

from __future__ import annotations

import onnx.defs
import onnx_ir as ir

from eqsat.schema import opset
from eqsat.schema.functions import function_body
from eqsat.schema.types import Attrs, GraphAttr, OpKey

_COMMUTATIVE = frozenset(
    OpKey("", name)
    for name in (
        "Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min", "Sum", "Mean",
    )
)  # fmt: skip

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

_VALUE_INPUTS: dict[OpKey, tuple[int, ...]] = {
    **{OpKey("", name): (1,) for name in _REDUCTIONS},
    **{
        OpKey("", name): indices
        for name, indices in {
            "AffineGrid": (1,),
            "BlackmanWindow": (0,),
            "CenterCropPad": (1,),
            "Col2Im": (1, 2),
            "Compress": (1,),
            "ConstantOfShape": (0,),
            "DFT": (1, 2),
            "Expand": (1,),
            "HammingWindow": (0,),
            "HannWindow": (0,),
            "If": (0,),
            "ImageDecoder": (0,),
            "Loop": (0, 1),
            "MaxUnpool": (2,),
            "MelWeightMatrix": (0, 1),
            "NonMaxSuppression": (0, 1, 2, 3, 4),
            "NonZero": (0,),
            "OneHot": (1,),
            "Pad": (1, 3),
            "Range": (0, 1, 2),
            "Reshape": (1,),
            "Resize": (1, 2, 3),
            "STFT": (1, 3),
            "SequenceAt": (1,),
            "SequenceErase": (1,),
            "SequenceInsert": (2,),
            "Slice": (1, 2, 3, 4),
            "Split": (1,),
            "SplitToSequence": (1,),
            "Squeeze": (1,),
            "StringNormalizer": (0,),
            "StringSplit": (0,),
            "Tile": (1,),
            "TopK": (1,),
            "Unique": (0,),
            "Unsqueeze": (1,),
            "Upsample": (1,),
        }.items()
    },
    OpKey(opset.MICROSOFT, "CropAndResize"): (3,),
    OpKey(opset.MICROSOFT, "ExpandDims"): (1,),
    OpKey(opset.MICROSOFT, "Pad"): (1, 3),
    OpKey(opset.MICROSOFT, "Unique"): (0,),
}

_RANDOM = frozenset(
    {
        *(
            OpKey("", name)
            for name in (
                "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
            )
        ),
        OpKey(opset.MICROSOFT, "BiasDropout"),
        OpKey(opset.MICROSOFT, "BitmaskDropout"),
        OpKey(opset.MICROSOFT, "BitmaskBiasDropout"),
        OpKey(opset.MICROSOFT, "Sampling"),
    }
)  # fmt: skip

_DATA_MOVEMENT = frozenset(
    {
        *(
            OpKey("", name)
            for name in (
                "BitCast", "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "Constant", "ConstantOfShape",
                "DepthToSpace", "Expand", "EyeLike", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
                "MaxUnpool", "OneHot", "Optional", "OptionalGetElement", "OptionalHasElement", "Pad", "Range",
                "Reshape", "ReverseSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
                "SequenceInsert", "SequenceLength", "Shape", "Size", "Slice", "SpaceToDepth", "Split",
                "SplitToSequence", "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze",
            )
        ),
        OpKey(opset.MICROSOFT, "ExpandDims"),
        OpKey(opset.MICROSOFT, "Pad"),
        OpKey(opset.MICROSOFT, "Trilu"),
        OpKey(opset.EQSAT, "CastHint"),
        OpKey(opset.EQSAT, "StopFusion"),
    }
)  # fmt: skip

_CONTRACTED_INPUTS: dict[OpKey, tuple[int, ...]] = {
    OpKey("", "Conv"): (0, 1),
    OpKey("", "ConvTranspose"): (0, 1),
    OpKey("", "MatMul"): (0, 1),
    OpKey("", "Gemm"): (0, 1),
    OpKey(opset.MICROSOFT, "FusedConv"): (0, 1),
    OpKey(opset.MICROSOFT, "FusedGemm"): (0, 1),
    OpKey(opset.MICROSOFT, "FusedMatMul"): (0, 1),
}

_SELECTION = frozenset(
    OpKey("", name)
    for name in (
        "Cast", "CastLike", "Clip", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "LeakyRelu", "Less",
        "LessOrEqual", "Max", "MaxPool", "Min", "PRelu", "ReduceMax", "ReduceMin", "Relu", "TopK", "Where",
    )
)  # fmt: skip

_SUMS = frozenset(OpKey("", name) for name in ("Add", "Sub", "Sum"))

_KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", opset.MICROSOFT, opset.EQSAT})


def is_commutative(op: OpKey) -> bool:
    """Whether any order of the operands gives the same result.

    Of the variadic operators this holds over the reals; in floating point, more than two operands of ``Sum``
    or ``Mean`` in another order may round differently. Two operands are exact everywhere.
    """
    return op in _COMMUTATIVE


def value_inputs(op: OpKey) -> tuple[int, ...]:
    """Indices of the inputs whose *value* (not only shape and type) determines the outputs' shapes or types.

    An index may lie beyond the inputs that a node gives: optional inputs count by their position in the schema.
    """
    return _VALUE_INPUTS.get(op, ())


def is_deterministic(op: OpKey, attrs: Attrs = (), *, training: bool = True) -> bool:
    """Whether equal inputs give equal outputs, so that two such nodes are the same value.

    A seed does not make a generator deterministic: it starts a stream, whose state each run advances.

    Args:
        op: The operator.
        attrs: Its attributes; subgraphs are searched for random operators.
        training: ``Dropout`` only: False where its ``training_mode`` is absent or constant false, which makes
            it an identity. The default is the answer that is right without looking.
    """
    body = function_body(op, attrs)
    if body is not None:
        return all(is_deterministic(node.op, node.attrs) for node in body.nodes)
    if op.domain not in _KNOWN_DOMAINS or op in _RANDOM:
        return False
    if op == OpKey("", "Dropout"):
        return not training
    return all(_graph_is_deterministic(v.graph) for _, v in attrs if isinstance(v, GraphAttr))


def _graph_is_deterministic(graph: ir.Graph) -> bool:
    for node in graph.all_nodes():
        domain = "" if node.domain == "ai.onnx" else node.domain
        if not is_deterministic(OpKey(domain, node.op_type)):
            return False
    return True


def is_data_movement(op: OpKey) -> bool:
    """Whether the operator only moves, copies, generates or selects elements: no arithmetic on them."""
    return op in _DATA_MOVEMENT


def contracted_inputs(op: OpKey) -> tuple[int, ...]:
    """Indices of the inputs whose elements are multiplied and summed up, as weights are.

    What a small element is rounded by counts there beside the largest one of the sum.
    """
    return _CONTRACTED_INPUTS.get(op, ())


def requires_finite(op: OpKey) -> bool:
    """Whether algebra over the reals needs the operator's operands to be finite.

    It does not where elements are moved, compared or selected: an infinite bound of ``Clip`` is as good as any. Neither
    does it in sums, so that masks of ``-inf`` move freely: what is finite plus ``-inf`` is ``-inf`` in any order.
    """
    return not is_data_movement(op) and op not in _SELECTION and op not in _SUMS


def schema_operators(opset: int) -> tuple[OpKey, ...]:
    """All operators of the default domain that are valid at ``opset``, sorted by name."""
    names = sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""})
    return tuple(OpKey("", name) for name in names if onnx.defs.has(name, opset, "") and not _deprecated(name, opset))


def _deprecated(name: str, opset: int) -> bool:
    return bool(onnx.defs.get_schema(name, opset, "").deprecated)
