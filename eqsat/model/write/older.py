"""Writes a model at the opset of its input, or at the least one that its operators need.

In memory every model is at the pinned opset, which is newer than what most runtimes load. A file is written as old as
its input was, if the operators in it exist there with the same meaning. Some are spelled differently there: axes were
attributes before they were inputs. An operator that is newer than the caller allows is replaced by its definition. This
history of the standard is only here and in :mod:`eqsat.schema.versions`, apart from today's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx import defs

from eqsat.errors import ModelError
from eqsat.model.inference.annotate import function_types
from eqsat.model.write.concise import is_neutral
from eqsat.model.write.references import bind_references
from eqsat.model.write.runnable import replace_by_definitions, scopes
from eqsat.model.write.too_new import Newer, TooNewError
from eqsat.schema import opset
from eqsat.schema.attributes import array_of, default_attrs, from_attrs, op_key, plain_value
from eqsat.schema.types import AttrValue, OpKey, TensorType, tensor_type
from eqsat.schema.versions import BECAME_INPUT, SOURCE_OPSET, history, ir_version_of, schema_at

OLDEST = 7
"""The oldest opset that is written; ONNX Runtime does not load older ones."""
FUNCTIONS_IR = 8
"""The IR version from which on models have functions."""
_OWN_INITIALIZERS_IR = 4


@dataclass(frozen=True, slots=True)
class OlderForm:
    """How a node is written at an opset.

    Attributes:
        attrs: Attributes to write, by name; those that are references to attributes of a function not included.
        removed: Attributes that are left out.
        inputs: How many inputs are written.
    """

    attrs: dict[str, AttrValue]
    removed: frozenset[str]
    inputs: int


def source_versions(model: ir.Model) -> tuple[int, int]:
    """The opset and IR version of the file that a model was read from; the pinned ones for a model that was built."""
    text = model.metadata_props.get(SOURCE_OPSET, "")
    versions = [int(part) for part in text.split(",") if part.isdecimal()]
    if len(versions) != 2:
        return opset.PINNED_OPSET, opset.IR_VERSION
    return min(versions[0], opset.PINNED_OPSET), min(versions[1], opset.IR_VERSION)


def with_source_opset(model: ir.Model, bound: int | None = None, *, flat: bool = False) -> ir.Model:
    """The model at the opset of its source, or at the least newer one that its operators need.

    Args:
        model: At the pinned opset; not changed.
        bound: The newest opset to write. Operators that are newer are replaced by their definitions.
        flat: Whether functions will be inlined, so that the IR version need not know any.

    Raises:
        TooNewError: Operators need a newer opset than the bound and have no definitions.
    """
    wanted, ir_version = source_versions(model)
    check_bound(bound)
    if bound is not None:
        wanted = min(wanted, bound)
    model = model.clone()
    model.metadata_props.pop(SOURCE_OPSET, None)
    types = function_types(model)
    if bound is not None and bound < opset.PINNED_OPSET:
        replace_by_definitions(model, types, lambda node: is_newer(node, types, bound))
    version = max(wanted, OLDEST)
    bind_references(model, lambda node: _unknown_references(node, version))
    types = function_types(model)
    newer: list[Newer] = []
    for node in _nodes(model):
        needed = least_opset(node, types, version if bound is None else min(version, bound))
        if bound is not None and needed > bound:
            newer.append(Newer.of(node, needed))
        version = max(version, needed)
    if newer and bound is not None:
        raise TooNewError(newer, bound)
    if version < opset.PINNED_OPSET:
        for node in list(_nodes(model)):
            _respell(node, types, version)
    for imports in (model.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if "" in imports:
            imports[""] = version
    least = ir_version_of(dict(model.opset_imports))
    model.ir_version = max(ir_version, least, FUNCTIONS_IR if model.functions and not flat else _OWN_INITIALIZERS_IR)
    return model


def check_bound(bound: int | None) -> None:
    """Raises ModelError for a newest opset at which no file is written."""
    if bound is not None and bound not in range(OLDEST, opset.PINNED_OPSET + 1):
        limits = f"from {OLDEST} to {opset.PINNED_OPSET}"
        raise ModelError(f"an opset {limits} is required", place="opset", actual=repr(bound))


def is_newer(node: ir.Node, types: Mapping[ir.Value, TensorType | None], bound: int) -> bool:
    """Whether a node cannot be written at an opset; for its arguments see :func:`least_opset`."""
    return least_opset(node, types, bound) > bound


def least_opset(node: ir.Node, types: Mapping[ir.Value, TensorType | None], wanted: int) -> int:
    """The least opset from ``wanted`` on at which a node can be written.

    Args:
        node: At the pinned opset.
        types: Types of the values in functions.
        wanted: Where to begin.
    """
    op = op_key(node)
    if op.domain or opset.find_schema(op) is None:
        return wanted
    since = sorted({max(s.since_version, wanted) for s in history(op.name)})
    return next((v for v in since if _form(node, types, v) is not None), opset.PINNED_OPSET)


# ---- one node ------------------------------------------------------------------------------------


def _form(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> OlderForm | None:
    """The form of a node at an opset; None if it has none."""
    op = op_key(node)
    schema = schema_at(op.name, version)
    if schema is None or not _is_expressible(node, op.name, types, version):
        return None
    references = {name for name, a in node.attributes.items() if a.is_ref()}
    attrs = _given(node)
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    written: dict[str, AttrValue] = {}
    name, since = BECAME_INPUT.get(op.name, ("", 0))
    if version < since and len(inputs) > 1:
        values = _constant(inputs[1])
        if values is None or not values.size:
            return None
        written[name] = tuple(int(x) for x in values.reshape(-1))
        inputs = inputs[:1]
    known = set(schema.attributes)
    extra = {n for n in attrs if n not in known}
    if references - known or any(not _is_left_out(op, n, attrs[n], node, types) for n in extra):
        return None
    now = dict(default_attrs(op))
    for n, a in schema.attributes.items():
        then = plain_value(ir.from_proto(a.default_value)) if a.default_value.name else None
        if n not in attrs and n not in references and n in now and now[n] != then:
            written[n] = now[n]
    if op.name == "GridSample" and version < 20:
        mode = {**now, **attrs}["mode"]
        written["mode"] = _OLDER_MODES.get(str(mode), mode)
    if any(a.required and n not in {*attrs, *references, *written} for n, a in schema.attributes.items()):
        return None
    outputs = [v for v in node.outputs if v.name]
    if not schema.min_input <= len(inputs) <= schema.max_input or len(outputs) > schema.max_output:
        return None
    if not _accepts(schema, [_type(v, types) for v in inputs], [_type(v, types) for v in node.outputs]):
        return None
    return OlderForm(written, frozenset(extra), len(inputs))


def _unknown_references(node: ir.Node, version: int) -> set[str]:
    """Attributes of a node that refer to attributes of a function, and that its operator lacks at an opset."""
    references = {name for name, a in node.attributes.items() if a.is_ref()}
    schema = schema_at(node.op_type, version) if references and not node.domain else None
    return set() if schema is None else references - set(schema.attributes)


def _is_left_out(
    op: OpKey, name: str, value: AttrValue, node: ir.Node, types: Mapping[ir.Value, TensorType | None]
) -> bool:
    """Whether a node without an attribute does the same at an opset that does not have the attribute."""
    if op.name == "Split" and name == "num_outputs":
        known = _type(node.inputs[0], types)
        axis = _complete(node).get("axis", 0)
        size = None if known is None or known.shape is None or not isinstance(axis, int) else known.shape[axis]
        return isinstance(size, int) and isinstance(value, int) and size % value == 0
    if op.name in ("QuantizeLinear", "DequantizeLinear") and name == "axis":
        return True  # Before it existed, scales are scalars, and for those it says nothing.
    if op.name == "RoiAlign" and name == "coordinate_transformation_mode":
        return True  # It says what was done before there was a choice.
    if name == "noop_with_empty_axes" and len(node.inputs) > 1:
        return True  # There are axes: as an attribute they are not empty.
    return is_neutral(op, name, value)


def _is_expressible(node: ir.Node, name: str, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    check = _MEANT_ELSE.get(name)
    return check is None or check(node, types, version)


def _on_last_axis(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    """Before opset 13 these operators worked on a matrix: the axis and all after it were one."""
    known = _type(node.inputs[0], types)
    axis = _complete(node).get("axis", -1)
    if version >= 13:
        return True
    return known is not None and known.shape is not None and axis in (-1, len(known.shape) - 1)


def _with_scalar_scale(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    known = _type(node.inputs[1], types)
    return version >= 13 or (known is not None and known.shape == ())


def _inference(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    attrs = _complete(node)
    return version >= 14 or (not attrs.get("training_mode", 0) and sum(bool(v.name) for v in node.outputs) == 1)


def _since(least: int) -> Callable[[ir.Node, Mapping[ir.Value, TensorType | None], int], bool]:
    return lambda node, types, version: version >= least


def _resize(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    mode = _complete(node).get("coordinate_transformation_mode", "half_pixel")
    return version >= (19 if mode == "half_pixel_symmetric" else 13)


def _reduced(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    """Without axes all are reduced, unless ``noop_with_empty_axes``, a newer attribute, says otherwise."""
    noop = _complete(node).get("noop_with_empty_axes", 0)
    return version >= BECAME_INPUT[node.op_type][1] or not noop or len(node.inputs) > 1


def _scattered(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    return version >= 18 or _complete(node).get("reduction", "none") not in ("min", "max")


def _pooled(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    """Before opset 22 a last window that begins in the padding counted, and before 19 it was not clear how."""
    attrs = _complete(node)
    if version >= 22 or not attrs.get("ceil_mode", 0):
        return True
    if version < 19 and attrs.get("count_include_pad", 0):
        return False
    known, result = _type(node.inputs[0], types), _type(node.outputs[0], types)
    if known is None or known.shape is None:
        return False
    kernel, rank = attrs.get("kernel_shape"), len(known.shape) - 2
    if not isinstance(kernel, tuple) or attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    strides, dilations = (_window(attrs, name, 1, rank) for name in ("strides", "dilations"))
    pads = _window(attrs, "pads", 0, 2 * rank)
    spans = [(int(kernel[i]) - 1) * dilations[i] + 1 for i in range(rank)]
    if all(pads[i + rank] + strides[i] <= spans[i] for i in range(rank)):
        return True  # The last window ends at most a stride after the padding, and so begins before it.
    if result is None or result.shape is None or not result.is_static:
        return False
    for i, (size, made) in enumerate(zip(known.shape[2:], result.shape[2:], strict=True)):
        if not isinstance(size, int):
            return False
        free = size + pads[i] + pads[i + rank] - spans[i]
        if made != -(-free // strides[i]) + 1:
            return False
    return True


def _window(attrs: Mapping[str, AttrValue], name: str, default: int, count: int) -> list[int]:
    given = attrs.get(name)
    return [int(x) for x in given] if isinstance(given, tuple) and given else [default] * count


def _clipped(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    """Bounds became inputs in opset 11; ONNX Runtime's kernel of that opset is for float32 only."""
    known = _type(node.inputs[0], types)
    return version >= 12 or (version == 11 and known is not None and known.dtype == ir.DataType.FLOAT)


