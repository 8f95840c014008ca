"""Maps: Python's dictionaries from numbers or strings to numbers or strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.ops.registry import declare
from eqsat.ops.traits import FORWARDS, MOVES
from eqsat.schema.types import Attributes

ML = "ai.onnx.ml"
"""The domain of classical machine learning."""


def zip_map(attrs: Attributes, x: np.ndarray) -> list[dict[Any, float]]:
    """A map for each row, from labels to its elements, in the order of the labels as ONNX Runtime's."""
    labels = attrs.get("classlabels_int64s") or attrs.get("classlabels_strings") or ()
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    if x.ndim not in (1, 2) or rows.shape[1] != len(labels):
        raise ValueError(f"rows of {len(labels)} elements are required, one for each label")
    return [dict(sorted(zip(labels, row, strict=True))) for row in rows.tolist()]


def dict_vectorizer(attrs: Attributes, x: dict[Any, Any]) -> np.ndarray:
    """The values of a map in the order of a vocabulary, in one row as ONNX Runtime's.

    Keys that are missing give 0. Keys outside of the vocabulary, which the specification excludes, have no effect, as
    in ONNX Runtime and scikit-learn.
    """
    keys = attrs.get("int64_vocabulary") or attrs.get("string_vocabulary") or ()
    kind = _kind_of(x)
    return np.array([[x.get(key, "" if kind is object else 0) for key in keys]], kind)


_CASTS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "TO_FLOAT": (np.float32, float),
    "TO_INT64": (np.int64, int),
    "TO_STRING": (object, lambda value: value if isinstance(value, str) else f"{value:f}"),
}


def cast_map(attrs: Attributes, x: dict[Any, Any]) -> np.ndarray:
    """The values of a map in one row: by ascending keys, or each at the position that its key gives, with 0
    elsewhere.
    """
    kind, cast = _CASTS[attrs.get("cast_to") or "TO_FLOAT"]
    if (attrs.get("map_form") or "DENSE") == "DENSE":
        return np.array([[cast(x[key]) for key in sorted(x)]], kind)
    size = attrs.get("max_map") or 1
    outside = next((key for key in x if not 0 <= key < size), None)
    if outside is not None:
        raise ValueError(f"keys from 0 to {size - 1} are required, and {outside} is none of them")
    missing = cast("" if kind is object else 0)
    return np.array([[cast(x[key]) if key in x else missing for key in range(size)]], kind)


def _kind_of(x: dict[Any, Any]) -> Any:
    """The type of a map's values, which those that the executor hands on have."""
    value = next(iter(x.values()), np.float32(0))
    return object if isinstance(value, str) else value.dtype.type if isinstance(value, np.generic) else np.float32


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("CastMap", domain=ML, numpy=cast_map, traits=MOVES)
declare("DictVectorizer", domain=ML, numpy=dict_vectorizer, traits=MOVES)
declare("ZipMap", domain=ML, numpy=zip_map, traits=MOVES | FORWARDS)
