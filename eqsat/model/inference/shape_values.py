"""Values that follow from shapes: the results of ``Shape`` and of the small integer arithmetic after it.

Exporters spell ``reshape to (N, -1)`` as Shape, Gather, Unsqueeze, Concat, Reshape; inference must follow
such chains to know the result's shape. Only small integer tensors are followed, everything else is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import constant_value, evaluate, try_need
from eqsat.ops.needs import is_parametric
from eqsat.ops.operators import has
from eqsat.ops.schemas import defaults
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, OpKey, TensorType

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
    if has(op, Trait.BY_TYPE):
        return _of_shape(op.name, attrs, types[0])
    if not has(op, Trait.SIZES) or output is None or output.dtype not in _INTEGERS:
        return None
    known = [None if t is None else v for v, t in zip(values, types, strict=True)]
    given = [v for v, t in zip(values, types, strict=True) if t is not None]
    if not given or any(v is None or v.size > _LIMIT for v in given):
        return None
    need = try_need(op, {**defaults(op), **dict(attrs)}, known) if is_parametric(op) else None
    if need is not None and need.elements > _LIMIT:
        return None
    if op.name == "Div" and not np.all(known[1]):
        return None  # The standard does not define it.
    try:
        result = evaluate(op, attrs, known)[0]
    except EqsatError:  # the checks report it with a place
        return None
    return None if result is None or result.size > _LIMIT else result.astype(output.dtype.numpy())


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
