"""Subgraphs of If, Loop and Scan under construction, given as Python functions of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.construction.operands import constant
from eqsat.model.construction.writer import captured, value_info, write_branches
from eqsat.model.expression import Branch, Tensor, made_so_far
from eqsat.model.inference.infer import infer_types
from eqsat.schema import opset
from eqsat.schema.attributes import make_attrs, to_attrs, to_protos
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType

NamedBranches = tuple[tuple[str, Branch], ...]


def make_branches(
    op: OpKey, operands: Sequence[Tensor | None], attributes: dict[str, Any], place: str
) -> NamedBranches:
    """Calls the functions among the attributes, which are removed, and collects the nodes that they make.

    Raises:
        ModelError: A function takes other inputs, or does not return tensors.
    """
    if opset.find_schema(op) is None:
        return ()
    kinds = opset.attribute_types(op)
    names = [n for n, v in attributes.items() if kinds.get(n) == ir.AttributeType.GRAPH and callable(v)]
    result = []
    for name in sorted(names):
        function = attributes.pop(name)
        start = made_so_far()
        inputs = tuple(
            Tensor(known, name=f"{name}_{i}") for i, known in enumerate(_input_types(op, operands, attributes))
        )
        try:
            returned = function(*inputs)
        except TypeError as error:
            requirement = f"a function of {len(inputs)} inputs is required as `{name}`"
            raise ModelError(requirement, place=place, actual=str(error)) from error
        outputs = list(returned) if isinstance(returned, tuple | list) else [returned]
        result.append(
            (name, Branch(inputs, tuple(o if isinstance(o, Tensor) else constant(o) for o in outputs), start))
        )
    return tuple(result)


def infer_branches(
    op: OpKey,
    attributes: dict[str, Any],
    branches: NamedBranches,
    operands: Sequence[Tensor | None],
    outputs: int,
    place: str,
) -> tuple[Attrs, tuple[TensorType | None, ...]]:
    """The node's other attributes, and the types of its outputs."""
    outer = {(t.order, t.index): t for _, branch in branches for t in captured(branch)}
    named = {key: f"%{key[0]}.{key[1]}" for key in outer}
    node = onnx.NodeProto(op_type=op.name, domain=op.domain)
    graphs = write_branches(branches, lambda t: named[t.order, t.index], set(named.values()))
    others = {n: v for n, v in attributes.items() if v is not None}
    attrs = make_attrs(
        op, {**others, **{g.name: GraphAttr(ir.Graph([], [], nodes=[]), ()) for g in graphs}}, place=place
    )
    plain = tuple((n, v) for n, v in attrs if not isinstance(v, GraphAttr))
    node.attribute.extend([*to_protos(plain, op), *graphs])
    # Reading the subgraphs inside a graph that defines the captured values binds the names.
    around = onnx.GraphProto(name="around", node=[node])
    for key, tensor in outer.items():
        if tensor.type is None:
            return plain, (None,) * outputs
        around.input.append(value_info(named[key], tensor.type))
    whole = to_attrs(ir.from_proto(around)[0])
    types = [None if t is None else t.type for t in operands]
    if any(t is not None and known is None for t, known in zip(operands, types, strict=True)):
        return plain, (None,) * outputs
    by_name = {named[key]: tensor.type for key, tensor in outer.items()}
    order = dict.fromkeys(n for _, a in whole if isinstance(a, GraphAttr) for n in a.captured)
    values = [None if t is None else t.value for t in operands]
    return plain, infer_types(op, whole, [*types, *(by_name[n] for n in order)], values, outputs, place=place)


def _input_types(op: OpKey, operands: Sequence[Tensor | None], attributes: dict[str, Any]) -> list[TensorType | None]:
    """Types of a subgraph's inputs."""
    types = [None if t is None else t.type for t in operands]
    if op.name == "Loop":
        return [TensorType(ir.DataType.INT64, ()), TensorType(ir.DataType.BOOL, ()), *types[2:]]
    if op.name == "Scan":
        count = int(attributes.get("num_scan_inputs", 1))
        axes = attributes.get("scan_input_axes") or [0] * count
        states, scanned = types[: len(types) - count], types[len(types) - count :]
        return [*states, *(_without_axis(t, axis) for t, axis in zip(scanned, axes, strict=True))]
    return []


def _without_axis(known: TensorType | None, axis: int) -> TensorType | None:
    if known is None or known.shape is None:
        return known
    axis %= len(known.shape)
    return TensorType(known.dtype, known.shape[:axis] + known.shape[axis + 1 :])
