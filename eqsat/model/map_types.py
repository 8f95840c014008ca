"""Maps as inputs and outputs of models, such as the list of probabilities by label with which scikit-learn's end.

onnx_ir has no type for maps. In memory a map has the type of an optional tensor of its values, and a sequence of maps
the type of a sequence of such tensors; the denotation marks them, and files have the real type again. To the search
both are opaque.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx import TensorProto, TypeProto

_MARK = "eqsat.map."
"""The beginning of the denotation; the name of the type of the keys follows."""


def hide_maps(proto: onnx.ModelProto) -> None:
    """Replaces the types of maps by their substitutes, in place."""
    for value in _values(proto):
        kind = value.type
        if kind.HasField("map_type"):
            inner = _hidden(kind)
            value.type.optional_type.elem_type.CopyFrom(inner)
        elif kind.sequence_type.elem_type.HasField("map_type"):
            kind.sequence_type.elem_type.CopyFrom(_hidden(kind.sequence_type.elem_type))


def show_maps(proto: onnx.ModelProto) -> None:
    """The opposite of :func:`hide_maps`."""
    for value in _values(proto):
        kind = value.type
        if kind.optional_type.elem_type.denotation.startswith(_MARK):
            shown = _shown(kind.optional_type.elem_type)
            kind.CopyFrom(shown)
        elif kind.sequence_type.elem_type.denotation.startswith(_MARK):
            kind.sequence_type.elem_type.CopyFrom(_shown(kind.sequence_type.elem_type))


def has_maps(model: ir.Model) -> bool:
    """Whether a value of the model has the substitute type of a map."""
    graphs = [model.graph, *model.graph.subgraphs()]
    values = (v for g in graphs for v in (*g.inputs, *g.outputs, *(o for node in g for o in node.outputs)))
    return any(is_map(value) for value in values)


def is_map(value: ir.Value) -> bool:
    """Whether a value is a map or a sequence of maps."""
    kind = value.type
    inner = kind.elem_type if isinstance(kind, ir.SequenceType | ir.OptionalType) else None
    return (getattr(inner, "denotation", None) or "").startswith(_MARK)


def _hidden(kind: TypeProto) -> TypeProto:
    made = TypeProto()
    made.tensor_type.elem_type = kind.map_type.value_type.tensor_type.elem_type
    made.denotation = _MARK + TensorProto.DataType.Name(kind.map_type.key_type)
    return made


def _shown(kind: TypeProto) -> TypeProto:
    made = TypeProto()
    made.map_type.key_type = TensorProto.DataType.Value(kind.denotation.removeprefix(_MARK))
    made.map_type.value_type.tensor_type.elem_type = kind.tensor_type.elem_type
    return made


def _values(proto: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        yield from (*graph.input, *graph.output, *graph.value_info)
        graphs += [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
