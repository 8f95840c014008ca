"""Saving: complete files or none, large weights in a second file, the same bytes each time."""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.files import reason, staged
from eqsat.model.write.concise import is_concise, make_concise
from eqsat.model.write.functions import with_definitions
from eqsat.model.write.older import with_source_opset
from eqsat.model.write.runnable import with_runnable
from eqsat.schema.attributes import tensor_of

EXTERNAL_FROM = 1 << 30
"""Bytes of weights from which they go into a file of their own (a protobuf ends at 2 GiB)."""


def save(
    model: ir.Model, path: str | os.PathLike[str], *, external_from: int = EXTERNAL_FROM, opset: int | None = None
) -> None:
    """Writes a model; a reader sees the old file or the new one, never a part. A device or a pipe gets it as one piece.

    Args:
        model: The model, not changed.
        path: The file to write. The suffix gives the format: ``.onnx``, ``.onnxtxt``, ``.textproto`` or ``.json``.
        external_from: Bytes of weights from which they are written to ``<path>.data`` beside it.
        opset: The newest opset to write. The model's is that of its input, or the least newer one that its operators
            need.

    Raises:
        ModelError: The directory does not exist or cannot be written to, or the model is not consistent, or an operator
            needs a newer opset than allowed.
    """
    target = Path(path)
    place = str(target)
    folder = target.parent
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such directory"
        raise ModelError("a directory to write to is required", place=str(folder), actual=what)
    if target.is_dir():
        raise ModelError("a file to write to is required", place=place, actual="a directory")
    model = with_runnable(with_definitions(model))
    if not is_concise(model):
        model = model.clone()
        make_concise(model)
    model = with_source_opset(model, opset)
    weights = _tensors(model)
    is_big = sum(t.nbytes for t in weights) >= external_from
    if any(isinstance(t, ir.ExternalTensor) for t in weights) and not is_big:
        model = _in_memory(model)
    data = f"{target.name}.data"
    try:
        # A reader of a link looks for the weights next to the link, not next to its target.
        with staged(target, follow=not is_big) as part:
            if is_big:
                ir.save(model, part, external_data=data, size_threshold_bytes=1024)
            else:
                ir.save(model, part)
    except OSError as error:
        raise ModelError("a place that can be written to is required", place=place, actual=reason(error)) from error
    except ir.serde.SerdeError as error:
        cause = error.__cause__ or error
        found = " ".join(str(cause).split())
        raise ModelError("a consistent onnx_ir model is required", place=place, actual=found) from error


def _tensors(model: ir.Model) -> list[ir.TensorProtocol]:
    graphs = [model.graph, *(g for g in model.graph.subgraphs())]
    values = [v for g in graphs for v in g.initializers.values()]
    return [v.const_value for v in values if v.const_value is not None]


def _in_memory(model: ir.Model) -> ir.Model:
    """A copy that contains its weights: external ones refer to a file next to the original model."""
    copy = model.clone()
    for graph in [copy.graph, *copy.graph.subgraphs()]:
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = tensor_of(tensor.numpy(), tensor.dtype, tensor.name)
    return copy
