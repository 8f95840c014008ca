"""A model of the newest opset as one of an older opset would say it: what is an input now was an attribute then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from eqsat.schema.opset import canonical_domain
from tests.fuzz.growing import RefusedError

Arrays = Mapping[str, np.ndarray]
"""Constants by name."""

OLDEST = 7

_AXES_TO_ATTRIBUTE = {
    "Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18, "ReduceMin": 18, "ReduceL1": 18,
    "ReduceL2": 18, "ReduceLogSumExp": 18, "ReduceSumSquare": 18, "ReduceProd": 18,
}  # fmt: skip
_DROPPED = {"num_outputs", "noop_with_empty_axes"}
"""Attributes that may go although they are not at their default, if what is left means the same or is refused."""


def at(model: onnx.ModelProto, version: int, dtypes: Mapping[str, np.dtype]) -> onnx.ModelProto:
    """The model at an older opset.

    Args:
        dtypes: Element type of each value.

    Raises:
        RefusedError: An operator has no such spelling.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    arrays = {
        t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type != onnx.TensorProto.STRING
    }
    for node in result.graph.node:
        _rewrite(node, version, arrays, dtypes)
    read = (
        {i for n in result.graph.node for i in n.input}
        | {o.name for o in result.graph.output}
        | _inner_reads(result.graph)
    )
    kept = [t for t in result.graph.initializer if t.name in read]
    del result.graph.initializer[:]
    result.graph.initializer.extend(kept)
    del result.opset_import[:]
    domains = {canonical_domain(n.domain) for n in result.graph.node}
    result.opset_import.append(helper.make_opsetid("", version))
    result.opset_import.extend(o for o in model.opset_import if o.domain and o.domain in domains)
    result.ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", version)], ignore_unknown=True)
    return result


def _inner_reads(graph: onnx.GraphProto) -> set[str]:
    found: set[str] = set()
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                for child in attribute.g.node:
                    found.update(child.input)
                found.update(o.name for o in attribute.g.output)
                found |= _inner_reads(attribute.g)
    return found


def _rewrite(node: onnx.NodeProto, version: int, arrays: Arrays, dtypes: Mapping[str, np.dtype]) -> None:
    if node.domain:
        return
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = {t.name: numpy_helper.to_array(t) for t in attribute.g.initializer}
            for child in attribute.g.node:
                _rewrite(child, version, {**arrays, **inner}, dtypes)
    spelling = _SPELLINGS.get(node.op_type)
    since = _AXES_TO_ATTRIBUTE.get(node.op_type)
    if since is not None and version < since:
        _to_attribute(node, 1, "axes", arrays)
    if spelling is not None and version < spelling[0]:
        spelling[1](node, version, arrays)
    try:
        schema = defs.get_schema(node.op_type, version)
    except defs.SchemaError:
        raise RefusedError(f"no {node.op_type} in opset {version}") from None
    if schema.deprecated or len(node.input) > schema.max_input or len(node.output) > schema.max_output:
        raise RefusedError(f"{node.op_type} of opset {version}")
    if len(node.input) < schema.min_input:
        raise RefusedError(f"{node.op_type} of opset {version}")
    newest = defs.get_schema(node.op_type)
    for attribute in list(node.attribute):
        if attribute.name in schema.attributes:
            continue
        default = newest.attributes[attribute.name].default_value if attribute.name in newest.attributes else None
        same = default is not None and default.SerializeToString() == attribute.SerializeToString()
        if not same and attribute.name not in _DROPPED:
            raise RefusedError(f"{node.op_type} of opset {version} has no {attribute.name}")
        if attribute.name == "noop_with_empty_axes" and attribute.i:
            raise RefusedError("axes")
        node.attribute.remove(attribute)
    _check_types(node, schema, dtypes)


