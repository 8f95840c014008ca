"""ONNX Runtime's variants of standard operators (``com.microsoft``): other layouts, names of modes, index types."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.definition import BodyWriter, rank
from eqsat.ops.families.matmul import integer_product
from eqsat.ops.need_by_shapes import need_determinant, need_distances, need_gather_nd, need_grid_sample, need_product
from eqsat.ops.numpy_kernel import in_single
from eqsat.ops.registry import declare
from eqsat.ops.traits import MOVES, SELECTS
from eqsat.ops.typed_like import Like
from eqsat.schema.body import Body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes, AttrValue, TensorType, TensorTypes

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def grid_sample(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """GridSample with the names that modes had at first."""
    w = BodyWriter(types)
    mode = str(attrs["mode"])
    kept = {name: attrs[name] for name in ("align_corners", "padding_mode")}
    return w.body(w.op("GridSample", 0, 1, mode=_MODES.get(mode, mode), **kept))


def nhwc_max_pool(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """MaxPool with the channels last."""
    dims = rank(types, 0)
    if dims is None or dims < 3:
        return None
    w = BodyWriter(types)
    moved = w.op("Transpose", 0, perm=[0, dims - 1, *range(1, dims - 1)])
    return w.body(w.op("Transpose", w.op("MaxPool", moved, **attrs), perm=[0, *range(2, dims), 1]))


def gather_nd(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """GatherND with indices of 32 bits as well."""
    w = BodyWriter(types)
    return w.body(w.op("GatherND", 0, w.op("Cast", 1, to=int(ir.DataType.INT64))))


def squared_distances(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Distances, or their squares, of all pairs of rows."""
    w = BodyWriter(types)
    of_a, of_b = (w.op("ReduceSumSquare", x, w.constant([1]), keepdims=1) for x in (0, 1))
    product = w.op("MatMul", 0, w.op("Transpose", 1, perm=[1, 0]))
    total = w.op("Add", of_a, w.op("Transpose", of_b, perm=[1, 0]))
    y = w.op("Sub", total, w.op("Mul", product, w.constant(2, w.dtype)))
    y = w.op("Max", y, w.constant(0, w.dtype))
    return w.body(w.op("Sqrt", y) if attrs["metric"] == "euclidean" else y)


@in_single
def inverse(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The inverse of each matrix."""
    return np.linalg.inv(x)


def matmul_integer_16(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product of 16-bit integers in 32 bits."""
    return integer_product(a, b, np.uint32 if a.dtype.kind == b.dtype.kind == "u" else np.int32)


def unique(attrs: Attributes, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values in the order in which they appear, where each element is among them, and how often each occurs."""
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return values[order], place[inverse.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)


def unsorted(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Unique without sorting; the standard gives the first place of each value as well."""
    w = BodyWriter(types)
    values, _, places, counts = w.several("Unique", 4, 0, sorted=0)
    return w.body(values, places, counts)


def _unique_types(attrs: Mapping[str, AttrValue], inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    x = inputs[0]
    if x is None:
        return (None,) * 3
    found, size = (None,), None if x.shape is None else x.shape[0] if len(x.shape) == 1 else None
    indices = TensorType(ir.DataType.INT64, (size,))
    return TensorType(x.dtype, found), indices, TensorType(ir.DataType.INT64, found)


def wide_product(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The product of integers of 16 bits in 32 bits."""
    w = BodyWriter(types)
    a, b = (w.op("Cast", i, to=int(ir.DataType.INT32)) for i in (0, 1))
    return w.body(w.op("MatMul", a, b))


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("GridSample", domain=MICROSOFT, definition=grid_sample, macs=count.grid_sample, need=need_grid_sample)
declare("NhwcMaxPool", domain=MICROSOFT, definition=nhwc_max_pool, traits=SELECTS)
declare("GatherND", domain=MICROSOFT, definition=gather_nd, traits=MOVES, need=need_gather_nd)
declare("CDist", domain=MICROSOFT, definition=squared_distances, contracted=(0, 1), macs=count.distances,
    need=need_distances)
declare("Inverse", domain=MICROSOFT, numpy=inverse, macs=count.inverse, need=need_determinant,
    typed_like=Like("Identity"))
declare("MatMulInteger16", domain=MICROSOFT, numpy=matmul_integer_16, definition=wide_product,
    macs=count.product, need=need_product(1), typed_like=Like("MatMul", (0, 1), ir.DataType.INT32))
declare("Unique", domain=MICROSOFT, numpy=unique, definition=unsorted, types=_unique_types, shaped_by=(0,),
    macs=count.input_elements)
