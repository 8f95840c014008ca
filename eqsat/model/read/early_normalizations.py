"""Normalizations that ONNX Runtime writes into ONNX's domain although the model's opset lacks them.

Its optimizer fuses a layer normalization whatever the opset of the model, and has an operator of its own for that
without a mean. They get a domain of their own until the model is at the pinned opset, and become ONNX's operators
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from eqsat.model.read.sources import UncheckedModel

_Imports = Any
"""A repeated field of protobuf."""

_DOMAIN = "onnxruntime.ahead"
_SINCE = {"LayerNormalization": 17, "SimplifiedLayerNormalization": 1 << 30}
"""The opset from which on ONNX has the operator."""
_NAMES = {"SimplifiedLayerNormalization": "RMSNormalization"}


def set_aside(source: UncheckedModel) -> None:
    """Moves the operators that are ahead of their opset to a domain of their own."""
    for scope, imports in _scopes(source.proto):
        version = next((e.version for e in imports if e.domain in ("", "ai.onnx")), 1)
        found = [node for node in _nodes(scope) if _is_ahead(node, version)]
        for node in found:
            node.domain = _DOMAIN
        if found and all(e.domain != _DOMAIN for e in imports):
            imports.add(domain=_DOMAIN, version=1)
            if scope is not source.proto.graph and all(e.domain != _DOMAIN for e in source.proto.opset_import):
                source.proto.opset_import.add(domain=_DOMAIN, version=1)


def take_back(source: UncheckedModel) -> bool:
    """Gives those operators their place in ONNX's domain, at the pinned opset; returns whether there are any."""
    found = False
    for scope, imports in _scopes(source.proto):
        for node in _nodes(scope):
            if node.domain == _DOMAIN:
                found = True
                node.domain = ""
                node.op_type = _NAMES.get(node.op_type, node.op_type)
        for entry in [e for e in imports if e.domain == _DOMAIN]:
            imports.remove(entry)
    return found


def _is_ahead(node: onnx.NodeProto, version: int) -> bool:
    if node.domain not in ("", "ai.onnx") or version >= _SINCE.get(node.op_type, 0):
        return False
    # ONNX's operator has no statistics.
    return node.op_type not in _NAMES or not any(node.output[1:])


def _scopes(model: onnx.ModelProto) -> Iterator[tuple[onnx.GraphProto | onnx.FunctionProto, _Imports]]:
    yield model.graph, model.opset_import
    for function in model.functions:
        yield function, function.opset_import


def _nodes(scope: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in scope.node:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") or attribute.graphs else ():
                yield from _nodes(graph)
