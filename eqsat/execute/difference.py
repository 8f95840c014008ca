"""How two values differ: the tolerance of their element type, the worst error, the first element beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

NumericsName = Literal["exact", "lsb", "real", "approximate"]
"""``"exact"``: equal to the bit except for the payload of a NaN; otherwise within the tolerance of the element type."""

NATIVE = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}
"""Allowed difference of two elements, relative to the largest magnitude in the tensor, where rules may change rounding.

Rounding errors of a sum grow with its terms, not with its result. A relative error of each element therefore has no
meaning near zero; errors are relative to the scale of the tensor.
"""
COARSE = 0.25
"""The same for floats of 8 bits and less, which have three bits of mantissa at most."""
_BLOCK = 1 << 13
"""Elements that are compared at once, so that what is computed in between stays in the cache."""
_ATOL_QUANTIZED = 1.0  # a float that is rounded to an integer may be rounded to either side


@dataclass(frozen=True, slots=True)
class Difference:
    """How one tensor of the first model differs from its counterpart in the second.

    Attributes:
        agrees: Whether all elements are within the tolerance.
        reason: Why elements cannot be compared, such as unequal shapes; empty if they can.
        max_abs_error: Largest absolute difference; infinite where only one is a NaN or an infinity.
        max_rel_error: The same, relative to the largest finite magnitude in the first model's tensor.
        differing: Elements beyond the tolerance.
        index: Index of the first of them.
        values: The values of both models there.
    """

    name: str
    agrees: bool
    reason: str = ""
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    differing: int = 0
    elements: int = 0
    index: tuple[int, ...] | None = None
    values: tuple[str, str] | None = None

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        text = f"max abs error {self.max_abs_error:.2g}, max rel error {self.max_rel_error:.2g}"
        if self.values is not None and self.index is not None:
            where = f"[{', '.join(map(str, self.index))}]"
            text += f"; {self.differing:,} of {self.elements:,} elements differ, first {where}: "
            text += f"{self.values[0]} against {self.values[1]}"
        return text


def compare_values(
    name: str,
    a: Any,
    b: Any,
    *,
    numerics: NumericsName = "real",
    rtol: float | None = None,
    atol: float | None = None,
    step: float = 0.0,
) -> Difference:
    """Compares two values: arrays, maps, sequences of either, or absent optionals (None).

    Args:
        name: Name of the tensor.
        a: Value of the first model.
        b: Value of the second model.
        numerics: ``"exact"``: equal to the bit; else within the tolerance of the element type.
        rtol: Tolerance relative to the largest magnitude in the tensor, instead of the element type's.
        atol: Absolute tolerance, added to that.
        step: Scale of dequantized integers, which may differ by one unit; 0 for other values.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return _incomparable(name, f"a map of {sorted(a)[:5]} against one of {sorted(b)[:5]}")
        a, b = _values(a), _values(b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return _incomparable(name, f"a sequence of {len(a)} against one of {len(b)}")
        parts = [
            compare_values(f"{name}[{i}]", x, y, numerics=numerics, rtol=rtol, atol=atol, step=step)
            for i, (x, y) in enumerate(zip(a, b, strict=True))
        ]
        worst = next((p for p in parts if not p.agrees), None)
        return worst or Difference(
            name,
            True,
            max_abs_error=max((p.max_abs_error for p in parts), default=0.0),
            max_rel_error=max((p.max_rel_error for p in parts), default=0.0),
            elements=sum(p.elements for p in parts),
        )
    if a is None or b is None or isinstance(a, list | tuple | dict) or isinstance(b, list | tuple | dict):
        return Difference(name, True) if a is b else _incomparable(name, f"{_kind(a)} against {_kind(b)}")
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return _incomparable(name, f"{_kind(a)} against {_kind(b)}")
    return _compare_arrays(name, a, b, numerics, *_tolerance(a.dtype, numerics, rtol, atol, step))


def _values(found: dict[Any, Any]) -> np.ndarray:
    """The values of a map in the order of its keys; Python's numbers become float32."""
    values = np.array([found[key] for key in sorted(found)])
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _tolerance(
    dtype: np.dtype, numerics: NumericsName, rtol: float | None, atol: float | None, step: float
) -> tuple[float, float]:
    if numerics == "exact" or rtol is not None or atol is not None:
        return rtol or 0.0, atol or 0.0
    if is_integer(dtype):
        return 0.0, _ATOL_QUANTIZED if dtype.itemsize <= 2 else 0.0
    if dtype.kind in "bOUS":
        return 0.0, 0.0
    return relative_tolerance(dtype), step * _ATOL_QUANTIZED


def relative_tolerance(dtype: np.dtype) -> float:
    """Allowed difference of two floats of a type, relative to the largest magnitude in the tensor."""
    return NATIVE.get(dtype.name, NATIVE["float32"] if dtype.itemsize > 2 else COARSE)


def is_integer(dtype: np.dtype) -> bool:
    """Whether elements are whole numbers."""
    # The 2- and 4-bit integers of ml_dtypes are of numpy's kind "V".
    return dtype.kind in "iu" or (dtype.kind == "V" and ir.DataType.from_numpy(dtype).is_integer())


def _compare_arrays(
    name: str, a: np.ndarray, b: np.ndarray, numerics: NumericsName, rtol: float, atol: float
) -> Difference:
    error, scale = absolute_differences(a, b), 0.0 if a.dtype.kind in "OUS" else magnitude(a)
    worst = float(error.max(initial=0.0))
    beyond = error > rtol * scale + atol
    if numerics == "exact" and not is_integer(a.dtype) and a.dtype.kind not in "bOUSc":
        beyond |= (a == 0) & (np.signbit(a.astype(np.float64)) != np.signbit(b.astype(np.float64)))
    differing = int(np.count_nonzero(beyond))
    index = values = None
    if differing:
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond)), beyond.shape))
        values = (str(a[index]), str(b[index]))
    return Difference(
        name,
        agrees=not differing,
        max_abs_error=worst,
        max_rel_error=worst / scale if scale > 0 else (0.0 if worst == 0 else float("inf")),
        differing=differing,
        elements=a.size,
        index=index,
        values=values,
    )


def absolute_differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Absolute differences of elements; infinite between texts that differ."""
    if a.dtype.kind in "OUS":
        return np.where(a == b, 0.0, np.inf)
    if a.shape != b.shape or a.size <= _BLOCK:
        return _differences(a, b)
    found = np.empty(a.shape)
    left, right, into = a.reshape(-1), b.reshape(-1), found.reshape(-1)
    for start in range(0, a.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        into[block] = _differences(left[block], right[block])
    return found


def _differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        # 64 bits do not fit a float: the larger less the smaller, as unsigned numbers, cannot overflow.
        larger, smaller = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
        with np.errstate(over="ignore"):  # The sum wraps around to the right number; scalars would warn.
            return np.asarray(larger - smaller).astype(np.float64)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        error = np.abs(x - y)
    if a.dtype.kind in "iu":
        return np.asarray(error)
    # Equal infinities and NaN in both are not a difference, NaN or infinity in one is.
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def magnitude(array: np.ndarray) -> float:
    """The largest finite magnitude."""
    if array.size and array.dtype.kind in "fiu":
        ends = abs(float(array.min())), abs(float(array.max()))
        if np.isfinite(ends).all():
            return max(ends)
    sizes = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))


def _incomparable(name: str, reason: str) -> Difference:
    return Difference(name, False, reason, max_abs_error=float("inf"), max_rel_error=float("inf"))


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}"
    if isinstance(value, dict):
        return f"a map of {len(value)}"
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
