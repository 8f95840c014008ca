"""Types of tensors that are made from maps."""

from __future__ import annotations

import onnx_ir as ir
import onnx_shape_inference as osi

from eqsat.model.map_types import is_map
from eqsat.ops.families.maps import ML

_CAST_TO = {
    "TO_FLOAT": ir.DataType.FLOAT,
    "TO_INT64": ir.DataType.INT64,
    "TO_STRING": ir.DataType.STRING,
}


def register() -> None:
    """Adds the rules of the operators to the package's registry."""
    osi.registry.register(ML, "DictVectorizer")(_dict_vectorizer)
    osi.registry.register(ML, "CastMap")(_cast_map)


def _dict_vectorizer(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    (given,) = node.inputs
    if given is None or not is_map(given):
        return
    keys = node.attributes.get("string_vocabulary") or node.attributes.get("int64_vocabulary")
    if keys is not None and not keys.ref_attr_name:
        context.set_shape_and_dtype(node.outputs[0], ir.Shape([1, len(keys.value)]), given.dtype)


def _cast_map(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    if any(attribute.ref_attr_name for attribute in node.attributes.values()):
        return
    kind, form, size = (node.attributes.get(name) for name in ("cast_to", "map_form", "max_map"))
    sparse = form is not None and form.as_string() == "SPARSE"
    length = (1 if size is None else size.as_int()) if sparse else context.new_symbolic_dim()
    dtype = _CAST_TO.get("TO_FLOAT" if kind is None else kind.as_string())
    context.set_shape_and_dtype(node.outputs[0], ir.Shape([1, length]), dtype)
