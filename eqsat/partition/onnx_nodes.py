"""Builds ONNX nodes from operators, attribute bundles and values: only this module knows onnx_ir's node syntax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import onnx_ir as ir
from onnx import defs

from eqsat.model.write.concise import concise
from eqsat.partition.subgraphs import bind_graph
from eqsat.schema import opset
from eqsat.schema.attributes import from_attrs
from eqsat.schema.metadata import CALL as CALL
from eqsat.schema.metadata import COMPOSITE as COMPOSITE
from eqsat.schema.metadata import REGION as REGION
from eqsat.schema.metadata import TARGET as TARGET
from eqsat.schema.metadata import TRUSTED_CALL as TRUSTED_CALL
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType


def function_domain(target: str) -> str:
    """Domain of the regions of a target."""
    return f"{opset.EQSAT}.{target}"


def composite_domain(target: str) -> str:
    """Domain of the composites of a target; it differs from that of regions, so that names never clash."""
    return f"{opset.EQSAT}.{target}.composite"


def make_value(name: str, known: TensorType | None = None) -> ir.Value:
    """A value with its type, if known."""
    value = ir.Value(name=name)
    set_type(value, known)
    return value


def set_type(value: ir.Value, known: TensorType | None) -> None:
    """Adds the type and shape that are known and not set yet."""
    if known is None:
        return
    if value.type is None:
        value.type = ir.TensorType(known.dtype)
    if value.shape is None and known.shape is not None and isinstance(value.type, ir.TensorType):
        value.shape = ir.Shape(known.shape)


def make_node(
    op: OpKey,
    attributes: Sequence[ir.Attr],
    inputs: Sequence[ir.Value | None],
    outputs: Sequence[ir.Value],
    *,
    name: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ir.Node:
    """A node; trailing absent inputs are left out, and so are trailing outputs without a name."""
    present = list(inputs)
    while present and present[-1] is None:
        present.pop()
    results = list(outputs)
    while len(results) > 1 and results[-1].name == "":
        results.pop()
    op_type, _, overload = op.name.partition(":")
    return ir.Node(
        op.domain,
        op_type,
        present,
        list(attributes),
        overload=overload,
        outputs=results,
        name=name,
        metadata_props=dict(metadata or {}),
    )


def make_attributes(
    op: OpKey, attrs: Attrs, captured: Mapping[str, ir.Value] | None = None, outer: AbstractSet[str] = frozenset()
) -> list[ir.Attr]:
    """Attributes of a node but for defaults; subgraphs among them are copied and bound to the values they capture.

    Args:
        op: The operator.
        attrs: Its bundle.
        captured: Name in a subgraph -> the value to read.
        outer: Names that the enclosing scopes define.
    """
    result = []
    for attribute in from_attrs(concise(op, attrs), op):
        if attribute.type == ir.AttributeType.GRAPH:
            bound = bind_graph(attribute.as_graph(), captured or {}, outer)
            attribute = ir.AttrGraph(attribute.name, bound)
        result.append(attribute)
    return result


def has_subgraphs(attrs: Attrs) -> bool:
    """Whether a bundle contains a graph."""
    return any(isinstance(value, GraphAttr) for _, value in attrs)


def is_optional_output(op: OpKey, index: int) -> bool:
    """Whether the operator may be called without its output at a position."""
    schema = opset.find_schema(op)
    if schema is None or index >= len(schema.outputs):
        return False
    return schema.outputs[index].option == defs.OpSchema.FormalParameterOption.Optional
