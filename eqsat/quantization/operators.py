"""What quantization needs to know of an operator: which inputs are data, and how outputs relate to them.

The default set is what has an exact integer form: products, sums, pools, unary functions (a table of 256 entries)
and data movement. Others can be asked for; then all of their float inputs and outputs are quantized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.ops.functions import ANNOTATIONS
from eqsat.schema.attributes import op_key


@dataclass(frozen=True, slots=True)
class Role:
    """How an operator takes part.

    Attributes:
        data: Indices of the inputs that carry data; None for all.
        weight: Index of the input that is a weight where it is constant.
        bias: Index of the bias.
        moves: Whether every output element is an element of the first input, so that outputs have its integers.
        limits: Whether it only limits its input (Relu), so that it is one step with what computes that.
        result: The range of its results where integer operators have it fixed, whatever was seen.
    """

    data: tuple[int, ...] | None = None
    weight: int | None = None
    bias: int | None = None
    moves: bool = False
    limits: bool = False
    result: tuple[float, float] | None = None


_COMPUTES = Role()
# Without those that jump (Round, Sign) or have a pole (Log, Reciprocal), where a rounded input is worth nothing.
_UNARY = (
    "Abs", "Acos", "Asin", "Asinh", "Atan", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Mish", "Neg", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tanh", "ThresholdedRelu",
)  # fmt: skip
_MOVES = (
    "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Identity", "MaxPool",
    "Pad", "ReduceMax", "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
)  # fmt: skip

ROLES: dict[str, Role] = {
    **{name: Role(data=(0,)) for name in (*_UNARY, "AveragePool", "GlobalAveragePool", "ReduceMean", "Resize")},
    **{name: Role(data=(0,), moves=True) for name in _MOVES},
    **{name: Role(data=(0,), limits=True) for name in ("Relu", "Clip")},
    **dict.fromkeys(("Add", "Concat", "Max", "Min", "Mul", "Sub", "Sum"), _COMPUTES),
    "Conv": Role(data=(0, 1), weight=1, bias=2),
    "ConvTranspose": Role(data=(0, 1), weight=1, bias=2),
    "Gemm": Role(data=(0, 1), weight=1, bias=2),
    "MatMul": Role(data=(0, 1), weight=1),
    "PRelu": _COMPUTES,
    "BatchNormalization": Role(data=(0,)),
    # Integer operators need room for 1, whatever was seen.
    "Softmax": Role(data=(0,), result=(0.0, 1.0)),
    # By or to a number: a table.
    "Div": Role(data=(0,)),
    "Pow": Role(data=(0,)),
}
"""By name, in ONNX's own domain."""

_NEVER = frozenset(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))


def role(node: ir.Node, operators: Sequence[str] | None) -> Role | None:
    """How a node takes part, None if it does not.

    Args:
        node: The node.
        operators: The operators asked for, None for the default set.
    """
    op = op_key(node)
    if op in ANNOTATIONS:
        # What is said of the values holds for their integers, whatever operators are asked for.
        return Role(data=(0,), moves=True)
    if op.domain or op.name in _NEVER or any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    if operators is not None and op.name not in operators:
        return None
    found = ROLES.get(op.name)
    if found is None:
        return _COMPUTES if operators is not None else None
    if found.moves and not _moves_exactly(node):
        return None
    if op.name in ("Div", "Pow") and operators is None and not _by_number(node):
        return None
    if op.name == "Resize" and _text(node, "mode", "nearest") == "nearest":
        return Role(data=(0,), moves=_text(node, "coordinate_transformation_mode", "") != "tf_crop_and_resize")
    return found


def weight_axis(node: ir.Node, rank: int) -> int | None:
    """The axis of a weight's output channels, None where scales by channel do not exist.

    Args:
        node: A node with a weight.
        rank: Of the weight.
    """
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        # With groups an index of this axis stands for a channel in each of them.
        return 1 if _number(node, "group", 1) == 1 else None
    if node.op_type == "Gemm":
        return 0 if _number(node, "transB", 0) else 1
    return rank - 1 if rank >= 2 else None


def bias_is_added_plainly(node: ir.Node) -> bool:
    """Whether the bias is added to the products as they are."""
    return node.op_type != "Gemm" or (_float(node, "alpha", 1.0) == 1.0 and _float(node, "beta", 1.0) == 1.0)


def _moves_exactly(node: ir.Node) -> bool:
    """Padding inserts a constant of its own, which must be zero: only that is certain to be representable."""
    if node.op_type != "Pad" or _text(node, "mode", "constant") != "constant":
        return True
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None or value.name == "":
        return True
    return value.const_value is not None and not value.const_value.numpy().any()


def _by_number(node: ir.Node) -> bool:
    """Whether the second operand is one known number for which the operator has neither a pole nor a gap."""
    operand = node.inputs[1]
    value = None if operand is None or operand.const_value is None else operand.const_value.numpy()
    if value is None or value.size != 1:
        return False
    number = float(value.reshape(()))
    return number != 0 if node.op_type == "Div" else number >= 1 and number.is_integer()


def _text(node: ir.Node, name: str, default: str) -> str:
    return node.attributes[name].as_string() if name in node.attributes else default


def _number(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _float(node: ir.Node, name: str, default: float) -> float:
    return node.attributes[name].as_float() if name in node.attributes else default
