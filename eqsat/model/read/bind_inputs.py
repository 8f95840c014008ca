"""Binds inputs of a model to values: they become constants, so that control flow and shapes that depend on them do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.schema.attributes import tensor_of
from eqsat.schema.opset import did_you_mean


def bind_values(model: ir.Model, values: Mapping[str, Any], place: str = "") -> None:
    """Replaces inputs by constants.

    Args:
        model: The model, changed in place.
        values: By input name a number, a nested list or an array of the input's shape. Numbers are converted to the
            input's element type if that does not change them.
        place: The file, for messages.

    Raises:
        ModelError: The model has no such input, or the value does not fit it.
    """
    inputs = {value.name or "": value for value in model.graph.inputs if value.name not in model.graph.initializers}
    for name, given in values.items():
        value = inputs.get(name)
        if value is None:
            known = ", ".join(inputs) or "none"
            hint = did_you_mean(name, inputs) or f"its inputs: {known}"
            raise ModelError(
                "the name of an input is required to bind a value",
                place=place or "values",
                actual=f"`{name}`",
                hint=hint,
            )
        where = f"{place}: input {name!r}" if place else f"input {name!r}"
        array = _as_declared(value, given, where)
        assert value.dtype is not None
        model.graph.inputs.remove(value)
        value.shape = ir.Shape(array.shape)
        value.const_value = tensor_of(array, value.dtype, name)
        model.graph.register_initializer(value)


def _as_declared(value: ir.Value, given: Any, where: str) -> np.ndarray:
    """The value with the element type of an input.

    Raises:
        ModelError: It is of another shape, or changes in that type.
    """
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise ModelError("a tensor is required to bind a value", place=where, actual=str(value.type))
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ModelError("a number, a list or an array is required", place=where, actual=str(error)) from error
    if value.dtype == ir.DataType.STRING:
        if array.dtype.kind not in "OSUT":
            raise ModelError("strings are required", place=where, actual=f"{array.dtype} {given!r}"[:100])
        converted = array.astype(object)
    else:
        if array.dtype.kind not in "biuf":
            wanted = "true or false is" if value.dtype == ir.DataType.BOOL else "numbers are"
            raise ModelError(f"{wanted} required", place=where, actual=f"{given!r}"[:100])
        with np.errstate(all="ignore"):
            converted = array.astype(value.dtype.numpy())
            back = converted.astype(np.float64)
        same = np.array_equal(back, array.astype(np.float64), equal_nan=True)
        if array.dtype.kind == "f" and value.dtype.is_floating_point():
            same = bool(np.isfinite(back[np.isfinite(array)]).all())
        if not same:
            raise ModelError(f"a value of type {value.dtype.name} is required", place=where, actual=f"{given!r}"[:100])
    shape = value.shape
    fits = shape is None or (
        len(shape) == array.ndim
        and all(not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True))
    )
    if not fits:
        raise ModelError(f"a value of shape {shape} is required", place=where, actual=f"shape {list(array.shape)}")
    return converted
