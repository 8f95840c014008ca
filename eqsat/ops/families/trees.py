"""Ensembles of decision trees: random forests, boosted trees.

The sums of leaves are kernels; what follows them is a definition. Where the standard leaves something open, the results
are those of ONNX Runtime: a regressor of one target applies no transformation but PROBIT; for two classes with one
score, the label depends on the score before the transformation. Sums have the type of the thresholds and the order of
the trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.checks import trained as check
from eqsat.ops.definition import BodyWriter
from eqsat.ops.ensemble import ensemble, listed
from eqsat.ops.families.maps import ML
from eqsat.ops.need_by_parameters import need_trees
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.registry import declare
from eqsat.ops.scores import above, greatest, label_type, labels_of, of_two_classes, transform_of, transformed
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.body import Body
from eqsat.schema.types import Attributes, AttrValue, OpKey, TensorType, TensorTypes

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""By the numbers that ``TreeEnsemble`` has for them."""
_REGRESSOR = OpKey(ML, "TreeEnsembleRegressor")
_ENSEMBLE = OpKey(ML, "TreeEnsemble")
_LABELS = ("classlabels_int64s", "classlabels_strings")
_NONE = {"TreeEnsembleRegressor": "NONE", "TreeEnsemble": 0}


def is_plain(attrs: Mapping[str, Any]) -> bool:
    """Whether the sums of leaves are the result."""
    transform = transform_of(attrs)
    return transform == "NONE" or ("n_targets" in attrs and attrs["n_targets"] == 1 and transform != "PROBIT")


def aggregate_of(attrs: Mapping[str, Any]) -> str:
    """How the results of trees become one."""
    given = attrs.get("aggregate_function", "SUM")
    return _AGGREGATES[given] if isinstance(given, int) else given


def base_values(attrs: Mapping[str, Any]) -> np.ndarray:
    """The base values of the targets: none, one for all, or one each."""
    return listed(attrs, "base_values", np.float64)


def computed_type(dtype: np.dtype) -> np.dtype:
    """The type of thresholds and sums for features of a type."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def tree_sums(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The results of all trees together for each row of features."""
    if not is_plain(attrs):
        raise Fallback
    kind = computed_type(x.dtype)
    trees = ensemble(attrs, kind)
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] < trees.features:
        raise ValueError(f"rows of at least {trees.features} features are required")
    total = trees.results(rows.astype(kind, copy=False), aggregate_of(attrs))
    base = base_values(attrs)
    total = total + base.astype(kind) if base.size else total
    return total.astype(x.dtype if "tree_roots" in attrs else np.float32)


def transformed_sums(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The sums, and their transformation."""
    if is_plain(attrs):
        return None
    op = _ENSEMBLE if "tree_roots" in attrs else _REGRESSOR
    w = BodyWriter(types)
    sums = w.op(op, 0, **{**attrs, "post_transform": _NONE[op.name]})
    return w.body(transformed(w, sums, transform_of(attrs), w.dtype if op == _ENSEMBLE else ir.DataType.FLOAT))


def classifier(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Scores of classes and the label of the best class."""
    w = BodyWriter(types)
    labels, transform = labels_of(attrs, *_LABELS), transform_of(attrs)
    ids, base = set(listed(attrs, "class_ids").tolist()), base_values(attrs)
    kept = {name: value for name, value in attrs.items() if name.startswith(("nodes_", "base_values"))}
    entries = {f"target{name[5:]}": value for name, value in attrs.items() if name.startswith("class_")}
    scores = w.op(
        _REGRESSOR, 0, **kept, **entries, n_targets=max(1, len(labels)), aggregate_function="SUM", post_transform="NONE"
    )
    if len(labels) == 1:
        # The label is whether the only class has a score above zero.
        return w.body(
            above(w, scores, 0, (0, 1)), transformed(w, scores, transform if transform == "PROBIT" else "NONE")
        )
    if len(labels) != 2 or len(ids) != 1:
        return w.body(greatest(w, scores, labels), transformed(w, scores, transform))
    (only,) = ids
    if base.size > 1 or (base.size if only else transform == "PROBIT"):
        return None  # Runtimes differ here, and the standard does not decide.
    score = w.op("Slice", scores, w.constant([only]), w.constant([only + 1]), w.constant([1]))
    positive = not (listed(attrs, "class_weights", np.float64) < 0).any()
    label = above(w, score, 0.5 if positive else 0, labels)
    if only:
        return w.body(label, transformed(w, scores, transform))
    return w.body(label, of_two_classes(w, score, transform, is_probability=positive))


# ---- types -----------------------------------------------------------------------------------------


def _rows(x: TensorType | None, width: int, dtype: ir.DataType) -> TensorType | None:
    if x is None:
        return None
    rows = None if x.shape is None or not x.shape else 1 if len(x.shape) == 1 else x.shape[0]
    return TensorType(dtype, None if x.shape is None else (rows, width))


def _of_sums(attrs: Mapping[str, AttrValue], inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    x, width = inputs[0], attrs.get("n_targets", 0)
    dtype = ir.DataType.FLOAT if x is None or "tree_roots" not in attrs else x.dtype
    return (_rows(x, width if isinstance(width, int) else 0, dtype),)


def _of_classes(attrs: Mapping[str, AttrValue], inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    labels = labels_of(attrs, *_LABELS)
    scores = _rows(inputs[0], max(1, len(labels)), ir.DataType.FLOAT)
    rows = None if scores is None or scores.shape is None else scores.shape[:1]
    return TensorType(label_type(labels), rows), scores


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("TreeEnsemble", "TreeEnsembleRegressor", domain=ML, numpy=tree_sums, definition=transformed_sums,
    types=_of_sums, macs=count.trees, need=need_trees, checks=(check.trees,), traits=PARAMETRIC)
declare("TreeEnsembleClassifier", domain=ML, definition=classifier, types=_of_classes, macs=count.trees,
    need=need_trees, checks=(check.trees,), traits=PARAMETRIC)
