"""A model in float64: every float type of its tensors, attributes and subgraphs becomes double."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
FLOATS = tuple(map(np.dtype, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)))
TYPED = ("to", "dtype", "stash_type", "precision", "softmax_precision", "saturate_type")
"""Attributes whose number is an element type."""


def is_float(dtype: np.dtype) -> bool:
    return dtype in FLOATS


def widened(array: np.ndarray) -> np.ndarray:
    """The same numbers in float64."""
    return array.astype(np.float64) if is_float(array.dtype) else array


def narrowed(array: np.ndarray, dtype: np.dtype | None) -> np.ndarray:
    """Numbers as a type holds them."""
    if dtype is None or not is_float(dtype) or not is_float(array.dtype):
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def wide_attribute(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """An attribute of a node that computes in float64."""
    result = onnx.AttributeProto()
    result.CopyFrom(attribute)
    if result.name in TYPED and result.i in NARROW:
        result.i = TensorProto.DOUBLE
    if result.HasField("t"):
        result.t.CopyFrom(_wide_tensor(result.t))
    for graph in _graphs(result):
        _widen_graph(graph)
    return result


def wide_constant(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """Attributes of a node; floats that a ``Constant`` holds become a tensor of doubles."""
    found = []
    for attribute in node.attribute:
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            held = np.float64(attribute.f) if attribute.name == "value_float" else np.array(attribute.floats, float)
            found.append(helper.make_attribute("value", numpy_helper.from_array(np.asarray(held))))
        else:
            found.append(wide_attribute(attribute))
    return found


def _graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        tensor.CopyFrom(_wide_tensor(tensor))
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type in NARROW:
            kind.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        attributes = wide_constant(node)
        del node.attribute[:]
        node.attribute.extend(attributes)


def _wide_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_type not in NARROW:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
