"""Preparation of features for trained models: scaling, imputing, encoding (``ai.onnx.ml``).

Most of it is a definition by standard operators. Strings, ranks that runtimes refuse and categories that must be known
are left to ``onnx.reference``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops.definition import BodyWriter, number, rank
from eqsat.ops.families.maps import ML
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.registry import declare
from eqsat.ops.traits import MOVES
from eqsat.schema.body import Body
from eqsat.schema.types import Attributes, AttrValue, TensorType, TensorTypes

AttributeValues = Mapping[str, AttrValue]
_FLOAT, _DOUBLE, _INT64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64


def _floats(attrs: AttributeValues, name: str) -> np.ndarray:
    given = attrs.get(name)
    return np.array(given if isinstance(given, tuple) else (), np.float32)


def as_real(w: BodyWriter, x: int = 0) -> tuple[int, ir.DataType]:
    """An operand as floats, and their type; float64 stays float64."""
    known = w.type(x)
    if known is not None and known.dtype in (_FLOAT, _DOUBLE):
        return x, known.dtype
    return w.op("Cast", x, to=int(_FLOAT)), _FLOAT


def as_single(w: BodyWriter, x: int, dtype: ir.DataType) -> int:
    """A result as float32."""
    return x if dtype == _FLOAT else w.op("Cast", x, to=int(_FLOAT))


def _is_table(types: TensorTypes) -> bool:
    """Whether the operand has rows of features, or is one row."""
    return rank(types, 0) in (1, 2)


def _is_string(types: TensorTypes) -> bool:
    known = types[0] if types else None
    return known is None or known.dtype == ir.DataType.STRING


def scaler(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """``(x - offset) * scale``, with one offset and scale for all features or one each."""
    offset, scale = _floats(attrs, "offset"), _floats(attrs, "scale")
    if not _is_table(types) or not offset.size or offset.size != scale.size:
        return None
    w = BodyWriter(types)
    x, dtype = as_real(w)
    y = w.op("Mul", w.op("Sub", x, w.constant(offset, dtype)), w.constant(scale, dtype))
    return w.body(as_single(w, y, dtype))


def normalizer(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """Rows divided by their greatest element, by the sum of their magnitudes, or by their length; rows of 0 stay 0."""
    if not _is_table(types):
        return None
    w = BodyWriter(types)
    x = w.op("Cast", 0, to=int(_FLOAT)) if w.dtype != _FLOAT else 0
    by = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}.get(str(attrs.get("norm", "MAX")))
    if by is None:
        return None
    norm = w.op(by, x, w.constant([-1]), keepdims=1)
    one = w.constant(1, _FLOAT)
    is_zero = w.op("Equal", norm, w.constant(0, _FLOAT))
    return w.body(w.op("Div", x, w.op("Where", is_zero, one, norm)))


def imputer(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """Replaces missing values by a value for each feature."""
    known = types[0]
    if not _is_table(types) or known is None:
        return None
    real = known.dtype in (_FLOAT, _DOUBLE)
    values = attrs.get("imputed_value_floats" if real else "imputed_value_int64s")
    replaced = attrs.get("replaced_value_float" if real else "replaced_value_int64", 0)
    if not isinstance(values, tuple) or not values or not isinstance(replaced, int | float):
        return None
    w = BodyWriter(types)
    if math.isnan(replaced):
        is_missing = w.op("IsNaN", 0)
    else:
        is_missing = w.op("Equal", 0, w.constant(replaced, w.dtype))
    return w.body(w.op("Where", is_missing, w.constant(list(values), w.dtype), 0))


def binarizer(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """1 above a threshold, else 0."""
    w = BodyWriter(types)
    x, dtype = as_real(w)
    above = w.op("Greater", x, w.constant(attrs.get("threshold", 0.0), dtype))
    return w.body(w.op("Cast", above, to=int(w.dtype)))


def array_feature_extractor(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """Elements of the last axis at some places; a vector is a row."""
    dims = rank(types, 0)
    if not dims or _is_string(types):
        return None
    w = BodyWriter(types)
    found = w.op("Gather", 0, w.reshaped(1, -1), axis=dims - 1)
    return w.body(w.unsqueezed(found, 0) if dims == 1 else found)


def feature_vectorizer(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """Rows of several operands side by side, each cut or filled with zeros to a width."""
    widths = attrs.get("inputdimensions")
    sizes = [number(types, i, 1) for i in range(len(types))]
    if (
        not isinstance(widths, tuple)
        or len(widths) != len(types)
        or any(rank(types, i) != 2 for i in range(len(types)))
    ):
        return None
    w = BodyWriter(types)
    parts = []
    for i, (size, width) in enumerate(zip(sizes, widths, strict=True)):
        if size is None or not isinstance(width, int):
            return None
        x, dtype = as_real(w, i)
        x = as_single(w, x, dtype)
        if width > size:
            x = w.op("Pad", x, w.constant([0, 0, 0, width - size]))
        elif width < size:
            x = w.op("Slice", x, w.constant([0]), w.constant([width]), w.constant([1]))
        parts.append(x)
    return w.body(w.op("Concat", *parts, axis=1))


def one_hot_encoder(attrs: AttributeValues, types: TensorTypes) -> Body | None:
    """One axis more, with 1 at the place of the category that an element, cut to an integer, is."""
    categories = attrs.get("cats_int64s")
    if _is_string(types) or not isinstance(categories, tuple) or not categories or not attrs.get("zeros", 1):
        return None
    w = BodyWriter(types)
    x = w.unsqueezed(w.op("Cast", 0, to=int(_INT64)), -1)
    # If categories are equal, the last one counts.
    last = {category: i for i, category in enumerate(categories)}
    if len(last) < len(categories):
        return None
    return w.body(w.op("Cast", w.op("Equal", x, w.constant(list(categories))), to=int(_FLOAT)))


# ---- labels ----------------------------------------------------------------------------------------

_KINDS = {"floats": np.dtype(np.float32), "int64s": np.dtype(np.int64)}


def label_table(attrs: AttributeValues) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Keys in ascending order, their values, and the value of others; None if any are strings.

    If keys are equal, the first one counts. NaN is always the last key.
    """
    keys, values = (_numbers(attrs, what) for what in ("keys", "values"))
    if keys is None or values is None or len(keys) != len(values):
        return None
    default = _array(attrs, "default_tensor")
    if default is None:
        kind = next((kind for kind, dtype in _KINDS.items() if dtype == values.dtype), "")
        default = np.array(attrs.get(f"default_{kind[:-1]}", 0))
    sorted_keys, first = np.unique(keys, return_index=True)
    return sorted_keys, values[first], default.reshape(-1)[:1].astype(values.dtype)


