"""Repairs mistakes of ``onnx.version_converter`` after it ran.

The converter writes attributes that became inputs (the bounds of Clip, the value of Pad) as float32, whatever the type
of the tensor next to them. If it has no use for such an attribute (the value of a Pad that mirrors), it leaves it on
the node. It reshapes the operands of operators that were computed on a matrix (Softmax before opset 13) to a matrix and
back, but loses sizes of 0 and forgets Hardmax. It drops the sample positions of a Resize older than opset 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_LIKE_FIRST = {"Clip": (1, 2), "Pad": (2,)}
"""Operands that must have the type of the first."""
MISREAD = {"Hardmax": 13, "Resize": 11, "Upsample": 11}
"""Opset up to which the converter changes what an operator computes, where nothing here repairs it."""
_ON_MATRICES = ("Softmax", "LogSoftmax", "Hardmax")

ElementTypes = dict[str, int]
ValuePlace = tuple[str, ...]
"""First result and attribute of each node of control flow around a value, then the value; branches may share names."""


def element_types(model: onnx.ModelProto) -> ElementTypes:
    """Element type by name of all values that are not float32, as far as it is known."""
    found: ElementTypes = {}
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except Exception:  # onnx raises exceptions of many types here; the checks of the loader report the error
        typed = model
    _collect(typed.graph, found)
    return found


def needs_types(model: onnx.ModelProto) -> bool:
    """Whether the model has an operator whose operands the converter makes."""
    return _has_bounds(model.graph)


def give_types(model: onnx.ModelProto, types: Mapping[str, int]) -> None:
    """Gives constants that the converter made the type that their operator needs."""
    if types:
        _give(model.graph, types)


def drop_leftovers(graph: onnx.GraphProto) -> None:
    """Drops attributes that operators no longer have and that had no effect before."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                drop_leftovers(attribute.g)
        if node.op_type == "Pad" and not node.domain:
            kept = [a for a in node.attribute if a.name != "value"]
            if len(kept) < len(node.attribute):
                del node.attribute[:]
                node.attribute.extend(kept)


def flattened(model: onnx.ModelProto) -> set[ValuePlace]:
    """Results of operators that the converter computes on a matrix, if a tensor of the model may be empty."""
    graphs = list(_graphs(model.graph))
    if not any(_declares_empty(graph) for _, graph in graphs):
        return set()
    return {
        (*where, o)
        for where, graph in graphs
        for node in graph.node
        if node.op_type in _ON_MATRICES and not node.domain
        for o in node.output
    }


def keep_empty(model: onnx.ModelProto, results: set[ValuePlace]) -> None:
    """Makes Reshape keep sizes of 0 in such results, instead of copying the operand's size."""
    if not results:
        return
    for where, graph in _graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Reshape" and (*where, node.output[0]) in results:
                node.attribute.append(helper.make_attribute("allowzero", 1))


def hidden_hardmax(model: onnx.ModelProto) -> set[ValuePlace]:
    """Makes each Hardmax a Softmax, which the converter treats rightly, and returns their results."""
    found: set[ValuePlace] = set()
    for where, graph in _graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Hardmax" and not node.domain:
                node.op_type = "Softmax"
                found.add((*where, node.output[0]))
    return found


def restore_hardmax(model: onnx.ModelProto, results: set[ValuePlace]) -> None:
    """Undoes that, also where the operator has become one on a matrix."""
    for where, graph in _graphs(model.graph) if results else ():
        makers = {o: node for node in graph.node for o in node.output}
        for node in graph.node:
            if (*where, *node.output[:1]) in results:
                inner = node if node.op_type == "Softmax" else makers[node.input[0]]
                inner.op_type = "Hardmax"


def give_coordinates(graph: onnx.GraphProto) -> None:
    """Says where a Resize samples that is older than opset 11: at multiples of its step, and between two neighbours at
    the lower one, or the upper one if it makes tensors smaller (as ONNX's own tests of that opset do).
    """
    for _, here in _graphs(graph):
        constants = {t.name: t for t in here.initializer}
        for node in here.node:
            if node.op_type == "Constant" and not node.domain:
                constants.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
            if node.op_type != "Resize" or node.domain:
                continue
            scales = constants.get(node.input[2]) if len(node.input) > 2 else None
            shrinks = scales is not None and bool((numpy_helper.to_array(scales) <= 1).all())
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", "ceil" if shrinks else "floor"))


def _graphs(graph: onnx.GraphProto, where: ValuePlace = ()) -> Iterator[tuple[ValuePlace, onnx.GraphProto]]:
    """A graph and the bodies of its control flow, each with its place."""
    yield where, graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g, (*where, *node.output[:1], attribute.name))


def _declares_empty(graph: onnx.GraphProto) -> bool:
    kinds = (v.type.tensor_type for v in (*graph.input, *graph.value_info, *graph.output))
    sizes = (d.dim_value for kind in kinds for d in kind.shape.dim if d.HasField("dim_value"))
    return 0 in {*sizes, *(d for tensor in graph.initializer for d in tensor.dims)}


def _has_bounds(graph: onnx.GraphProto) -> bool:
    return any(
        node.op_type in _LIKE_FIRST or any(a.HasField("g") and _has_bounds(a.g) for a in node.attribute)
        for node in graph.node
    )


def _collect(graph: onnx.GraphProto, found: ElementTypes) -> None:
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type.elem_type
        if kind not in (TensorProto.UNDEFINED, TensorProto.FLOAT):
            found[value.name] = kind
    found.update({t.name: t.data_type for t in graph.initializer if t.data_type != TensorProto.FLOAT})
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _collect(attribute.g, found)


def _give(graph: onnx.GraphProto, types: Mapping[str, int]) -> None:
    constants = {t.name: t for t in graph.initializer}
    for node in graph.node:
        held = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        if node.op_type == "Constant" and held is not None:
            constants[node.output[0]] = held
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _give(attribute.g, types)
        if node.op_type not in _LIKE_FIRST or node.domain or not node.input or node.input[0] not in types:
            continue
        kind = types[node.input[0]]
        for place in _LIKE_FIRST[node.op_type]:
            tensor = constants.get(node.input[place]) if place < len(node.input) else None
            if tensor is not None and tensor.data_type == TensorProto.FLOAT:
                with np.errstate(over="ignore"):
                    array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
