"""Constants, and Python values as operands: numbers and lists take the element type of the tensors next to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.expression import Tensor
from eqsat.model.validate.checks import contradiction
from eqsat.schema import opset
from eqsat.schema.types import OpKey, TensorType


def constant(
    value: Any, dtype: ir.DataType | None = None, *, place: str = "constant", name: str | None = None
) -> Tensor:
    """A constant tensor.

    Args:
        value: A number, a numpy array or nested lists.
        dtype: Its element type; by default the array's own, int64 for integers and float32 for other numbers.
        place: For messages.
        name: Its name in the graph.

    Raises:
        ModelError: The value is not a tensor, or cannot be converted to the element type.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ModelError("a number or an array of numbers is required", place=place, actual=repr(value)) from error
    if array.dtype == object and array.size and not all(isinstance(v, str | bytes) for v in array.ravel()):
        raise ModelError("a tensor, a number or an array is required", place=place, actual=type(value).__name__)
    own = isinstance(value, np.ndarray | np.generic)
    if dtype is None:
        if array.dtype.kind in "OUS":
            dtype = ir.DataType.STRING
        elif own:
            dtype = ir.DataType.from_numpy(array.dtype)
        else:
            kinds = {"b": ir.DataType.BOOL, "i": ir.DataType.INT64, "u": ir.DataType.INT64, "f": ir.DataType.FLOAT}
            dtype = kinds.get(array.dtype.kind, ir.DataType.FLOAT)
    if dtype != ir.DataType.STRING:
        wanted = dtype.numpy()
        if array.dtype.kind in "OUS":
            raise ModelError(f"numbers of type {wanted.name} are required", place=place, actual=_short(value))
        cast = array.astype(wanted)
        if array.dtype.kind == "f" and wanted.kind in "iub" and not np.array_equal(cast, array):
            raise ModelError(f"a value of type {wanted.name} is required", place=place, actual=_short(value))
        if array.dtype.kind in "iu" and wanted.kind in "iu" and not np.array_equal(cast.astype(array.dtype), array):
            raise ModelError(f"a value that fits {wanted.name} is required", place=place, actual=_short(value))
        array = cast
    array = np.array(array)  # the caller may write into the original later
    array.setflags(write=False)
    return Tensor(TensorType(dtype, array.shape), value=array, name=name)


def as_tensors(op: OpKey, operands: Sequence[Any], place: str) -> list[Tensor | None]:
    """Operands as tensors: numbers and lists take the element type of the tensors next to them."""
    found = opset.find_schema(op)
    formal = found.inputs if found is not None else []
    bound: dict[str, Tensor] = {}
    for i, operand in enumerate(operands):
        if isinstance(operand, np.ndarray | np.generic):
            operand = constant(operand, place=place)
        if isinstance(operand, Tensor) and formal and operand.type is not None:
            parameter = formal[min(i, len(formal) - 1)]
            other = bound.setdefault(parameter.type_str, operand)
            if parameter.is_homogeneous and other.type is not None and other.type.dtype != operand.type.dtype:
                why = f"{op} takes one element type for both; cast one of them with op.Cast, or an array with .astype"
                raise contradiction(place, [other.type, operand.type], why)
    tensors: list[Tensor | None] = []
    for i, operand in enumerate(operands):
        if operand is None or isinstance(operand, Tensor):
            tensors.append(operand)
            continue
        dtype = None
        if not isinstance(operand, np.ndarray | np.generic) and formal:
            type_str = formal[min(i, len(formal) - 1)].type_str
            allowed = opset.input_dtypes(op, i)
            neighbour = bound.get(type_str)
            if neighbour is not None and neighbour.type is not None:
                dtype = neighbour.type.dtype
            elif len(allowed) == 1:
                dtype = next(iter(allowed))
            else:
                dtype = _fitting(operand, allowed)
        tensors.append(constant(operand, dtype, place=place))
    return tensors


def _fitting(value: Any, allowed: frozenset[ir.DataType]) -> ir.DataType | None:
    """The natural type of a Python value where the operator accepts it, otherwise one that it accepts."""
    try:
        kind = np.asarray(value).dtype.kind
    except ValueError:  # ragged; making the constant says so
        return None
    order = {"b": ("BOOL",), "i": ("INT64", "INT32", "FLOAT"), "f": ("FLOAT", "DOUBLE")}.get(kind, ())
    return next((ir.DataType[name] for name in order if ir.DataType[name] in allowed), None)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
