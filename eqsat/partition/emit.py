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
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType

TARGET = "eqsat.target"
"""Metadata key: name of the target that runs a node or a function."""
TARGETS = "eqsat.targets"
"""Metadata key of a model: names of the targets that it was optimized for, the host first."""
REGION = "eqsat.region"
"""Metadata key: name of the region, on the nodes of the main graph and on a region's function."""
COMPOSITE = "eqsat.composite"
"""Metadata key: name of the composite, on its calls and its function."""
KERNEL = "eqsat.kernel"
"""Metadata key in a model without functions: name of the call that a node was part of, as a composite."""
CALL = "eqsat.call"
"""Metadata key: C call of a kernel, with ``{0}``, ``{1}``, ... for its operands and ``{result}`` for its result; on the
call of a region's function the C call of the region."""
NAME, INPUTS, OUTPUTS = "{name}", "{inputs}", "{outputs}"
"""Holes in the C call of a region: its name, its operands and its results, in the order of the region's function."""
TRUSTED_CALL = "eqsat.trusted_call"
"""Key of a node's ``meta``, which is not saved: the same call, known to come from a target file that was read here."""
FAMILY = "eqsat.family"
"""Metadata key: family of kernels of generated code that computes a node."""
OPERANDS = "eqsat.operands"
"""Metadata key on a composite's function: which operands of the composite its inputs are (absent ones are left out)."""
RULE = "eqsat.rule"
"""Metadata key: name of the rule that made a node."""
COST = "eqsat.cost"
"""Metadata key: seconds that the target needs for a node."""


def function_domain(target: str) -> str:
    """Domain of the regions of a target."""
    return f"{opset.EQSAT}.{target}"


def composite_domain(target: str) -> str:
    """Domain of the composites of a target; another one than that of regions, so that names never clash."""
    return f"{opset.EQSAT}.{target}.composite"


def is_ours(domain: str) -> bool:
    """Whether functions of this domain are defined by eqsat."""
    return domain == opset.EQSAT or domain.startswith(f"{opset.EQSAT}.")


def make_value(name: str, known: TensorType | None = None) -> ir.Value:
    """A value with its type, as far as it is known."""
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
