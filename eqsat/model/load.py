"""Loading: turns any source of a model into a checked ``onnx_ir.Model`` in normal form.

The steps: read and set the weights aside, give a file without functions its own back, check, inline foreign functions,
upgrade to the pinned opset, tidy up the graph, bind dimensions, infer types.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import ModelError
from eqsat.model.inference.annotate import annotate
from eqsat.model.kept_floats import mark_floats
from eqsat.model.map_types import hide_maps, show_maps
from eqsat.model.read.bind_inputs import bind_values
from eqsat.model.read.declared_calls import use_declarations
from eqsat.model.read.dims import bind, require_agreement
from eqsat.model.read.early_normalizations import set_aside, take_back
from eqsat.model.read.flattened import restore_functions
from eqsat.model.read.given_sizes import Bound
from eqsat.model.read.loop_numbers import take_scalars
from eqsat.model.read.recognize import recognize
from eqsat.model.read.remarks import put_back, remarks_of
from eqsat.model.read.sources import ModelSource, UncheckedModel, read
from eqsat.model.read.sparse import make_dense
from eqsat.model.read.tidy import tidy
from eqsat.model.read.upgrade import inline_foreign, opset_of, upgrade
from eqsat.model.symbols import name_dims, shaped_values
from eqsat.model.validate.model import check, validate
from eqsat.schema import opset
from eqsat.schema.versions import SOURCE_OPSET, opset_of_ir_version

GivenModel = ModelSource
"""The kinds of sources that a model can be loaded from."""


def load(
    source: GivenModel, *, dims: Mapping[str, Bound] | None = None, values: Mapping[str, Any] | None = None
) -> ir.Model:
    """Loads, checks and normalises a model.

    Args:
        source: Path, bytes, ONNX text, ``onnx.ModelProto`` or ``onnx_ir.Model``; the last two are not changed.
        dims: Sizes for symbolic dimensions, such as ``{"N": 1}``, or expressions of others, ``{"T": "P + S"}``. A
            dimension without a name is called after its input: ``x_0`` is the first of ``x``.
        values: Values for inputs, which become constants, such as ``{"sr": 16000}``.

    Returns:
        A model at the pinned opset: every value has its type and shape, attributes are explicit and axes counted
        from the front, constants are initializers, functions of others are inlined. Names are kept.

    Raises:
        ModelError: The source is not a model, or it has an error; the message gives the place.
        LimitError: Loading exceeds the limits of memory or time.

    Examples:
        >>> from eqsat.model.load import load
        >>> model = load('''<ir_version: 8, opset_import: ["": 11]>
        ... g (float[N, 4] x) => (float[N, 4] y) { y = Softmax<axis=-1>(x) }''', dims={"N": 2})
        >>> model.graph.outputs[0].shape
        Shape([2, 4])
    """
    place = str(source) if isinstance(source, str | os.PathLike) and "\n" not in str(source) else "the model"
    with bounds.without_collection(), bounds.bounded(place=place):
        try:
            return finish(read(source), dims, values)
        except UnicodeDecodeError as error:
            raise ModelError(
                "names in UTF-8 are required", place=place, actual=f"bytes {error.object[:40]!r}"
            ) from error


def finish(
    source: UncheckedModel, dims: Mapping[str, Bound] | None = None, values: Mapping[str, Any] | None = None
) -> ir.Model:
    """All steps after reading: check, upgrade, normalise."""
    show_maps(source.proto)
    imported = any(not opset.canonical_domain(entry.domain) for entry in source.proto.opset_import)
    version = opset_of(source.proto) if imported else opset_of_ir_version(source.proto.ir_version)
    versions = f"{version},{source.proto.ir_version}"
    restore_functions(source)
    remarks = remarks_of(source.proto)
    set_aside(source)
    make_dense(source)
    check(source)
    use_declarations(source)
    inline_foreign(source)
    validate(source)
    upgrade(source)
    if take_back(source):
        check(source)
    hide_maps(source.proto)
    try:
        model = ir.from_proto(source.proto)
    except Exception as error:  # onnx_ir has no common base of its errors
        raise ModelError("a model that onnx_ir can read is required", place=source.place, actual=str(error)) from error
    _type_operands(model, source.proto)
    mark_floats(model)
    model.ir_version = opset.IR_VERSION
    model.metadata_props.setdefault(SOURCE_OPSET, versions)
    model.graph.opset_imports.setdefault("", opset.PINNED_OPSET)
    recognize(model)
    take_scalars(model)
    tidy(model, source.weights, remarks.parameters)
    bind_values(model, values or {}, source.place)
    name_dims(model)
    open_shapes = {value: value.shape for value in shaped_values(model)} if dims else {}
    bound = bind(model, dims or {}, source.place)
    try:
        annotate(model, source.place, outputs_may_change=bound or bool(values))
    except ModelError:
        for value, shape in open_shapes.items():
            value.shape = shape
        require_agreement(model, dims or {}, source.place)
        raise
    put_back(model, remarks)
    return model


def _type_operands(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Gives inputs of functions the types from the file; onnx_ir only reads the types of other values."""
    for function, written in zip(model.functions.values(), proto.functions, strict=True):
        stated = {info.name: info.type for info in written.value_info}
        for value in function.inputs:
            kind = stated.get(value.name or "")
            if kind is not None and value.type is None:
                read = ir.serde.deserialize_type_proto_for_type(kind)
                value.type, value.shape = read, ir.serde.deserialize_type_proto_for_shape(kind)
