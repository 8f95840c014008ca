"""Whether rounding explains how two sides of a rule differ: an instance is computed again, in other floats.

Two programs that are equal over the reals round differently. The effect is measured: each intermediate value is
disturbed a little, and if the results move by less than their difference, rounding does not explain it (stochastic
arithmetic: Vignes, 1993). So a difference counts even if it is small beside an irrelevant intermediate number, such as
one that hides an element from a Softmax. A difference does not count if an operator with jumps magnifies a rounding, as
when ``x + c`` makes two elements equal between which ArgMax chooses. If nothing was rounded, every difference counts: a
rule that is wrong only for equal elements is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.check.audit import Audit, Claim
from eqsat.check.precision import Arithmetic
from eqsat.ops.evaluate import TensorValue
from eqsat.ops.sampling.chance import Rejected

WORLDS = 6
"""Disturbed computations."""
FACTOR = 4.0
"""How much further apart two sides may be than disturbances were seen to move them."""


@dataclass
class Rounding:
    """The effect of rounding on one instance.

    Attributes:
        audit: The instance.
        reach: Size of a disturbance relative to each value.
    """

    audit: Audit
    reach: float

    @cached_property
    def wide(self) -> tuple[dict[int, TensorValue], list[Claim]]:
        """Values and claims in float64 at least."""
        return self.audit.execute(Arithmetic(np.dtype(np.float64)))

    def explains(self, k: int) -> bool:
        """Whether two sides differ, in the wide type, by no more than disturbances move one of them, the claims
        included.
        """
        claim = self.wide[1][k]
        if claim.right is None or claim.left.shape != claim.right.shape:
            return False
        left, right = _numbers(claim.left), _numbers(claim.right)
        defined = np.isfinite(left)
        with np.errstate(all="ignore"):
            moved = np.zeros(left.shape, np.longdouble)
            for world in self._worlds:
                other = world[k]
                if other.right is None or other.left.shape != left.shape or other.right.shape != left.shape:
                    return True  # Even how many elements there are depends on it.
                for base, now in ((left, _numbers(other.left)), (right, _numbers(other.right))):
                    moved = np.maximum(moved, np.where(np.isfinite(now - base), np.abs(now - base), np.inf))
            least = self.reach * np.max(np.abs(left), where=defined, initial=0.0)
            return bool((np.abs(left - right) <= FACTOR * moved + least)[defined].all())

    @cached_property
    def is_exact(self) -> bool:
        """Whether nothing was rounded in the wide type."""
        try:
            widest, _ = self.audit.execute(Arithmetic(np.dtype(np.longdouble)))
        except Rejected:
            return False
        values, _ = self.wide
        return values.keys() == widest.keys() and all(_same(values[c], widest[c]) for c in values)

    @cached_property
    def _worlds(self) -> list[list[Claim]]:
        found: list[list[Claim]] = []
        for seed in range(WORLDS):
            arithmetic = Arithmetic(np.dtype(np.float64), self.reach, np.random.default_rng(seed))
            try:
                _, claims = self.audit.execute(arithmetic)
            except Rejected:
                continue
            if len(claims) == len(self.wide[1]):
                found.append(claims)
        return found


def is_beside_itself(claim: Claim, rtol: float, widened: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether two sides differ relative to their own largest number, and not only relative to intermediate numbers."""
    if claim.right is None or claim.left.shape != claim.right.shape or widened(claim.left).dtype.kind != "f":
        return False
    left, right = _numbers(widened(claim.left)), _numbers(widened(claim.right))
    defined = np.isfinite(left)
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(left), where=defined, initial=0.0)
        return bool((np.abs(left - right) > rtol * largest)[defined].any())


def _numbers(array: np.ndarray) -> np.ndarray:
    return array.astype(np.longdouble)


def _same(one: TensorValue, other: TensorValue) -> bool:
    if isinstance(one, tuple) or isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
