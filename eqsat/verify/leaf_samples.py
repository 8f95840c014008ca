"""Values for the leaves of a piece: ordinary ones, and ones that reach both sides of every threshold.

One sample holds many magnitudes side by side where tensors are large; small tensors get more samples. A sample is
identified by a number, so that a difference can be drawn again.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.ops.wide import smallest_normal
from eqsat.schema.dtypes import limits
from eqsat.schema.types import TensorType


@dataclass(frozen=True)
class Style:
    """How a sample is drawn.

    Attributes:
        name: For messages.
        kind: ``"normal"``, ``"mixed"``, ``"constant"``, ``"equal"``, ``"extreme"``, ``"tiny"``, ``"least"`` or
            ``"positive"``.
        scale: Factor of normal numbers.
    """

    name: str
    kind: str
    scale: float = 1.0

    @property
    def is_ordinary(self) -> bool:
        """Whether programs have no reason to overflow."""
        return self.kind == "natural" or (self.kind == "normal" and self.scale == 1.0)


ORDINARY = Style("normal numbers", "normal")
MIXED = Style("numbers around the thresholds", "mixed")
POSITIVE = Style("positive numbers", "positive")
ZEROS = Style("zeros", "constant", 0.0)
EQUAL = Style("equal numbers", "equal")
EXTREME = Style("numbers up to the limits of the type", "extreme")
TINY = Style("tiny numbers", "tiny")
LEAST = Style("the smallest normal numbers", "least")


def scaled(factor: float) -> Style:
    """Normal numbers times a factor."""
    return Style(f"normal numbers times {factor:g}", "normal", factor)


def draw(kind: TensorType, style: Style, points: Sequence[float], seed: int, name: str) -> np.ndarray | None:
    """Contents of a tensor; None for a type that has no numbers.

    Args:
        kind: Static type.
        style: How contents are drawn.
        points: Thresholds.
        seed: Seed of the random numbers, together with the name.
        name: Distinguishes the tensors of one sample.
    """
    dtype = kind.dtype
    shape = tuple(d for d in kind.shape or () if isinstance(d, int))
    rng = np.random.default_rng([seed, zlib.crc32(f"{name}/{style.name}".encode())])
    if dtype == ir.DataType.BOOL:
        found = _truths(rng, shape, style)
    elif dtype.is_integer():
        found = _integers(rng, dtype, shape, style, points)
    elif dtype.is_floating_point():
        with np.errstate(over="ignore"):
            found = _floats(rng, dtype, shape, style, points)
    else:
        return None
    return _with_equal_rows(rng, np.asarray(found)) if style.kind == "mixed" else np.asarray(found)


def _truths(rng: np.random.Generator, shape: tuple[int, ...], style: Style) -> np.ndarray:
    if style.kind in ("constant", "equal"):
        return np.full(shape, style.kind == "equal")
    return np.asarray(rng.random(shape) < 0.5)


def _with_equal_rows(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """The values with a quarter of the rows along the last axis (for truth values half of them) equal to their first
    element: masks that hide all or nothing, ties, and rows without variance.
    """
    if values.ndim < 2 or not values.size:
        return values
    rows = rng.random(values.shape[:-1]) < (0.5 if values.dtype == bool else 0.25)
    return np.where(rows[..., None], values[..., :1], values)


def _floats(
    rng: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...], style: Style, points: Sequence[float]
) -> np.ndarray:
    low, high = limits(dtype)
    normal = rng.standard_normal(shape)
    if style.kind == "normal":
        values = normal * style.scale
    elif style.kind == "positive":
        values = np.abs(normal) + 0.125
    elif style.kind == "constant":
        values = np.full(shape, style.scale)
    elif style.kind == "equal":
        values = np.full(shape, rng.standard_normal())
    elif style.kind == "tiny":
        values = normal * max(1e-6, 64 * smallest_normal(dtype))
    elif style.kind == "least":
        values = np.exp2(rng.uniform(0, 3, shape)) * smallest_normal(dtype) * rng.choice((-1.0, 1.0), shape)
    elif style.kind == "extreme":
        magnitude = np.exp(rng.uniform(0.0, np.log(float(high)), shape)) / 4
        values = np.where(rng.random(shape) < 0.5, -magnitude, magnitude)
        ends = np.array([low, high, low / 2, high / 2, 0.0])
        values = np.asarray(np.where(rng.random(shape) < 0.25, ends[rng.integers(len(ends), size=shape)], values))
        if values.size > 2:
            values.flat[rng.permutation(values.size)[:2]] = (low, high)
    else:
        values = _around(rng, shape, normal, points)
    return np.asarray(np.clip(values, low, high)).astype(dtype.numpy())


def _around(
    rng: np.random.Generator, shape: tuple[int, ...], normal: np.ndarray, points: Sequence[float]
) -> np.ndarray:
    """Thresholds, numbers next to them, far below and far above, of both signs; some ordinary numbers and zeros."""
    marks = sorted({0.0, *points, *(-p for p in points)})
    centre = np.asarray(marks)[rng.integers(len(marks), size=shape)]
    far = 10.0 ** rng.uniform(-3, 1, shape) * np.where(centre == 0, 1.0, np.abs(centre))
    near = np.where(centre == 0, 1.0, np.abs(centre)) * 2.0 ** -rng.integers(2, 10, shape)
    sign = rng.choice((-1.0, 1.0), shape)
    choice = rng.integers(0, 10, shape)
    values = np.select(
        [choice < 4, choice < 7, choice < 8], [centre + sign * far, centre + sign * near, centre], normal
    )
    return np.asarray(values)


def _integers(
    rng: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...], style: Style, points: Sequence[float]
) -> np.ndarray:
    low, high = (int(v) for v in limits(dtype))
    if style.kind == "extreme":
        ends = [low, low + 1, high, high - 1, 0, 1, max(low, -1), high // 2, low // 2]
        return np.array(ends, np.uint64 if low == 0 else np.int64)[rng.integers(len(ends), size=shape)].astype(
            dtype.numpy()
        )
    top = min(high, 2**62)
    few = min(high, 9)
    if style.kind == "constant":
        values = np.zeros(shape, np.int64)
    elif style.kind == "equal":
        values = np.full(shape, rng.integers(1, few, endpoint=True))
    elif style.kind == "positive":
        values = rng.integers(1, few, shape, endpoint=True)
    elif style.kind == "normal" and dtype.bitwidth <= 8:
        values = rng.integers(low, high, shape, endpoint=True)
    elif style.kind == "mixed":
        marks = np.array(sorted({0, *(int(np.clip(np.rint(p), max(low, -top), top)) for p in points)}), np.int64)
        values = marks[rng.integers(len(marks), size=shape)] + rng.integers(-3, 3, shape, endpoint=True)
    else:
        values = rng.integers(max(low, -9), few, shape, endpoint=True) * int(np.clip(style.scale, 1, top // 16))
    return np.clip(values, max(low, -(2**62)), top).astype(dtype.numpy())
