"""Decides before the search which operators can be written at the highest opset that the file may have.

A newer operator is replaced by its definition when the file is written (:mod:`eqsat.model.write.older`), which may cost
far more. The search therefore begins with a model in which these are replaced, and uses no others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.inference.annotate import function_types
from eqsat.model.inference.infer import infer_body
from eqsat.model.load import load
from eqsat.model.write.older import check_bound, is_newer, least_opset
from eqsat.model.write.runnable import replace_by_definitions, scopes
from eqsat.model.write.too_new import Newer
from eqsat.schema import opset
from eqsat.schema.attributes import from_attrs, op_key, tensor_of
from eqsat.schema.body import Body
from eqsat.schema.types import CONSTANT, Attrs, GraphAttr, OpaqueAttr, OpKey, TensorType


def within_opset(model: ir.Model, bound: int | None) -> tuple[ir.Model, dict[OpKey, int]]:
    """The model without the operators that are newer than an opset, as far as these have definitions.

    Args:
        model: The loaded model; not changed.
        bound: The highest opset; None for any.

    Returns:
        The model, itself if nothing in it is newer, and the opset that each replaced operator needs.

    Raises:
        ModelError: No file can be written at that opset.
    """
    check_bound(bound)
    if bound is None or bound >= opset.PINNED_OPSET or not any(_newer(model, bound)):
        return model, {}
    copy = model.clone()
    newer = [(node, needed) for node, needed in _newer(copy, bound)]
    types = function_types(copy)
    replace_by_definitions(copy, types, lambda node: is_newer(node, types, bound))
    replaced: dict[OpKey, int] = {}
    for node, needed in newer:
        if node.graph is None:
            replaced[op_key(node)] = max(needed, replaced.get(op_key(node), 0))
    return (load(copy), replaced) if replaced else (model, {})


def newer_in(graph: ir.Graph, bound: int) -> list[Newer]:
    """The operators of a body and its subgraphs that cannot be written at an opset.

    Args:
        graph: A body of the model as loaded.
        bound: The newest opset.
    """
    needed = ((node, least_opset(node, {}, bound)) for node in ir.traversal.RecursiveGraphIterator(graph))
    return [Newer.of(node, version) for node, version in needed if version > bound]


def _newer(model: ir.Model, bound: int) -> list[tuple[ir.Node, int]]:
    types = function_types(model)
    nodes = [(node, least_opset(node, types, bound)) for scope in scopes(model) for node in scope]
    return [(node, needed) for node, needed in nodes if needed > bound]


@lru_cache(maxsize=1 << 14)
def opset_needed(
    op: OpKey,
    attrs: Attrs,
    inputs: tuple[TensorType | None, ...],
    outputs: tuple[TensorType | None, ...],
    constant: tuple[bool | None, ...],
    wanted: int,
) -> int:
    """The least opset from ``wanted`` on at which an operator can be written.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its operands, None for an absent or unknown one.
        outputs: Types of its results, None for one that nothing reads.
        constant: Whether each operand is a constant with elements, which older opsets write as an attribute; None if
            absent.
        wanted: The first opset to try.
    """
    if op.domain or any(isinstance(value, GraphAttr | OpaqueAttr) for _, value in attrs):
        return wanted
    operands = [_operand(kind, known) for kind, known in zip(inputs, constant, strict=True)]
    results = [
        ir.Value(name="") if kind is None else _typed(ir.Value(name=f"y{i}"), kind) for i, kind in enumerate(outputs)
    ]
    node = ir.Node("", op.name, operands, from_attrs(attrs, op), outputs=results)
    return least_opset(node, {}, wanted)


def _operand(kind: TensorType | None, constant: bool | None) -> ir.Value | None:
    if constant is None:
        return None
    if not constant:
        return _typed(ir.Value(name="x"), kind)
    some = ir.AttrTensor("value", tensor_of(np.zeros(1, np.int64), ir.DataType.INT64))
    return _typed(ir.Node("", "Constant", [], [some]).outputs[0], kind)


def _typed(value: ir.Value, kind: TensorType | None) -> ir.Value:
    if kind is None:
        return value
    value.type = ir.TensorType(kind.dtype)
    value.shape = None if kind.shape is None else ir.Shape(kind.shape)
    return value


@lru_cache(maxsize=1 << 12)
def opset_of_body(body: Body, inputs: tuple[TensorType | None, ...], wanted: int) -> int:
    """The least opset from ``wanted`` on at which all operators of a definition can be written.

    The definition of a composite or a function must not change in a file, or readers cannot recognize it.

    Args:
        body: The definition.
        inputs: Types of its inputs.
        wanted: The first opset to try.
    """
    try:
        types = infer_body(body, inputs)
    except ModelError:
        return wanted
    constant = [False] * body.inputs
    for node in body.nodes:
        end = len(constant) + node.outputs
        given = tuple(None if i is None else types[i] for i in node.inputs)
        known = tuple(None if i is None else constant[i] for i in node.inputs)
        wanted = max(wanted, opset_needed(node.op, node.attrs, given, tuple(types[len(constant) : end]), known, wanted))
        constant += [node.op == CONSTANT] * node.outputs
    return wanted
