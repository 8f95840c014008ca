"""Probabilities and labels that trained models compute from their scores, as operators of definitions.

The formulas are those of ONNX Runtime, because the standard only names the transformations.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from eqsat.ops.definition import BodyWriter
from eqsat.schema.types import AttrValue

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By the numbers that ``TreeEnsemble`` has for them."""
_FLOAT = ir.DataType.FLOAT
_NEAR_ZERO = 1e-7


def transform_of(attrs: Mapping[str, AttrValue]) -> str:
    """The transformation that attributes ask for."""
    given = attrs.get("post_transform", "NONE")
    return TRANSFORMS[given] if isinstance(given, int) else str(given)


def transformed(w: BodyWriter, scores: int, transform: str, dtype: ir.DataType = _FLOAT) -> int:
    """Scores of rows after a transformation of each row."""
    if transform == "SOFTMAX":
        return w.op("Softmax", scores, axis=1)
    if transform == "LOGISTIC":
        return w.op("Sigmoid", scores)
    if transform == "SOFTMAX_ZERO":
        return _softmax_of_others(w, scores, dtype)
    return _probit(w, scores, dtype) if transform == "PROBIT" else scores


def _softmax_of_others(w: BodyWriter, scores: int, dtype: ir.DataType) -> int:
    """A softmax in which scores of zero stay zero."""
    axis = w.constant([1])
    most = w.op("ReduceMax", scores, axis, keepdims=1)
    near = w.op("Mul", scores, w.op("Exp", w.op("Neg", most)))
    far = w.op("Exp", w.op("Sub", scores, most))
    terms = w.op("Where", w.op("Greater", w.op("Abs", scores), w.constant(_NEAR_ZERO, dtype)), far, near)
    total = w.op("ReduceSum", terms, axis, keepdims=1)
    some = w.op("Equal", total, w.constant(0, dtype))
    return w.op("Where", some, w.constant(0.5, dtype), w.op("Div", terms, total))


def _probit(w: BodyWriter, p: int, dtype: ir.DataType) -> int:
    """The normal quantile of a probability, by Winitzki's formula for the inverse error function."""

    def number(value: float) -> int:
        return w.constant(value, dtype)

    x = w.op("Sub", w.op("Mul", p, number(2)), number(1))
    log = w.op("Log", w.op("Mul", w.op("Sub", number(1), x), w.op("Add", number(1), x)))
    v = w.op("Add", w.op("Mul", log, number(0.5)), number(2 / (np.pi * 0.147)))
    inner = w.op("Sub", w.op("Sqrt", w.op("Sub", w.op("Mul", v, v), w.op("Mul", log, number(1 / 0.147)))), v)
    sign = w.op("Where", w.op("Less", x, number(0)), number(-1), number(1))
    return w.op("Mul", w.op("Mul", sign, w.op("Sqrt", inner)), number(1.41421356))


def of_two_classes(w: BodyWriter, score: int, transform: str, *, is_probability: bool) -> int:
    """Scores of two classes by one for the second, which is a column."""
    if transform == "LOGISTIC":
        first, second = w.op("Sigmoid", w.op("Neg", score)), w.op("Sigmoid", score)
    else:
        first = w.op("Sub", w.constant(1, _FLOAT), score) if is_probability else w.op("Neg", score)
        second = score
    return w.op("Concat", first, second, axis=1)


def labels_of(attrs: Mapping[str, AttrValue], *names: str) -> tuple[int | str, ...]:
    """The labels of classes, from the first attribute that has any."""
    for name in names:
        given = attrs.get(name)
        if isinstance(given, tuple) and given:
            return tuple(x for x in given if isinstance(x, int | str))
    return ()


def label_type(labels: tuple[int | str, ...]) -> ir.DataType:
    """Element type of labels; that of numbers if there are no labels."""
    return ir.DataType.STRING if labels and isinstance(labels[0], str) else ir.DataType.INT64


def label_constant(w: BodyWriter, labels: tuple[int | str, ...]) -> int:
    """Labels as a constant vector."""
    return w.constant(list(labels), label_type(labels))


def greatest(w: BodyWriter, scores: int, labels: tuple[int | str, ...]) -> int:
    """The label of the first greatest score of each row."""
    place = w.op("ArgMax", scores, axis=1, keepdims=0)
    if labels == tuple(range(len(labels))):
        return place
    return w.op("Gather", label_constant(w, labels), place, axis=0)


def above(w: BodyWriter, score: int, bound: float, labels: tuple[int | str, ...]) -> int:
    """The second label where a column of scores is above a bound, else the first."""
    is_above = w.op("Greater", w.reshaped(score, -1), w.constant(bound, _FLOAT))
    if labels == (0, 1):
        return w.op("Cast", is_above, to=int(ir.DataType.INT64))
    return w.op("Gather", label_constant(w, labels), w.op("Cast", is_above, to=int(ir.DataType.INT64)), axis=0)