def _padded(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    """The widths became an input in opset 11; circular padding came later."""
    return version >= (19 if _complete(node).get("mode", "constant") == "wrap" else 11)


def _aligned(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    return version >= 16 or _complete(node).get("coordinate_transformation_mode") == "output_half_pixel"


def _sampled(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> bool:
    """Before opset 20 there were images only, for which ONNX Runtime had a kernel of float32 only."""
    known = _type(node.inputs[0], types)
    if known is None or known.shape is None or len(known.shape) != 4:
        return version >= 20
    return version >= 20 or known.dtype == ir.DataType.FLOAT


_OLDER_MODES = {"linear": "bilinear", "cubic": "bicubic"}
"""How GridSample called its modes before opset 20."""

_MEANT_ELSE: dict[str, Callable[[ir.Node, Mapping[ir.Value, TensorType | None], int], bool]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _on_last_axis),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _with_scalar_scale),
    **dict.fromkeys((name for name in BECAME_INPUT if name.startswith("Reduce")), _reduced),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scattered),
    **dict.fromkeys(("Min", "Max", "Mean", "Sum"), _since(8)),
    **dict.fromkeys(("Gather", "OneHot"), _since(11)),  # negative indices
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pooled),
    "BatchNormalization": _inference,
    "Clip": _clipped,
    "Dropout": _since(12),
    "GridSample": _sampled,
    "GroupNormalization": _since(21),
    "Pad": _padded,
    "Resize": _resize,
    "RoiAlign": _aligned,
    "Scan": _since(9),
}
"""Nodes that an older schema accepts, but with another meaning."""


