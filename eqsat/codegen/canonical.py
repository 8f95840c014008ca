"""Reduces operators that are the same to scheduling to one spelling, so that later stages know one of each.

An operator that keeps the order of elements becomes a ``Reshape``, which is a matter of layout. One that changes
nothing disappears. Elementwise operators become steps after an ``Identity``, to which fusion appends further steps; the
files of kernel families say where others do (:mod:`eqsat.codegen.elementwise_spelling`).
"""

from __future__ import annotations

import numpy as np

from eqsat.codegen.elementwise_spelling import spell
from eqsat.codegen.expressions import is_elementwise
from eqsat.codegen.kernels.shared.families import families
from eqsat.codegen.program import RESHAPE, ProgramNode, ProgramOperand
from eqsat.model.onnx_definitions import has_definition
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.types import OpKey

Made = tuple[list[ProgramNode], list[ProgramOperand | None]]
"""New nodes, and the values that replace the old node's outputs."""

_ORDER_KEPT = Trait.FORWARDS | Trait.REARRANGES
_UNCHANGED = frozenset({"Identity", "Dropout"})
_FOLDED = frozenset({"Shape", "Size"})
"""The node with constants for shapes that are known."""


def canonical(node: ProgramNode) -> Made:
    """The nodes that replace one node of the model."""
    results: list[ProgramOperand | None] = [*node.outputs]
    name = "" if node.operator.domain else node.operator.name
    if name in _UNCHANGED and not any(node.outputs[1:]) and not _trains(node):
        return [], [node.inputs[0], *results[1:]]
    if has(node.operator, _ORDER_KEPT):
        return [ProgramNode(node.name, RESHAPE, {}, [node.inputs[0]], [node.output], node.output.dtype)], results
    return spell(node), results


def is_known(operator: OpKey) -> bool:
    """Whether there is any way to write an operator in C, for some types and shapes."""
    if is_elementwise(operator) or families(operator) or has_definition(operator) or has(operator, _ORDER_KEPT):
        return True
    return not operator.domain and operator.name in _UNCHANGED | _FOLDED


def _trains(node: ProgramNode) -> bool:
    """Whether a dropout may drop something."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    return mode is not None and not (isinstance(mode, np.ndarray) and not mode.any())
