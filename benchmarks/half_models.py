"""float32 models in half precision, as converters write them: weights, inputs and results are float16.

Numbers that float16 does not hold become its greatest ones, and those below its least ones keep a magnitude of 1e-7.
Operands for which an operator wants float32, such as the scales of ``Resize``, get it by a ``Cast``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_FLOAT, _HALF = TensorProto.FLOAT, TensorProto.FLOAT16
LARGEST, LEAST = 65504.0, 1e-7


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in float16; types inside are left to inference."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    versions = {entry.domain: entry.version for entry in made.opset_import}
    _convert(made.graph, versions, _floats(onnx.shape_inference.infer_shapes(model).graph))
    return made


def _floats(graph: onnx.GraphProto) -> set[str]:
    """The tensors in float32, of bodies as well."""
    values = (*graph.input, *graph.output, *graph.value_info)
    found = {v.name for v in values if v.type.tensor_type.elem_type == _FLOAT}
    found |= {t.name for t in graph.initializer if t.data_type == _FLOAT}
    return found.union(*(_floats(a.g) for node in graph.node for a in node.attribute if a.HasField("g")))


def _convert(graph: onnx.GraphProto, versions: dict[str, int], floats: set[str]) -> None:
    for tensor in graph.initializer:
        _convert_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _FLOAT:
            value.type.tensor_type.elem_type = _HALF
    del graph.value_info[:]
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        before, after = _casts(node, versions, floats)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _convert(attribute.g, versions, floats)
            elif attribute.HasField("t"):
                _convert_tensor(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i == _FLOAT:
                attribute.i = _HALF
        graph.node.extend([*before, node, *after])


def _convert_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type != _FLOAT:
        return
    x = numpy_helper.to_array(tensor)
    small = (x != 0) & (np.abs(x) < LEAST)
    x = np.where(small, np.copysign(LEAST, x), np.clip(x, -LARGEST, LARGEST))
    tensor.CopyFrom(numpy_helper.from_array(x.astype(np.float16), tensor.name))


def _casts(
    node: onnx.NodeProto, versions: dict[str, int], floats: set[str]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Conversions around an operator that knows no float16; its operands are renamed."""
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return [], []
    before, after = [], []
    for i, (name, kinds) in enumerate(_given(node.input, schema.inputs)):
        if name in floats and "tensor(float16)" not in kinds:
            before.append(helper.make_node("Cast", [name], [f"{node.output[0]}__{i}_float"], to=_FLOAT))
            node.input[i] = before[-1].output[0]
    for i, (name, kinds) in enumerate(_given(node.output, schema.outputs)):
        if name in floats and "tensor(float16)" not in kinds:
            after.append(helper.make_node("Cast", [f"{name}__float"], [name], to=_HALF))
            node.output[i] = after[-1].input[0]
    return before, after


def _given(
    names: Sequence[str], formal: Sequence[onnx.defs.OpSchema.FormalParameter]
) -> Iterator[tuple[str, set[str]]]:
    """The operands with the types that each may have; the last one may stand for several."""
    for i, name in enumerate(names):
        yield name, set(formal[min(i, len(formal) - 1)].types)
