"""Models as text, in ONNX's own syntax (``onnx.parser`` reads it again)."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.write.written_definitions import with_definitions

ELIDE = 64
"""Elements from which on a tensor is only named with its type."""


def to_text(model: ir.Model, *, elide: int | None = ELIDE) -> str:
    """The model in ONNX's text format.

    Args:
        model: The model, not changed.
        elide: Initializers with more elements become inputs of the printed graph, so that the text stays
            readable and can still be parsed; None prints everything.

    Raises:
        ModelError: The model is not consistent.
    """
    shown = with_definitions(model).clone()
    graph = shown.graph
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or elide is None or tensor.size <= elide:
            continue
        graph.initializers.pop(name)
        value.const_value = None
        value.type = ir.TensorType(tensor.dtype)
        value.shape = ir.Shape(tensor.shape.numpy())
        graph.inputs.append(value)
    try:
        proto = ir.to_proto(shown)
        _declare_once(proto.graph)
        return onnx.printer.to_text(proto)
    except ir.serde.SerdeError as error:
        cause = error.__cause__ or error
        raise ModelError("a consistent onnx_ir model is required", actual=" ".join(str(cause).split())) from error


def _declare_once(graph: onnx.GraphProto) -> None:
    """Drops declarations of values that initializers and inputs already declare, here and in subgraphs."""
    declared = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    others = [v for v in graph.value_info if v.name not in declared]
    del graph.value_info[:]
    graph.value_info.extend(others)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _declare_once(attribute.g)
