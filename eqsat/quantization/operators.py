"""The role of a node in quantization: the role that its operator declares, as far as its attributes allow."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.ops.functions import ANNOTATIONS
from eqsat.ops.operators import has, operator
from eqsat.ops.quantization_role import COMPUTES, MOVES_DATA, Role
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key


def role(node: ir.Node, operators: Sequence[str] | None) -> Role | None:
    """The role of a node, None if it takes no part.

    Args:
        node: The node.
        operators: The operators requested, None for the default set.
    """
    op = op_key(node)
    if op in ANNOTATIONS:
        # A role that concerns values also holds for their integers, whatever operators are requested.
        return MOVES_DATA
    if op.domain or has(op, Trait.CONVERTS) or any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    if operators is not None and op.name not in operators:
        return None
    found = operator(op).quantization
    if found is None:
        return COMPUTES if operators is not None else None
    if found.moves and not _moves_exactly(node):
        return None
    if found.by_number and operators is None and not _by_number(node):
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
    """Whether the bias is added to the products without a factor."""
    return node.op_type != "Gemm" or (_float(node, "alpha", 1.0) == 1.0 and _float(node, "beta", 1.0) == 1.0)


def _moves_exactly(node: ir.Node) -> bool:
    """Padding inserts a constant, which must be zero: only zero is certain to be representable."""
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
