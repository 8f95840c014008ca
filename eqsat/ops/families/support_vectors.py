"""Support vector machines (``ai.onnx.ml``): kernels between rows and support vectors, and results computed from them.

The steps are those of libsvm, which the attributes come from: a decision for each pair of classes, a vote for each
decision, and on request probabilities of classes from those of pairs. Linear machines, which have hyperplanes instead
of support vectors, are left to ``onnx.reference``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.checks import trained as check
from eqsat.ops.definition import BodyWriter
from eqsat.ops.families.maps import ML
from eqsat.ops.need_by_parameters import need_support_vectors
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.registry import declare
from eqsat.ops.scores import label_type, labels_of, transform_of, transformed
from eqsat.ops.traits import PARAMETRIC
from eqsat.schema.body import Body
from eqsat.schema.types import Attributes, AttrValue, OpKey, TensorType, TensorTypes

_LABELS = ("classlabels_ints", "classlabels_strings")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_AT_ONCE = 1 << 22
"""Elements of differences between rows and support vectors that are held together."""
LEAST = 1e-7
"""Probabilities of pairs stay so far from 0 and 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """Support vectors and their coefficients.

    Attributes:
        kernel: One of :data:`KERNELS`.
        gamma, offset: Parameters of the kernel.
        degree: Degree of ``POLY``.
        vectors: The support vectors, as (vectors, features).
        coefficients: One row for a regressor; for a classifier of ``n`` classes ``n - 1`` rows.
        per_class: Number of vectors of each class, in order; for a regressor the number of all.
        rho: The addend of each result or decision.
        pair_a, pair_b: The logistic function of each decision; empty where there are no probabilities.
    """

    kernel: str
    gamma: float
    offset: float
    degree: float
    vectors: np.ndarray
    coefficients: np.ndarray
    per_class: tuple[int, ...]
    rho: np.ndarray
    pair_a: np.ndarray
    pair_b: np.ndarray

    def values(self, x: np.ndarray) -> np.ndarray:
        """The kernel of each row with each vector."""
        vectors = self.vectors.astype(x.dtype)
        if self.kernel == "RBF":
            step = max(1, _AT_ONCE // max(1, vectors.size))
            parts = [((x[k : k + step, None] - vectors) ** 2).sum(-1) for k in range(0, len(x), step)]
            distance = np.concatenate(parts) if parts else np.zeros((0, len(vectors)), x.dtype)
            return np.exp(-x.dtype.type(self.gamma) * distance)
        product = x @ vectors.T
        if self.kernel == "LINEAR":
            return product
        moved = product * x.dtype.type(self.gamma) + x.dtype.type(self.offset)
        return np.tanh(moved) if self.kernel == "SIGMOID" else moved ** x.dtype.type(self.degree)

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes in the order of their decisions."""
        classes = len(self.per_class)
        return [(i, j) for i in range(classes) for j in range(i + 1, classes)]

    def decisions(self, x: np.ndarray) -> np.ndarray:
        """The decision between each pair of classes for each row; positive for the first of the two."""
        starts = np.cumsum([0, *self.per_class])
        weights = np.zeros((len(self.vectors), len(self.pairs())), x.dtype)
        for number, (i, j) in enumerate(self.pairs()):
            of_i, of_j = (slice(starts[k], starts[k + 1]) for k in (i, j))
            weights[of_i, number] = self.coefficients[j - 1, of_i]
            weights[of_j, number] = self.coefficients[i, of_j]
        return self.values(x) @ weights + self.rho.astype(x.dtype)


def _floats(attrs: Mapping[str, Any], name: str) -> np.ndarray:
    return np.asarray(attrs.get(name) or (), np.float32)


def machine(attrs: Mapping[str, Any]) -> Machine | None:
    """The machine of ``SVMRegressor`` or ``SVMClassifier``, None if it has no support vectors.

    Raises:
        ValueError: Its attributes do not fit together.
    """
    of_classes = "n_supports" not in attrs
    per_class = tuple(attrs.get("vectors_per_class") or ()) if of_classes else (attrs["n_supports"],)
    count = sum(per_class)
    vectors, coefficients, rho = (_floats(attrs, n) for n in ("support_vectors", "coefficients", "rho"))
    kernel, rows = str(attrs.get("kernel_type", "LINEAR")), len(per_class) - 1 if of_classes else 1
    if count < 1:
        return None
    if kernel not in KERNELS:
        raise ValueError(f"kernel_type is {kernel!r}, not one of {', '.join(KERNELS)}")
    if not vectors.size or vectors.size % count:
        raise ValueError(f"support_vectors has {vectors.size} elements, no multiple of the {count} vectors")
    if coefficients.size != rows * count or not rows:
        raise ValueError(
            f"coefficients has {coefficients.size} elements, not {max(1, rows)} for each of {count} vectors"
        )
    results = rows * (rows + 1) // 2 if of_classes else 1
    pair_a, pair_b = _floats(attrs, "prob_a"), _floats(attrs, "prob_b")
    for name, found in (("rho", rho), ("prob_a", pair_a), ("prob_b", pair_b)):
        if found.size != results and (name == "rho" or pair_a.size):
            raise ValueError(f"{name} has {found.size} elements, not {results}")
    gamma, offset, degree = (*_floats(attrs, "kernel_params").tolist(), 0.0, 0.0, 0.0)[:3]
    return Machine(
        kernel, gamma, offset, degree, vectors.reshape(count, -1), coefficients.reshape(rows, count), per_class, rho,
        pair_a, pair_b,
    )  # fmt: skip


def is_plain(attrs: Mapping[str, Any]) -> bool:
    """Whether scores are not transformed; as in ONNX Runtime, those of a regressor never are."""
    return "n_supports" in attrs or transform_of(attrs) == "NONE"


def _prepared(attrs: Attributes, x: np.ndarray) -> tuple[Machine, np.ndarray]:
    made = machine(attrs)
    if made is None or not is_plain(attrs):
        raise Fallback
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != made.vectors.shape[1]:
        raise ValueError(f"rows of {made.vectors.shape[1]} features are required")
    return made, rows.astype(np.float64 if x.dtype == np.float64 else np.float32, copy=False)


def regressor(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The weighted sum of kernels; of a machine of one class, on which side of 0 it is."""
    made, rows = _prepared(attrs, x)
    found = made.values(rows) @ made.coefficients[0].astype(rows.dtype) + rows.dtype.type(made.rho[0])
    found = np.where(found > 0, 1, -1) if attrs["one_class"] else found
    return found.astype(np.float32)[:, None]


def classifier(attrs: Attributes, x: np.ndarray, *, outputs: int = 2) -> tuple[np.ndarray, ...]:
    """The class with most votes, and probabilities of classes or the decisions."""
    made, rows = _prepared(attrs, x)
    decisions = made.decisions(rows)
    votes = np.zeros((len(rows), len(made.per_class)), np.int64)
    for number, (i, j) in enumerate(made.pairs()):
        wins = decisions[:, number] > 0
        votes[:, i] += wins
        votes[:, j] += ~wins
    labels = labels_of(attrs, *_LABELS)
    place = votes.argmax(axis=1)
    label = (
        np.array(labels, object if label_type(labels) == ir.DataType.STRING else np.int64)[place] if labels else place
    )
    if outputs < 2:
        return (label,)
    if made.pair_a.size:
        return label, np.array([_coupled(made, row) for row in decisions], np.float32).reshape(votes.shape)
    scores = np.concatenate((-decisions, decisions), axis=1) if len(made.per_class) == 2 else decisions
    return label, scores.astype(np.float32)


def _coupled(made: Machine, decisions: np.ndarray) -> np.ndarray:
    """Probabilities of classes by the decisions of a row: the second method of Wu, Lin and Weng (2004), "Probability
    estimates for multi-class classification by pairwise coupling", which libsvm and ONNX Runtime iterate to the same
    tolerance.
    """
    classes = len(made.per_class)
    of_pair = np.zeros((classes, classes), decisions.dtype)
    first, second = np.triu_indices(classes, 1)
    won = 1 / (1 + np.exp(decisions * made.pair_a.astype(decisions.dtype) + made.pair_b.astype(decisions.dtype)))
    of_pair[first, second] = np.clip(won, LEAST, 1 - LEAST)
    of_pair[second, first] = 1 - of_pair[first, second]
    q = -of_pair * of_pair.T
    np.fill_diagonal(q, (of_pair**2).sum(axis=0))
    found = np.full(classes, 1 / classes, of_pair.dtype)
    for _ in range(max(100, classes)):
        gradient = q @ found
        value = found @ gradient
        if np.abs(gradient - value).max() < 0.005 / classes:
            break
        for k in range(classes):
            step = (value - gradient[k]) / q[k, k]
            found[k] += step
            value = (value + step * (step * q[k, k] + 2 * gradient[k])) / (1 + step) ** 2
            gradient = (gradient + step * q[k]) / (1 + step)
            found /= 1 + step
    return found


def transformed_scores(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The scores without a transformation, and the transformation."""
    if is_plain(attrs) or machine(attrs) is None:
        return None
    w = BodyWriter(types)
    label, scores = w.several(OpKey(ML, "SVMClassifier"), 2, 0, **{**attrs, "post_transform": "NONE"})
    return w.body(label, transformed(w, scores, transform_of(attrs)))


# ---- types -----------------------------------------------------------------------------------------


def _rows(x: TensorType | None) -> Any:
    if x is None or x.shape is None or not x.shape:
        return None
    return 1 if len(x.shape) == 1 else x.shape[0]


def _of_result(attrs: Mapping[str, AttrValue], inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    return (TensorType(ir.DataType.FLOAT, (_rows(inputs[0]), 1)),)


def _of_classes(attrs: Mapping[str, AttrValue], inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    labels, rows, width = labels_of(attrs, *_LABELS), _rows(inputs[0]), None
    per_class: Any = attrs.get("vectors_per_class") or ()
    if classes := len(per_class):
        width = classes if attrs.get("prob_a") or classes == 2 else classes * (classes - 1) // 2
    return TensorType(label_type(labels), (rows,)), TensorType(ir.DataType.FLOAT, (rows, width))


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("SVMClassifier", domain=ML, numpy=classifier, definition=transformed_scores, types=_of_classes,
    macs=count.support_vectors, need=need_support_vectors, checks=(check.support_vectors(machine),),
    traits=PARAMETRIC)
declare("SVMRegressor", domain=ML, numpy=regressor, types=_of_result, macs=count.support_vectors,
    need=need_support_vectors, checks=(check.support_vectors(machine),),
    traits=PARAMETRIC)
