"""The numbers of random graphs: ordinary ones, those near thresholds, and those from the ends of a type's range."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

FLOATS: tuple[tuple[Any, float], ...] = (
    (np.float32, 5.0), (np.float16, 2.0), (ml_dtypes.bfloat16, 1.0), (np.float64, 2.0),
)  # fmt: skip
INTEGERS: tuple[Any, ...] = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint32, np.uint64)


def is_float(dtype: Any) -> bool:
    return any(np.dtype(kind) == dtype for kind, _ in FLOATS)


def info(dtype: Any) -> Any:
    """Limits of a float type."""
    return np.finfo(dtype) if np.dtype(dtype).kind == "f" else ml_dtypes.finfo(dtype)


def wild_number(rng: np.random.Generator, dtype: Any) -> float:
    """A number from anywhere in the range of a float type: powers of ten, limits, subnormals."""
    limits = info(dtype)
    largest, least, normal = float(limits.max), float(limits.smallest_subnormal), float(limits.smallest_normal)
    kind = int(rng.integers(10))
    if kind <= 4:
        exponent = rng.integers(int(np.ceil(np.log10(least))), int(np.log10(largest)) + 1)
        found = float(rng.choice([1.0, 1.0, 3.0, 0.5, 6.5])) * 10.0 ** float(exponent)
        found = min(found, largest)
    elif kind == 5:
        found = float(rng.choice([largest, largest / 2, largest * 0.9]))
    elif kind == 6:
        found = float(rng.choice([least, normal, normal / 2, normal * 3]))
    elif kind == 7:
        found = float(rng.choice([np.sqrt(largest), np.sqrt(normal), float(limits.eps), 1 / float(limits.eps)]))
    else:
        found = float(rng.choice([0.5, 1.0, 2.0, 3.0, 1 / 3, 0.1]))
    return -found if rng.random() < 0.3 else found


def data(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, *, wild: bool = False) -> np.ndarray:
    """Contents of an input: mostly ordinary, in part what rules and kernels may stumble over."""
    if dtype.kind == "O":
        return strings(rng, shape)
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if not is_float(dtype):
        limits = np.iinfo(dtype)
        whole = wild or limits.bits <= 8
        low, high = (limits.min, limits.max) if whole and rng.random() < 0.6 else (max(limits.min, -9), 9)
        return np.asarray(rng.integers(low, high, shape, dtype=dtype, endpoint=True))
    values = np.asarray(rng.standard_normal(shape))
    kind = int(rng.integers(10))
    if kind == 0:
        # Near thresholds: halves and whole numbers, and their neighbours.
        near = np.rint(values * 4) / 2
        nudge = rng.integers(-1, 2, shape) * float(info(dtype).eps)
        values = near * (1 + nudge)
    elif kind == 1:
        values = np.where(rng.random(shape) < 0.3, rng.choice([0.0, -0.0], shape), values)
    elif kind == 2 or (wild and kind <= 4):
        with np.errstate(all="ignore"):
            values = values * abs(wild_number(rng, dtype))
    elif wild and kind == 5:
        each = np.array([wild_number(rng, dtype) for _ in range(int(np.prod(shape)))]).reshape(shape)
        values = each
    with np.errstate(all="ignore"):
        found = np.asarray(values).astype(dtype)
    top = info(dtype).max
    return np.where(np.isfinite(found.astype(np.float64)), found, np.asarray(top, dtype)).astype(dtype)


WORDS = ("", "a", "b", "Ab", "aB c", "ä", "x,y", "0", "a")


def strings(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Short words, some of them equal."""
    found = np.empty(shape, object)
    for index in np.ndindex(*shape):
        found[index] = WORDS[int(rng.integers(len(WORDS)))]
    return found