def _accepts(schema: defs.OpSchema, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType | None]) -> bool:
    """Whether the element types are allowed, and equal where the schema requires it. Unknown ones are allowed."""
    bound: dict[str, ir.DataType] = {}
    for formals, types in ((schema.inputs, inputs), (schema.outputs, outputs)):
        for i, known in enumerate(types):
            if known is None or not formals:
                continue
            formal = formals[min(i, len(formals) - 1)]
            if known.dtype not in opset.dtypes(formal.types):
                return False
            if formal.is_homogeneous and bound.setdefault(formal.type_str, known.dtype) != known.dtype:
                return False
    return True


def _respell(node: ir.Node, types: Mapping[ir.Value, TensorType | None], version: int) -> None:
    op = op_key(node)
    if op.domain or opset.find_schema(op) is None:
        return
    form = _form(node, types, version)
    assert form is not None
    for name in form.removed:
        node.attributes.pop(name)
    for attribute in from_attrs(tuple(sorted(form.attrs.items())), op):
        node.attributes[attribute.name] = attribute
    dropped = [v for v in node.inputs[form.inputs :] if v is not None]
    if len(node.inputs) > form.inputs:
        node.resize_inputs(form.inputs)
    for value in dropped:
        _forget(value)


def _forget(value: ir.Value) -> None:
    """Removes a constant that nothing reads any more."""
    if value.uses() or value.is_graph_output():
        return
    producer = value.producer()
    if producer is not None and producer.graph is not None:
        producer.graph.remove(producer, safe=True)
    elif value.is_initializer() and value.graph is not None:
        value.graph.initializers.pop(value.name or "")


def _given(node: ir.Node) -> dict[str, AttrValue]:
    """The attributes of a node that are not references to those of a function."""
    return {name: plain_value(a) for name, a in node.attributes.items() if not a.is_ref()}


def _complete(node: ir.Node) -> dict[str, AttrValue]:
    return {**dict(default_attrs(op_key(node))), **_given(node)}


def _constant(value: ir.Value | None) -> np.ndarray | None:
    if value is None:
        return None
    if value.const_value is not None and value.is_initializer():
        return array_of(value.const_value)
    producer = value.producer()
    tensor = None if producer is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def _type(value: ir.Value | None, types: Mapping[ir.Value, TensorType | None]) -> TensorType | None:
    return None if value is None else types[value] if value in types else tensor_type(value)


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for scope in scopes(model):
        yield from scope
