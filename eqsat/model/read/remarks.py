"""Remarks of authors and tools in a model: documentation, metadata, denotations.

The converter to newer opsets, the inliner and type inference lose some of it. It is collected before they run and put
back afterwards, by the names of tensors, which stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from copy import copy
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from eqsat.schema.metadata import QUANTIZATION

_Path = tuple[tuple[str, str], ...]
"""The path to a graph: for each node around it, outermost first, the first result and the name of the attribute."""
_Tensor = tuple[_Path, str]


@dataclass(frozen=True)
class Remarks:
    """By tensor and the graph that defines it: the remarks on it and on the node whose first result it is."""

    nodes: dict[_Tensor, onnx.NodeProto] = field(default_factory=dict)
    values: dict[_Tensor, onnx.ValueInfoProto] = field(default_factory=dict)
    quantization: dict[_Tensor, dict[str, str]] = field(default_factory=dict)
    graph: dict[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> frozenset[str]:
        """The tensors of the main graph that quantization annotations name; an operator need not read them."""
        return frozenset(name for (path, _), pairs in self.quantization.items() if not path for name in pairs.values())


def remarks_of(model: onnx.ModelProto) -> Remarks:
    """All remarks of a model but those that nothing loses: of the model itself, and documentation of graphs."""
    found = Remarks(graph={entry.key: entry.value for entry in model.graph.metadata_props})
    for path, graph in _graphs_of_proto((), model.graph):
        for node in graph.node:
            if node.name or node.doc_string or node.metadata_props:
                found.nodes[path, _first(node)] = node
        for value in (*graph.value_info, *graph.output, *graph.input):
            if value.doc_string or value.metadata_props or _is_denoted(value.type):
                found.values[path, value.name] = value
        for entry in graph.quantization_annotation:
            pairs = {pair.key: pair.value for pair in entry.quant_parameter_tensor_names}
            found.quantization[path, entry.tensor_name] = pairs
    return found


def put_back(model: ir.Model, remarks: Remarks) -> None:
    """Adds the remarks that a model has lost.

    Args:
        model: The loaded model; changed in place.
        remarks: The remarks before loading; those in the model take precedence.
    """
    _add(model.graph.metadata_props, remarks.graph.items())
    for path, graph in _graphs(model.graph, ()):
        for node in graph:
            said = remarks.nodes.get((path, _first(node)))
            if said is not None and said.op_type == node.op_type:
                node.name = node.name or said.name
                node.doc_string = node.doc_string or said.doc_string
                _add(node.metadata_props, ((entry.key, entry.value) for entry in said.metadata_props))
        own = (v for node in graph for v in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *own):
            key = path, value.name or ""
            if key in remarks.values:
                _put_back_value(value, remarks.values[key])
            if key in remarks.quantization:
                value.meta[QUANTIZATION] = dict(remarks.quantization[key])


def _put_back_value(value: ir.Value, said: onnx.ValueInfoProto) -> None:
    value.doc_string = value.doc_string or said.doc_string
    _add(value.metadata_props, ((entry.key, entry.value) for entry in said.metadata_props))
    if said.type.denotation and value.type is not None:
        value.type = copy(value.type)
        value.type.denotation = said.type.denotation
    dims = said.type.tensor_type.shape.dim
    if value.shape is not None and len(value.shape) == len(dims) and any(d.denotation for d in dims):
        value.shape = ir.Shape(value.shape.dims, [d.denotation or None for d in dims])


def _is_denoted(kind: onnx.TypeProto) -> bool:
    return bool(kind.denotation) or any(d.denotation for d in kind.tensor_type.shape.dim)


def _add(there: MutableMapping[str, str], said: Iterable[tuple[str, str]]) -> None:
    for key, value in said:
        there.setdefault(key, value)


def _graphs_of_proto(path: _Path, graph: onnx.GraphProto) -> Iterator[tuple[_Path, onnx.GraphProto]]:
    yield path, graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs_of_proto((*path, (_first(node), attribute.name)), attribute.g)


def _graphs(graph: ir.Graph, path: _Path) -> Iterator[tuple[_Path, ir.Graph]]:
    yield path, graph
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                yield from _graphs(attribute.as_graph(), (*path, (_first(node), attribute.name)))


def _first(node: onnx.NodeProto | ir.Node) -> str:
    """The name of a node's first result that has one."""
    names = node.output if isinstance(node, onnx.NodeProto) else (v.name for v in node.outputs)
    return next((name for name in names if name), "")
