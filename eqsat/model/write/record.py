"""The nodes and functions of a model as text, which a file without functions contains.

Weights are not part of the record. Those in bodies of control flow are replaced by their hash and stay where they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

from eqsat.schema.packed import packed, unpacked

HEAVY = 1024
"""Bytes from which a tensor is replaced by its hash."""
TYPES_IR = 10
"""The IR version from which on functions state the types of their values."""
MOST = 1 << 27
"""Bytes of a record that is read."""
_HASH = "sha256"


def record_of(model: ir.Model) -> str:
    """The nodes, functions, opsets and inputs of a model."""
    record = onnx.ModelProto()
    record.graph.node.extend(ir.to_proto(node) for node in model.graph)
    record.graph.input.extend(ir.to_proto(value) for value in model.graph.inputs)
    record.functions.extend(ir.to_proto(function) for function in model.functions.values())
    if model.ir_version < TYPES_IR:
        for function in record.functions:
            del function.value_info[:]
    record.opset_import.extend(
        onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in model.opset_imports.items()
    )
    for tensor in _tensors(record):
        digest = _digest(tensor)
        if digest:
            kept = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            kept.data_location = onnx.TensorProto.EXTERNAL
            kept.external_data.add(key=_HASH, value=digest)
            tensor.CopyFrom(kept)
    return packed(record.SerializeToString(deterministic=True))


def read_record(text: str, model: onnx.ModelProto) -> onnx.ModelProto:
    """The record of a model with its tensors.

    Args:
        text: The record, which is not trusted.
        model: The model without functions, which has the tensors.

    Raises:
        ValueError: The text is not a record, or the model lacks one of its tensors.
    """
    record = onnx.ModelProto()
    try:
        record.ParseFromString(unpacked(text, MOST))
    except ValueError:
        raise
    except Exception as error:  # the exceptions of protobuf depend on how it was built
        raise ValueError(str(error)) from error
    missing = [tensor for tensor in _tensors(record) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if missing:
        known = {digest: tensor for tensor in _tensors(model) if (digest := _digest(tensor))}
        for tensor in missing:
            wanted = [entry.value for entry in tensor.external_data if entry.key == _HASH]
            if len(wanted) != 1 or wanted[0] not in known:
                raise ValueError(f"the model has no tensor {tensor.name!r}")
            name = tensor.name
            tensor.CopyFrom(known[wanted[0]])
            tensor.name = name
    return record


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors in attributes and in bodies of control flow."""
    yield from _of_nodes(model.graph.node)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            yield from graph.initializer
            yield from _of_nodes(graph.node)


def _digest(tensor: onnx.TensorProto) -> str:
    """The hash of a heavy tensor's type, shape and elements; empty for any other tensor."""
    if len(tensor.raw_data) < HEAVY:
        return ""
    kind = f"{tensor.data_type}:{list(tensor.dims)}:".encode()
    return hashlib.sha256(kind + tensor.raw_data).hexdigest()