def _array(attrs: AttributeValues, name: str) -> np.ndarray | None:
    given: Any = attrs.get(name)
    found = getattr(given, "array", given)
    return found if isinstance(found, np.ndarray) and found.size else None


def _numbers(attrs: AttributeValues, what: str) -> np.ndarray | None:
    tensor = _array(attrs, f"{what}_tensor")
    if tensor is not None:
        return None if tensor.dtype.kind not in "fiu" else tensor.reshape(-1)
    for kind, dtype in _KINDS.items():
        given = attrs.get(f"{what}_{kind}")
        if isinstance(given, tuple) and given:
            return np.array(given, dtype)
    return None


def label_encoder(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The value that belongs to each key."""
    table = label_table(attrs)
    if table is None or x.dtype.kind not in "fiu":
        raise Fallback
    keys, values, default = table
    place = np.minimum(np.searchsorted(keys, x.astype(keys.dtype)), len(keys) - 1)
    key = keys[place]
    found = key == x.astype(keys.dtype)
    if keys.dtype.kind == "f":
        found |= np.isnan(key) & np.isnan(x)
    return np.where(found, values[place], default[0]).astype(values.dtype)


def _encoded(attrs: AttributeValues, inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    x = inputs[0]
    if x is None:
        return (None,)
    values = _numbers(attrs, "values")
    return (TensorType(ir.DataType.STRING if values is None else ir.DataType.from_numpy(values.dtype), x.shape),)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("ArrayFeatureExtractor", domain=ML, definition=array_feature_extractor, traits=MOVES)
declare("Binarizer", domain=ML, definition=binarizer)
declare("FeatureVectorizer", domain=ML, definition=feature_vectorizer, traits=MOVES)
declare("Imputer", domain=ML, definition=imputer)
declare("LabelEncoder", domain=ML, numpy={2: label_encoder, 1: None}, types=_encoded)
declare("Normalizer", domain=ML, definition=normalizer)
declare("OneHotEncoder", domain=ML, definition=one_hot_encoder)
declare("Scaler", domain=ML, definition=scaler)
