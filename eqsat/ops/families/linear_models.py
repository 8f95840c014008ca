"""Linear models (``ai.onnx.ml``): a product with coefficients, intercepts, and what follows of the scores.

They compute in float32, float64 operands of a regressor excepted. As in ONNX Runtime, one score is transformed by
PROBIT only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.definition import BodyWriter, number, rank
from eqsat.ops.ensemble import listed
from eqsat.ops.families.features import as_real, as_single
from eqsat.ops.families.maps import ML
from eqsat.ops.registry import declare
from eqsat.ops.scores import above, greatest, labels_of, of_two_classes, transform_of, transformed
from eqsat.schema.body import Body
from eqsat.schema.types import AttrValue, TensorTypes

_LABELS = ("classlabels_ints", "classlabels_strings")


def _scores(w: BodyWriter, attrs: Mapping[str, AttrValue], columns: int) -> tuple[int, ir.DataType] | None:
    """One score for each row of features and each row of coefficients."""
    coefficients, intercepts = (listed(attrs, n, np.float32) for n in ("coefficients", "intercepts"))
    width = number(w.inputs, 0, -1)
    if rank(w.inputs, 0) not in (1, 2) or columns < 1 or coefficients.size % columns:
        return None
    if (width is not None and coefficients.size // columns != width) or intercepts.size not in (0, 1, columns):
        return None
    x, dtype = as_real(w)
    x = w.unsqueezed(x, 0) if rank(w.inputs, 0) == 1 else x
    scores = w.op("MatMul", x, w.constant(coefficients.reshape(columns, -1).T, dtype))
    return w.op("Add", scores, w.constant(intercepts, dtype)) if intercepts.size else scores, dtype


def regressor(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """One score for each target."""
    w, targets = BodyWriter(types), attrs.get("targets", 1)
    found = _scores(w, attrs, targets if isinstance(targets, int) else 0)
    if found is None:
        return None
    transform = transform_of(attrs)
    plain = targets == 1 and transform != "PROBIT"
    return w.body(as_single(w, transformed(w, found[0], "NONE" if plain else transform, found[1]), found[1]))


def classifier(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The label of the greatest score, and all scores; of two classes there may be only one score, of the second."""
    w, labels, transform = BodyWriter(types), labels_of(attrs, *_LABELS), transform_of(attrs)
    columns = listed(attrs, "intercepts").size or len(labels)
    found = _scores(w, attrs, columns)
    if found is None or (columns > 1 and len(labels) != columns):
        return None
    scores = as_single(w, *found)
    if columns > 1:
        return w.body(greatest(w, scores, labels), transformed(w, scores, transform))
    if len(labels) == 2:
        if transform == "PROBIT":
            return None
        return w.body(above(w, scores, 0, labels), of_two_classes(w, scores, transform, is_probability=True))
    if labels:
        return None
    return w.body(above(w, scores, 0, (0, 1)), transformed(w, scores, transform if transform == "PROBIT" else "NONE"))


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("LinearClassifier", domain=ML, definition=classifier, macs=count.linear_model)
declare("LinearRegressor", domain=ML, definition=regressor, macs=count.linear_model)
