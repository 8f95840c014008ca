"""Operators on tensors of terms of known types: by their meaning in this folder, or by their definitions in ONNX.

ONNX defines many operators with simpler ones. Such an operator needs no meaning of its own here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import EqsatError, ExecutionError
from eqsat.model.inference.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.model.onnx_definitions import definition
from eqsat.ops.evaluate import evaluate
from eqsat.ops.properties import is_deterministic
from eqsat.proofs import arrays, choices, term_arrays
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import CAST, CAST_LIKE, Attrs, OpKey, TensorType

_CASTS = (CAST, CAST_LIKE)
_SHAPE = OpKey("", "Shape")


@dataclass(frozen=True)
class TermTensor:
    """A tensor of known type: terms, or numbers that are known."""

    type: TensorType
    array: np.ndarray

    @property
    def facts(self) -> TensorFacts:
        return TensorFacts(self.type, self._known, self._known is not None)

    @property
    def _known(self) -> np.ndarray | None:
        return self.array if self.array.dtype != object else None


GivenTensors = Sequence[TermTensor | None]


class ImpossibleChoice(Exception):
    """A choice that fits nothing."""


def sizes(kind: TensorType) -> tuple[int, ...]:
    """The dimensions that are numbers."""
    return tuple(d for d in kind.shape or () if isinstance(d, int))


def applied(
    op: OpKey, attrs: dict[str, Any], terms: Mapping[str, ScalarTerm], given: GivenTensors, outputs: int, *, exact: bool
) -> tuple[Attrs, list[TermTensor]]:
    """The results of an operator, and its attributes in normal form.

    Args:
        terms: Attributes that are terms, by name.
        exact: Whether the rounding of results matters.

    Raises:
        ImpossibleChoice: Operands and attributes contradict each other.
        NotModelled: The operator has no meaning here, and no definition by operators that have one.
    """
    types = [None if t is None else t.type for t in given]
    values = [None if t is None else t.facts.value for t in given]
    try:
        bundle = complete(op, make_attrs(op, attrs), types, outputs)
        found = infer_types(op, bundle, types, values, outputs)
    except EqsatError:
        raise ImpossibleChoice from None
    shapes = [None if t is None else sizes(t) for t in types]
    kinds = [t for t in found if t is not None and t.is_static and min(sizes(t), default=1) >= 1]
    if len(kinds) < len(found) or not choices.is_valid(op, dict(bundle), shapes):
        raise ImpossibleChoice
    if op == _CASTS[0] and given[0] is not None and kinds[0] == types[0]:
        return bundle, [given[0]]
    rounds = exact and any(t.dtype.is_floating_point() for t in kinds)
    try:
        results = arrays.computed(
            op, dict(bundle) | dict(terms), [None if t is None else t.array for t in given], outputs, rounds=rounds
        )
    except ExecutionError:
        raise ImpossibleChoice from None
    except NotModelled:
        # The operator need not round like its definition.
        if terms or rounds:
            raise
        made = _defined(op, bundle, given, outputs)
        if made is None:
            raise
        return bundle, made
    tensors = []
    for kind, array in zip(kinds, results, strict=True):
        if kind.shape != array.shape:
            raise NotModelled(f"{op}: a result of another shape than its type")
        tensors.append(TermTensor(kind, array))
    return bundle, tensors


# ---- definitions ----------------------------------------------------------------------------------------------------


def _defined(op: OpKey, attrs: Attrs, given: GivenTensors, outputs: int) -> list[TermTensor] | None:
    """The results by the operator's definition, over the reals; None if it has none."""
    body = definition(op, attrs, [None if t is None else t.type for t in given])
    if body is None:
        return None
    values: list[TermTensor | None] = [*given, *[None] * (body.inputs - len(given))]
    for node in body.nodes:
        values += _step(node.op, node.attrs, [None if i is None else values[i] for i in node.inputs], node.outputs)
    results = [values[i] for i in body.results[:outputs]]
    return [t for t in results if t is not None]


def _step(op: OpKey, attrs: Attrs, given: GivenTensors, outputs: int) -> list[TermTensor]:
    """One operator of a definition."""
    types = [None if t is None else t.type for t in given]
    values = [None if t is None else t.facts.value for t in given]
    if op == _SHAPE and given[0] is not None:
        values = [np.empty(given[0].array.shape, bool)]
    if all(t is None or v is not None for t, v in zip(given, values, strict=True)) and is_deterministic(op, attrs):
        found = infer_types(op, attrs, types, values, outputs)
        arrays_of = evaluate(op, attrs, values, outputs)
        pairs = [(t, np.asarray(a)) for t, a in zip(found, arrays_of, strict=True) if t is not None]
        if all(not t.dtype.is_floating_point() or op.name in _EXACT for t, _ in pairs):
            return [TermTensor(TensorType(t.dtype, a.shape), _stored(t, a)) for t, a in pairs]
    if op in _CASTS and given[0] is not None:
        (kind,) = infer_types(op, attrs, types, values, 1)
        if kind is not None and given[0].type.dtype.is_floating_point() and kind.dtype.is_floating_point():
            return [TermTensor(kind, given[0].array)]
    return applied(op, dict(attrs), {}, given, outputs, exact=False)[1]


_EXACT = ("Constant", "ConstantOfShape", "Cast", "CastLike", "Identity")
"""Operators on known numbers that do not round floats."""


def _stored(kind: TensorType, array: np.ndarray) -> np.ndarray:
    """Floats as terms, so that what follows is not rounded."""
    return term_arrays.terms(array) if kind.dtype.is_floating_point() else array
