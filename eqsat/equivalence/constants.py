"""Compares constant expressions of an e-graph by what they compute.

One model multiplies a weight by a scale, the other contains the product, rounded. Rules give both the same form, in
which two constants remain that only arithmetic can compare. They count as equal where roundings explain the difference.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import EqsatError
from eqsat.ops.properties import is_deterministic
from eqsat.ops.wide import FLOATS, wide_values, widen
from eqsat.schema.types import GraphAttr, TensorType

MOST_ELEMENTS = 1 << 26
"""Constants with more elements are equal only if they are one."""
STEPS = 16
"""Units in the last place of each element by which equal constants may differ: as many roundings as folding an operator
takes."""
SAMPLE = 64
"""Elements that are compared first."""
SCALE_STEPS = 4
"""Units in the last place of the greatest element, for sums."""


class Constants:
    """The values of the constant classes of a snapshot, computed when they are needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._values: dict[int, np.ndarray | None] = {}
        self._first: dict[int, int] = {}
        self._distinct: dict[TensorType, list[int]] = {}
        self._reach: dict[int, float] = {}

    def first(self, eclass: int) -> int:
        """The class that stands for all constants of this value."""
        if eclass not in self._first:
            self._first[eclass] = self._find(eclass)
        return self._first[eclass]

    def is_rounded(self, eclass: int) -> bool:
        """Whether the class equals the one that stands for it only up to rounding."""
        first = self.first(eclass)
        a, b = self._values.get(eclass), self._values.get(first)
        kind = self.snapshot.types[eclass]
        if first == eclass or a is None or b is None or kind is None:
            return False
        narrow = kind.dtype.numpy()
        return not np.array_equal(a.astype(narrow), b.astype(narrow), equal_nan=narrow.kind == "f")

    def _find(self, eclass: int) -> int:
        kind = self.snapshot.types[eclass]
        value = None if kind is None or (kind.elements or 0) > MOST_ELEMENTS else self.value(eclass)
        if kind is None or value is None:
            return eclass
        known = self._distinct.setdefault(kind, [])
        with np.errstate(all="ignore"):
            self._reach[eclass] = float(np.max(np.abs(value), where=np.isfinite(value), initial=0.0))
        for other in known:
            there = self._values[other]
            assert there is not None
            if _same(value, there, kind, max(self._reach[eclass], self._reach[other])):
                return other
        known.append(eclass)
        return eclass

    def value(self, eclass: int) -> np.ndarray | None:
        """In a wider type; None if it cannot be computed."""
        if eclass not in self._values:
            # A class that is needed for its own value has another e-node.
            self._values[eclass] = None
            found = (self._compute(node) for node in self._members(eclass))
            self._values[eclass] = next((value for value in found if value is not None), None)
        return self._values[eclass]

    def _members(self, eclass: int) -> list[ENode]:
        """E-nodes that can be computed; those of the models come first, because they have no cycles."""
        nodes = [self.snapshot.nodes[n] for n in self.snapshot.classes[eclass]]
        return sorted((n for n in nodes if self._is_fixed(n)), key=lambda n: (n.kind != "const", n.rule))

    def _is_fixed(self, node: ENode) -> bool:
        if node.kind not in ("const", "op", "part") or any(isinstance(v, GraphAttr) for _, v in node.attrs):
            return False
        if node.kind == "op" and not is_deterministic(node.op, node.attrs):
            return False
        return all(c is None or self.snapshot.constant[c] for c in node.children)

    def _compute(self, node: ENode) -> np.ndarray | None:
        kind = self.snapshot.types[node.eclass]
        if node.kind == "const":
            constant = self.snapshot.tables.constants[node.number]
            array = constant.numpy()
            if array is None or constant.type is None:
                return None
            return np.asarray(widen(array, constant.type.dtype, constant.residue).values)
        if node.kind == "op":
            return self._result(node, 0, [kind])
        assert node.children[0] is not None
        for owner in self._members(node.children[0]):
            kinds = [kind if i == node.number else None for i in range(owner.outputs)]
            found = self._result(owner, node.number, kinds)
            if found is not None:
                return found
        return None

    def _result(self, node: ENode, number: int, kinds: list[TensorType | None]) -> np.ndarray | None:
        operands = [None if c is None else self.value(c) for c in node.children]
        if any(c is not None and operand is None for c, operand in zip(node.children, operands, strict=True)):
            return None
        try:
            with np.errstate(all="ignore"):
                found = wide_values(node.op, node.attrs, operands, kinds)[number]
        except EqsatError:
            return None
        return None if found is None else np.asarray(found)


def _same(a: np.ndarray, b: np.ndarray, kind: TensorType, greatest: float) -> bool:
    """Whether two constants are equal up to rounding.

    Args:
        greatest: The greatest finite magnitude in both.
    """
    if a.shape != b.shape:
        return False
    step = a.size // SAMPLE
    # Few elements tell most constants apart.
    parts = [(a.ravel()[::step], b.ravel()[::step])] if step > 1 else []
    return all(_same_elements(x, y, kind, greatest) for x, y in (*parts, (a, b)))


def _same_elements(a: np.ndarray, b: np.ndarray, kind: TensorType, greatest: float) -> bool:
    if kind.dtype not in FLOATS:
        return bool(np.array_equal(a, b))
    eps = float(ml_dtypes.finfo(kind.dtype.numpy()).eps)
    with np.errstate(all="ignore"):
        reach = STEPS * eps * np.maximum(np.abs(a), np.abs(b)) + SCALE_STEPS * eps * greatest
        same = (np.abs(a - b) <= reach) | (a == b) | (np.isnan(a) & np.isnan(b))
    return bool(same.all())
