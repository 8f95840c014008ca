"""The single-node cases of ``onnx.backend.test`` at the pinned opset, as arguments of type inference."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs
from onnx.backend.test.loader import load_model_tests

from eqsat.schema import opset
from eqsat.schema.attributes import op_key, to_attrs
from eqsat.schema.types import Attrs, GraphAttr, OpaqueAttr, OpKey, TensorType, tensor_type


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    op: OpKey
    attrs: Attrs
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: dict[str, TensorType | None]
    values: dict[str, object]
    expected: dict[str, object]

    def operand_types(self) -> list[TensorType | None]:
        return [self.types[i] if i else None for i in self.inputs]

    def operand_values(self) -> list[np.ndarray | None]:
        return [as_array(self.values.get(i)) if i else None for i in self.inputs]

    @property
    def is_tensors(self) -> bool:
        """Whether all operands are tensors and no attribute is a graph."""
        tensors = all(self.types[i] is not None for i in self.inputs if i)
        return tensors and not any(isinstance(v, GraphAttr | OpaqueAttr) for _, v in self.attrs)


def as_array(value: object) -> np.ndarray | None:
    if value is None or isinstance(value, list | dict | tuple):
        return None
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


@cache
def cases() -> tuple[Case, ...]:
    """Cases of one node whose operator is the same at the pinned opset as at the case's own."""
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    return tuple(c for test in load_model_tests(kind="node") if (c := _case(test)) is not None)


def _case(test: object) -> Case | None:
    model: onnx.ModelProto = test.model
    if len(model.graph.node) != 1:
        return None
    node = model.graph.node[0]
    op = OpKey(node.domain, node.op_type)
    schema = opset.find_schema(op)
    if schema is None:
        return None
    version = {e.domain: e.version for e in model.opset_import}[node.domain]
    if not node.domain and defs.get_schema(node.op_type, version).since_version != schema.since_version:
        return None
    inner = ir.from_proto(model).graph[0]
    given, expected = test.data_sets[0]
    values = [*model.graph.input, *model.graph.output]
    return Case(
        test.name,
        model,
        op_key(inner),
        to_attrs(inner),
        tuple(node.input),
        tuple(node.output),
        {v.name: tensor_type(ir.from_proto(v)) for v in values},
        dict(zip([i.name for i in model.graph.input], given, strict=False)),
        dict(zip([o.name for o in model.graph.output], expected, strict=False)),
    )
