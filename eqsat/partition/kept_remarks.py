"""Keeps the author's remarks on tensors that are still in the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy

import onnx_ir as ir

from eqsat.schema.metadata import QUANTIZATION


def keep_remarks(model: ir.Model, original: ir.Graph) -> None:
    """Copies documentation, metadata, denotations and quantization annotations of tensors from the input.

    Args:
        model: Changed in place; a tensor that has a name of the input is that tensor.
        original: The main graph of the input.
    """
    known = {value.name: value for value in _values(original)}
    for scope in (model.graph, *model.functions.values()):
        for value in list(_values(scope)):
            said = known.get(value.name)
            if said is None:
                continue
            value.doc_string = value.doc_string or said.doc_string
            value.metadata_props.update(said.metadata_props)
            if value.type is not None and said.type is not None and said.type.denotation:
                value.type = copy(value.type)
                value.type.denotation = said.type.denotation
            _denote_axes(value, said)
            if scope is model.graph and QUANTIZATION in said.meta:
                value.meta[QUANTIZATION] = dict(said.meta[QUANTIZATION])
                _add_constants(model.graph, original, said.meta[QUANTIZATION].values())


def parameters(graph: ir.Graph) -> set[str]:
    """The tensors that quantization annotations name; an operator need not read them."""
    return {name for value in _values(graph) for name in value.meta.get(QUANTIZATION, {}).values()}


def _denote_axes(value: ir.Value, said: ir.Value) -> None:
    if value.shape is None or said.shape is None or len(value.shape) != len(said.shape):
        return
    denotations = [said.shape.get_denotation(i) for i in range(len(said.shape))]
    if any(denotations):
        value.shape = ir.Shape(value.shape.dims, denotations)


def _add_constants(graph: ir.Graph, original: ir.Graph, names: Iterable[str]) -> None:
    """Adds the constants that an annotation names, and that no node reads."""
    taken = {value.name for value in _values(graph)}
    for name in names:
        constant = original.initializers.get(name)
        if constant is not None and name not in taken:
            graph.register_initializer(
                ir.Value(name=name, type=constant.type, shape=constant.shape, const_value=constant.const_value)
            )


def _values(scope: ir.Graph | ir.Function) -> Iterator[ir.Value]:
    yield from scope.inputs
    if isinstance(scope, ir.Graph):
        yield from scope.initializers.values()
    for node in scope:
        yield from node.outputs
