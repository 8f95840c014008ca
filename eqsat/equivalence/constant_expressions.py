"""Compares constant expressions of an e-graph by what they compute.

One model multiplies a weight by a scale, the other contains the product, rounded. Rules give both the same form, in
which two constants remain that only arithmetic can compare. They count as equal where roundings explain the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.properties import is_deterministic
from eqsat.ops.scales import Wide
from eqsat.ops.wide import evaluate_wide, widen
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import GraphAttr, TensorType

MOST_ELEMENTS = 1 << 26
"""Constants with more elements are equal only if they are one."""
STEPS = 16
"""Units in the last place by which elements of equal constants may differ, as many roundings as folding an operator
takes. A unit is that of the terms that an element was computed from (:mod:`eqsat.ops.wide`); for a number in a model,
its own.
"""
LEAST_SCALE = 1 / 4
"""Terms of an element that a rule has computed, relative to the greatest element: only the result is stored."""
SAMPLE = 64
"""Elements that are compared first."""


class ClassConstants:
    """The values of the constant classes of a snapshot, computed when they are needed.

    Args:
        rounded: Whether constants count as equal that differ by rounding. If not, each is computed in its own type, and
            equal constants have equal bits.
    """

    def __init__(self, snapshot: Snapshot, *, rounded: bool = True) -> None:
        self.snapshot = snapshot
        self.rounded = rounded
        self._given = {eclass for value, eclass in snapshot.refs.items() if value.is_initializer()}
        self._values: dict[int, Wide | None] = {}
        self._first: dict[int, int] = {}
        self._distinct: dict[TensorType, list[int]] = {}

    def first(self, eclass: int) -> int:
        """The class that represents all constants of this value."""
        if eclass not in self._first:
            self._first[eclass] = self._find(eclass)
        return self._first[eclass]

    def is_rounded(self, eclass: int) -> bool:
        """Whether the class equals its representative only up to rounding."""
        first = self.first(eclass)
        a, b = self._values.get(eclass), self._values.get(first)
        return first != eclass and a is not None and b is not None and not _same_bits(a.rounded(), b.rounded())

    def _find(self, eclass: int) -> int:
        kind = self.snapshot.types[eclass]
        value = None if kind is None or (kind.elements or 0) > MOST_ELEMENTS else self.value(eclass)
        if kind is None or value is None:
            return eclass
        known = self._distinct.setdefault(kind, [])
        for other in known:
            there = self._values[other]
            assert there is not None
            if _same(value, there) if self.rounded else _same_bits(value.values, there.values):
                return other
        known.append(eclass)
        return eclass

    def value(self, eclass: int) -> Wide | None:
        """The constant, in a wider type if constants may be rounded; None if it cannot be computed."""
        if eclass not in self._values:
            # A class that is needed for its own value has another e-node.
            self._values[eclass] = None
            found = (self._compute(node) for node in self._members(eclass))
            self._values[eclass] = next((value for value in found if value is not None), None)
        return self._values[eclass]

    def _members(self, eclass: int) -> list[ENode]:
        """E-nodes that can be computed. Those of the models come first, because they have no cycles; constants that
        rules computed come last, because their terms are unknown.
        """
        nodes = [self.snapshot.nodes[n] for n in self.snapshot.classes[eclass]]
        last = eclass not in self._given
        return sorted((n for n in nodes if self._is_fixed(n)), key=lambda n: ((n.kind == "const") == last, n.rule))

    def _is_fixed(self, node: ENode) -> bool:
        if node.kind not in ("const", "op", "part") or any(isinstance(v, GraphAttr) for _, v in node.attrs):
            return False
        if node.kind == "op" and not is_deterministic(node.op, node.attrs):
            return False
        return all(c is None or self.snapshot.constant[c] for c in node.children)

    def _compute(self, node: ENode) -> Wide | None:
        kind = self.snapshot.types[node.eclass]
        if node.kind == "const":
            constant = self.snapshot.tables.constants[node.number]
            array = constant.numpy()
            if array is None or constant.type is None:
                return None
            if not self.rounded:
                return Wide(constant.type.dtype, array)
            wide = widen(array, constant.type.dtype, constant.residue)
            return wide if node.eclass in self._given else _computed(wide)
        if node.kind == "op":
            return self._result(node, 0, [kind])
        assert node.children[0] is not None
        for owner in self._members(node.children[0]):
            kinds = [kind if i == node.number else None for i in range(owner.outputs)]
            found = self._result(owner, node.number, kinds)
            if found is not None:
                return found
        return None

    def _result(self, node: ENode, number: int, kinds: Sequence[TensorType | None]) -> Wide | None:
        operands = [None if c is None else self.value(c) for c in node.children]
        kind = kinds[number]
        if any(c is not None and o is None for c, o in zip(node.children, operands, strict=True)) or kind is None:
            return None
        try:
            with np.errstate(all="ignore"):
                if self.rounded:
                    return evaluate_wide(node.op, node.attrs, operands, kinds)[number]
                arrays = [None if o is None else o.values for o in operands]
                found = evaluate(node.op, node.attrs, arrays, len(kinds))[number]
        except EqsatError:
            return None
        return None if found is None else Wide(kind.dtype, np.asarray(found))


def _computed(constant: Wide) -> Wide:
    """A constant whose terms are not known."""
    if constant.scale is None:
        return constant
    greatest = np.max(np.abs(constant.values), where=np.isfinite(constant.values), initial=0.0)
    return replace(constant, scale=np.maximum(constant.scale, LEAST_SCALE * greatest))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of one type are equal to the bit; all NaN are one number."""
    if a.dtype.kind not in "fcV":
        return bool(np.array_equal(a, b))
    if a.shape != b.shape or not np.array_equal(a, b, equal_nan=True):
        return False
    return bool((np.signbit(a) == np.signbit(b))[~np.isnan(a)].all()) if a.dtype.kind == "f" else True


def _same(a: Wide, b: Wide) -> bool:
    """Whether two constants are equal up to rounding."""
    if a.values.shape != b.values.shape:
        return False
    step = a.values.size // SAMPLE
    # Few elements tell most constants apart.
    return (step <= 1 or _same_elements(a, b, step)) and _same_elements(a, b, 1)


def _same_elements(a: Wide, b: Wide, step: int) -> bool:
    x, y = a.values.ravel()[::step], b.values.ravel()[::step]
    if a.dtype not in FLOATS or a.scale is None or b.scale is None:
        return bool(np.array_equal(x, y))
    reach = STEPS * float(ml_dtypes.finfo(a.dtype.numpy()).eps)
    with np.errstate(all="ignore"):
        scale = np.maximum(a.scale.ravel()[::step], b.scale.ravel()[::step])
        close = np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= reach * scale)
        return bool((close | (x == y) | (np.isnan(x) & np.isnan(y))).all())
