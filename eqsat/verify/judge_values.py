"""Whether two values of one tensor differ by more than rounding.

If two implementations compute in the tensors' own types, the results may differ by rounding errors, which are relative
to the largest magnitude of a tensor. If one implementation computes both in float64, they may differ only by the
rounding of constants: then each element counts separately, so that an error is visible next to much larger elements.

An element is ill-conditioned where a tiny relative change of the inputs and constants changes it as much as the two
values differ: a difference of two large numbers, a number that is rounded half up, a comparison of equals. There the
difference proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from eqsat.execute.difference import COARSE, absolute_differences, is_integer, magnitude, relative_tolerance
from eqsat.ops.evaluate import TensorValue

WIDE = {"float64": 1e-10, "float32": 1e-5, "float16": 1e-2, "bfloat16": 6e-2}
"""Relative to the element, in float64: some roundings of constants in the narrowest type."""
STRICT = 16
"""Units in the last place of a tensor's largest magnitude, where nothing may change a value."""
SAFETY = 8.0
"""Largest ratio of an allowed difference to the largest of some random changes."""
SAFETY_OF_STEPS = 1.001
"""The same ratio for changes by whole units, of which the largest is known."""
_DRAWS = 6
"""Random changes, of which the largest counts."""


@dataclass(frozen=True)
class ValueDifference:
    """A difference of two values beyond the tolerance.

    Attributes:
        reason: Why they cannot be compared, such as unequal shapes; empty if they can.
        index: The worst element.
        left: The element in the input.
        right: The element in the result.
        error: Absolute difference; infinite where one is not finite.
        differing: Elements that differ.
        elements: Number of elements.
    """

    reason: str = ""
    index: tuple[int, ...] = ()
    left: str = ""
    right: str = ""
    error: float = float("inf")
    differing: int = 0
    elements: int = 0

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        where = f"[{', '.join(map(str, self.index))}]" if self.index else "the only element"
        return (
            f"{self.left} in the input, {self.right} in the result at {where} (difference {self.error:.3g}; "
            f"{self.differing:,} of {self.elements:,} elements differ)"
        )


Perturbed = Callable[[float, int], TensorValue]
"""The input's value after random relative changes of this size to its floats, also between operators. None if it
fails.
"""


def incomparable(left: TensorValue, right: TensorValue) -> ValueDifference | None:
    """A difference in kind: type, shape, or tensor against another value."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.dtype == right.dtype and left.shape == right.shape:
            return None
        return ValueDifference(f"{_kind(left)} in the input, {_kind(right)} in the result")
    return (
        None if left is None and right is None else ValueDifference("a tensor in the input, another kind in the result")
    )


def beyond(left: np.ndarray, right: np.ndarray, *, strict: bool, lsb: int) -> np.ndarray:
    """Elements that differ by more than their type allows.

    Args:
        strict: Only the order of additions inside one kernel may change a value.
        lsb: Difference allowed between integers of up to 16 bits.
    """
    if left.dtype.kind in "bOUS":
        return np.asarray(left != right)
    if is_integer(left.dtype):
        return np.asarray(distance(left, right) > (lsb if left.dtype.itemsize <= 2 and not strict else 0))
    error = distance(left, right)
    rtol = relative_tolerance(left.dtype)
    if strict and left.dtype.kind == "f":
        rtol = STRICT * float(np.finfo(left.dtype).eps)
    return np.asarray(error > rtol * magnitude(left))


def beyond_wide(left: np.ndarray, right: np.ndarray, rtol: float) -> np.ndarray:
    """Elements that differ in float64 by more than rounded constants explain."""
    with np.errstate(all="ignore"):
        # A constant much smaller than its neighbours may round to zero in a type of few exponents.
        neighbours = 1e-3 if rtol >= WIDE["float16"] else 1e-6
        allowed = rtol * np.abs(left) + rtol * neighbours * magnitude(left)
        allowed = np.where(np.isfinite(allowed), allowed, 0.0)
    return np.asarray(distance(left, right) > allowed)


def without_ill_conditioned(
    mask: np.ndarray, left: np.ndarray, right: np.ndarray, delta: float, perturbed: Perturbed, safety: float = SAFETY
) -> np.ndarray:
    """The differing elements without those that tiny changes change as much.

    The changes are drawn until they explain all elements: each draw may execute a network.
    """
    error = distance(left[mask], right[mask])
    sensitivity = np.zeros(error.shape)
    for seed in range(_DRAWS if error.size else 0):
        other = perturbed(delta, seed)
        if not isinstance(other, np.ndarray) or other.shape != left.shape:
            return mask
        sensitivity = np.maximum(sensitivity, distance(left[mask], other[mask]))
        if (error <= safety * sensitivity).all():
            break
    kept = np.zeros(mask.shape, bool)
    kept[mask] = ~(error <= safety * sensitivity)
    return kept


def difference(mask: np.ndarray, left: np.ndarray, right: np.ndarray) -> ValueDifference:
    """The worst of the elements that differ."""
    error = np.where(mask, distance(left, right), -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    return ValueDifference(
        "", index, _number(left[index]), _number(right[index]), float(error[index]), int(mask.sum()), mask.size
    )


def distance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Absolute differences, infinite between truth values that differ."""
    return np.where(left == right, 0.0, np.inf) if left.dtype.kind == "b" else absolute_differences(left, right)


def narrowest(names: Iterable[str]) -> float:
    """Tolerance in float64 for programs whose tensors have these element types."""
    return max((WIDE.get(name, COARSE) for name in names if "float" in name), default=WIDE["float64"])


def _kind(value: np.ndarray) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _number(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
