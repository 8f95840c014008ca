"""The results of a lowered node and their types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.codegen.shapes import Shapes, operand_type
from eqsat.errors import ModelError
from eqsat.model.inference.infer import MAX_VALUE, infer_body
from eqsat.model.outputs import required_outputs
from eqsat.partition.onnx_nodes import is_optional_output
from eqsat.partition.plan import PlanNode
from eqsat.schema.declared_operators import find_declared
from eqsat.schema.types import TensorType


def present(node: PlanNode, used: list[bool]) -> int:
    """How many outputs a node has without the optional ones at its end that nothing reads."""
    required = required_outputs(node.op, node.attrs, len(node.inputs), {i for i, u in enumerate(used) if u})
    count = len(used)
    while count > 1 and count - 1 not in required and is_optional_output(node.op, count - 1):
        count -= 1
    return count


def result_places(
    node: PlanNode, given: Sequence[ProgramOperand | None], name: str, shapes: Shapes
) -> list[ProgramTensor | None]:
    """Places for the results of a composite that has several; a kernel needs a place even for a result without
    readers.
    """
    body = node.body
    if body is None or len(body.results) < 2 or find_declared(node.op) is not None:
        return []
    arrays = [x if isinstance(x, np.ndarray) and x.size <= MAX_VALUE else None for x in given]
    try:
        types = infer_body(body, [operand_type(x) for x in given], arrays)
    except ModelError:
        return []
    places: list[ProgramTensor | None] = []
    for i, kind in enumerate(types[k] for k in body.results):
        shape = "unknown" if kind is None else shapes.of(kind)
        places.append(
            None if kind is None or isinstance(shape, str) else ProgramTensor(f"{name}_{i}", kind.dtype, shape)
        )
    return places


def anchor_dtype(outputs: list[ProgramTensor | None], types: list[TensorType | None]) -> ir.DataType:
    if outputs and outputs[0] is not None:
        return outputs[0].dtype
    first = next((t for t in types if t is not None), None)
    return first.dtype if first is not None else ir.DataType.FLOAT
