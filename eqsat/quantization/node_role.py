"""The role of a node in quantization: the role that its operator declares, as far as its attributes allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops.operators import has, operator
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.ops.quantization_role import COMPUTES, MOVES_DATA, Role
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key, to_attrs


def role(node: ir.Node, operators: Sequence[str] | None) -> Role | None:
    """The role of a node in quantization, None if it has none.

    Args:
        node: The node.
        operators: The operators requested, None for the default set.
    """
    op = op_key(node)
    if op in ANNOTATIONS:
        # A role for values also applies to their integers, for any requested operators.
        return MOVES_DATA
    if op.domain or has(op, Trait.CONVERTS) or any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return None
    if operators is not None and op.name not in operators:
        return None
    operands = _Operands(node)
    found = operator(op).quantization
    if found is None:
        return COMPUTES if operators is not None else None
    if found.by_number is not None and operators is None:
        number = operands.constant(1)
        if number is None or number.size != 1 or not found.by_number(float(number.reshape(()))):
            return None
    return found if found.of_node is None else found.of_node(attributes(node), operands)


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as a role reads them: those that the node has."""
    return dict(to_attrs(node))


class _Operands:
    """The operands of a node, in the form that roles read."""

    def __init__(self, node: ir.Node) -> None:
        self._inputs = node.inputs

    def has(self, index: int) -> bool:
        return self._at(index) is not None

    def constant(self, index: int) -> np.ndarray | None:
        value = self._at(index)
        return None if value is None or value.const_value is None else value.const_value.numpy()

    def _at(self, index: int) -> ir.Value | None:
        value = self._inputs[index] if index < len(self._inputs) else None
        return None if value is None or value.name == "" else value
