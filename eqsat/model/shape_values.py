"""Values that follow from shapes: what ``Shape`` and the small integer arithmetic behind it compute.

Exporters spell ``reshape to (N, -1)`` as Shape, Gather, Unsqueeze, Concat, Reshape; inference must follow
such chains to know the result's shape. Only small integer tensors are followed, everything else is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.schema.attributes import attr
from eqsat.schema.integers import divided
from eqsat.schema.slices import as_slice, taken
from eqsat.schema.types import Attrs, OpKey, TensorAttr, TensorType

_LIMIT = 256


def propagate(
    op: OpKey,
    attrs: Attrs,
    types: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    output: TensorType | None,
) -> np.ndarray | None:
    """Value of a node's first output where it follows from its inputs' shapes and values, else None.

    Args:
        op: The operator.
        attrs: Its attributes.
        types: Types of its inputs, None for an absent one.
        values: Values of its inputs where known.
        output: Type of its first output.
    """
    if op.domain:
        return None
    if op.name == "Constant":
        return constant_value(attrs)
    if op.name in ("Shape", "Size"):
        return _of_shape(op.name, attrs, types[0])
    rule = _RULES.get(op.name)
    if rule is None or output is None or output.dtype not in _INTEGERS:
        return None
    given = [v for v, t in zip(values, types, strict=True) if t is not None]
    if not given or any(v is None or v.size > _LIMIT for v in given):
        return None
    try:
        with np.errstate(all="ignore"):
            result = rule(attrs, [v for v in given if v is not None])
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):  # the checks report it with a place
        return None
    return None if result is None or result.size > _LIMIT else result.astype(output.dtype.numpy())


def constant_value(attrs: Attrs) -> np.ndarray | None:
    """Value of a ``Constant`` node."""
    for name, value in attrs:
        if isinstance(value, TensorAttr):
            return value.array
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_string", "value_strings"):
            return np.asarray(value, object)
    return None


_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)


def _of_shape(name: str, attrs: Attrs, known: TensorType | None) -> np.ndarray | None:
    if known is None or known.shape is None:
        return None
    dims = known.shape
    if name == "Shape":
        start, end = attr(attrs, "start", 0), attr(attrs, "end")
        dims = dims[slice(start, end)]
    if not all(isinstance(d, int) for d in dims):
        return None
    sizes = [int(d) for d in dims if isinstance(d, int)]
    return np.asarray(sizes if name == "Shape" else math.prod(sizes), np.int64)


def _axes(attrs: Attrs, args: list[np.ndarray]) -> tuple[int, ...] | None:
    return tuple(int(a) for a in np.ravel(args[1])) if len(args) > 1 else None


def _slice(attrs: Attrs, args: list[np.ndarray]) -> np.ndarray:
    x, starts, ends = args[:3]
    axes = args[3] if len(args) > 3 else np.arange(len(starts))
    steps = args[4] if len(args) > 4 else np.ones(len(starts), np.int64)
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[int(axis)] = as_slice(taken(int(start), int(end), int(step), x.shape[axis]))
    return x[tuple(index)]


def _reshape(attrs: Attrs, args: list[np.ndarray]) -> np.ndarray:
    x, shape = args
    dims = [x.shape[i] if d == 0 and not attr(attrs, "allowzero", 0) else int(d) for i, d in enumerate(shape)]
    return x.reshape(dims)


def _divide(attrs: Attrs, args: list[np.ndarray]) -> np.ndarray | None:
    if np.any(args[1] == 0):
        return None
    return divided(args[0], args[1])


def _is_small(shape: np.ndarray) -> bool:
    """Whether an array of this shape is one that is followed."""
    return math.prod(int(d) for d in shape) <= _LIMIT


def _expand(attrs: Attrs, args: list[np.ndarray]) -> np.ndarray | None:
    x, shape = args
    return x * np.ones(shape.astype(int), x.dtype) if _is_small(shape) else None


def _range(attrs: Attrs, args: list[np.ndarray]) -> np.ndarray | None:
    start, limit, delta = (int(v) for v in args)
    numbers = range(start, limit, delta)
    # The length of a longer one need not fit into what len() returns.
    return np.array(numbers) if not numbers[_LIMIT:] else None


_RULES: dict[str, Callable[[Attrs, list[np.ndarray]], np.ndarray | None]] = {
    "Identity": lambda a, v: v[0],
    "Cast": lambda a, v: v[0],
    "Add": lambda a, v: v[0] + v[1],
    "Sub": lambda a, v: v[0] - v[1],
    "Mul": lambda a, v: v[0] * v[1],
    "Div": _divide,
    "Neg": lambda a, v: -v[0],
    "Max": lambda a, v: np.maximum.reduce(np.broadcast_arrays(*v)),
    "Min": lambda a, v: np.minimum.reduce(np.broadcast_arrays(*v)),
    "Equal": lambda a, v: v[0] == v[1],
    "Where": lambda a, v: np.where(v[0], v[1], v[2]),
    "Gather": lambda a, v: np.take(v[0], v[1], axis=attr(a, "axis", 0)),
    "Concat": lambda a, v: np.concatenate(v, axis=attr(a, "axis")),
    "Unsqueeze": lambda a, v: np.expand_dims(v[0], _axes(a, v) or ()),
    "Squeeze": lambda a, v: np.squeeze(v[0], _axes(a, v)),
    "Reshape": _reshape,
    "Slice": _slice,
    "Expand": _expand,
    "Range": _range,
    "ReduceProd": lambda a, v: np.prod(v[0], axis=_axes(a, v), keepdims=bool(attr(a, "keepdims", 1))),
    "ConstantOfShape": lambda a, v: np.full(v[0].astype(int), _fill(a)) if _is_small(v[0]) else None,
}


def _fill(attrs: Attrs) -> np.ndarray:
    value = attr(attrs, "value")
    return value.array.reshape(()) if isinstance(value, TensorAttr) else np.zeros((), np.float32)