def _check_types(node: onnx.NodeProto, schema: defs.OpSchema, dtypes: Mapping[str, np.dtype]) -> None:
    for i, name in enumerate(node.input):
        dtype = dtypes.get(name)
        if not name or dtype is None:
            continue
        kind = onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)
        text = f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})"
        allowed = schema.inputs[min(i, len(schema.inputs) - 1)].types
        if text not in allowed and f"seq({text})" not in allowed:
            raise RefusedError(f"{node.op_type} takes no {text}")


def _known(name: str, arrays: Arrays) -> np.ndarray:
    if name not in arrays:
        raise RefusedError("a constant is needed")
    return arrays[name]


def _to_attribute(node: onnx.NodeProto, place: int, name: str, arrays: Arrays) -> None:
    if len(node.input) <= place:
        return
    if node.input[place]:
        held = _known(node.input[place], arrays)
        kind = float if held.dtype.kind not in "iu" else int
        value = [kind(v) for v in held.ravel()]
        if not value:
            raise RefusedError("empty")
        if held.ndim == 0 or (name in ("k", "min", "max", "value", "ratio")):
            node.attribute.append(helper.make_attribute(name, value[0]))
        else:
            node.attribute.append(helper.make_attribute(name, value))
    node.input[place] = ""
    while node.input and not node.input[-1]:
        del node.input[-1]


def _several(*names: str) -> Callable[[onnx.NodeProto, int, Arrays], None]:
    def rewrite(node: onnx.NodeProto, version: int, arrays: Arrays) -> None:
        if len(node.input) > len(names) + 1 and any(node.input[len(names) + 1 :]):
            raise RefusedError(node.op_type)
        for place in range(len(names), 0, -1):
            _to_attribute(node, place, names[place - 1], arrays)

    return rewrite


def _dropout(node: onnx.NodeProto, version: int, arrays: Arrays) -> None:
    if len(node.input) > 2:
        if node.input[2] and _known(node.input[2], arrays).any():
            raise RefusedError("training")
        del node.input[2]
    _to_attribute(node, 1, "ratio", arrays)


def _split(node: onnx.NodeProto, version: int, arrays: Arrays) -> None:
    _to_attribute(node, 1, "split", arrays)


def _uneven(node: onnx.NodeProto, version: int, arrays: Arrays) -> None:
    if any(a.name == "num_outputs" for a in node.attribute):
        raise RefusedError("an even split is not known to be even")
    if version < 13:
        _split(node, version, arrays)


def _resize(node: onnx.NodeProto, version: int, arrays: Arrays) -> None:
    """Resize of opset 10 has no region, before it the operator was called Upsample."""
    kept = [a for a in node.attribute if a.name == "mode"]
    if version >= 11:
        return
    if len(node.input) != 3 or node.input[1] or (kept and kept[0].s != b"nearest"):
        raise RefusedError("Resize")
    del node.attribute[:]
    node.attribute.extend(kept)
    del node.input[1]
    if version < 10:
        node.op_type = "Upsample"
        if version < 9:
            scales = _known(node.input[1], arrays)
            node.attribute.append(helper.make_attribute("scales", [float(v) for v in scales]))
            del node.input[1]


def _topk(node: onnx.NodeProto, version: int, arrays: Arrays) -> None:
    kept = [a for a in node.attribute if a.name == "axis"]
    if any(a.name == "largest" and not a.i for a in node.attribute):
        raise RefusedError("TopK")
    del node.attribute[:]
    node.attribute.extend(kept)
    if version < 10:
        _to_attribute(node, 1, "k", arrays)


_SPELLINGS: dict[str, tuple[int, Callable[[onnx.NodeProto, int, Arrays], None]]] = {
    "Clip": (11, _several("min", "max")),
    "Pad": (11, _several("pads", "value")),
    "Slice": (10, _several("starts", "ends", "axes")),
    "Split": (18, _uneven),
    "Dropout": (12, _dropout),
    "Resize": (11, _resize),
    "TopK": (11, _topk),
}
