"""An operator that is being lowered: the argument of the files that lower operators whose sizes data decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.codegen.program import FINDING, IDENTITY, ProgramNode, ProgramOperand, ProgramOperands, ProgramTensor
from eqsat.codegen.shapes import operand_type
from eqsat.schema.types import Attrs, OpKey, TensorType


@dataclass(frozen=True)
class OperatorCall:
    """An operator to be lowered.

    Attributes:
        op: The operator.
        attrs: All of its attributes.
        operands: Of the node.
        types: Types of its results as far as they are known.
        used: Which results have readers.
        names: Names of its results.
        name: Name of the node.
        depth: Number of definitions around it.
    """

    op: OpKey
    attrs: Attrs
    operands: ProgramOperands
    types: list[TensorType | None]
    used: list[bool]
    names: list[str]
    name: str
    depth: int = 0

    def operand(self, number: int) -> ProgramOperand | None:
        """An operand, None where it is absent."""
        return self.operands[number] if number < len(self.operands) else None

    def label(self, number: int) -> str:
        """A name for a result."""
        return self.names[number] or f"{self.name}_{number}"


def finding_node(
    operator: str,
    call: OperatorCall,
    attributes: Mapping[str, object],
    inputs: Sequence[ProgramOperand | None],
    outputs: Sequence[ProgramTensor | None],
) -> ProgramNode:
    """A node that handles sizes, in the place of an operator."""
    dtype = next(t.dtype for t in outputs if t is not None)
    return ProgramNode(call.name, OpKey(FINDING, operator), attributes, list(inputs), list(outputs), dtype)


def in_memory(call: OperatorCall, x: ProgramOperand, nodes: list[ProgramNode]) -> ProgramTensor:
    """An operand as a tensor; a constant is copied."""
    if isinstance(x, ProgramTensor):
        return x
    known = operand_type(x)
    assert known is not None
    copy = ProgramTensor(f"{call.name}_constant", known.dtype, x.shape)
    nodes.append(ProgramNode(copy.name, IDENTITY, {}, [x], [copy], copy.dtype))
    return copy
