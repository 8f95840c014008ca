"""How the operators of a kernel family are spelled before fusion: as elementwise chains, which need no own memory.

The file of a family registers the spelling of its operators. Where a spelling does not apply, the operator stays as it
is, and the family computes it.
"""

from __future__ import annotations

from collections.abc import Callable

from eqsat.codegen.expressions.expression_table import is_elementwise
from eqsat.codegen.kernel import Step
from eqsat.codegen.loop_writer import is_scalar_epilogue
from eqsat.codegen.program import IDENTITY, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.schema.dimension import broadcast_shapes
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.registration import registering
from eqsat.schema.types import OpKey

SpelledNodes = Callable[[ProgramNode], list[ProgramNode] | None]
"""The nodes that replace one node, with the same outputs; None if it stays as it is."""
_SPELLINGS: dict[OpKey, SpelledNodes] = {}


def spelled(*names: str, domain: str = "") -> Callable[[SpelledNodes], SpelledNodes]:
    """Registers the spelling of operators."""
    return registering(_SPELLINGS, names, domain, "has two spellings")


def spell(node: ProgramNode) -> list[ProgramNode]:
    """The nodes that replace one node; elementwise operators become chains of one step."""
    spelling = _SPELLINGS.get(node.operator)
    if spelling is not None:
        return spelling(node) or [node]
    chain = as_chain(node)
    return [node if chain is None else chain]


def as_chain(node: ProgramNode) -> ProgramNode | None:
    """An elementwise operator as a chain of one step; None for other operators and unsupported types."""
    if not is_elementwise(node.operator) or any(node.outputs[1:]) or not node.outputs or node.outputs[0] is None:
        return None
    present = [i for i, x in enumerate(node.inputs) if x is not None]
    if not present:
        return None
    shapes = [x.shape for x in node.inputs if x is not None]
    out = node.output
    try:
        if broadcast_shapes(*shapes) != out.shape:
            return None
    except ValueError:
        return None
    # The anchor reads an operand of full size that is not constant, if there is one.
    tensors = [i for i in present if isinstance(node.inputs[i], ProgramTensor)]
    full = [i for i in tensors if _shape(node.inputs[i]) == out.shape]
    first = (full or tensors or present)[0]
    anchor = node.inputs[first]
    assert anchor is not None
    others = [i for i in present if i != first]
    numbers: list[int | None] = [None] * len(node.inputs)
    numbers[first] = 0
    for k, i in enumerate(others):
        numbers[i] = 1 + k
    step = Step(node.operator, node.attributes, tuple(numbers), out.dtype)
    operands = [x for i in others if (x := node.inputs[i]) is not None]
    chain = ProgramNode(node.name, IDENTITY, {}, [anchor], [out], to_dtype(anchor.dtype), operands, [step])
    return chain if is_scalar_epilogue(chain.provisional_task().epilogue) else None


def _shape(x: ProgramOperand | None) -> tuple[int, ...]:
    return () if x is None else x.shape
