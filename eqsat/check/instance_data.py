"""The data of instances: values around numbers in the rule's text, values that hide nothing, and special ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.check.reached_arguments import reached
from eqsat.ops.sampling.chance import Chance
from eqsat.ops.sampling.node import Fill
from eqsat.rules.ast import Apply, Name, Number, Rule
from eqsat.rules.tree import walk
from eqsat.schema.dtypes import dtype_name, limits
from eqsat.schema.types import Shape

Mood = Literal["plain", "special", "grid"]
"""``special`` data hold zeros of both signs, infinities, NaN, the smallest and largest numbers. Floats on a ``grid``
are multiples of a half, so that some are equal, or halfway between integers, and sums are not rounded."""

SMALL = 0.01
"""Numbers of a rule below this are relevant next to a square or a variance, and data are drawn accordingly."""
_ALWAYS = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0)

DTYPES: dict[ir.DataType, float] = {
    ir.DataType.FLOAT: 0.3,
    ir.DataType.DOUBLE: 0.36,
    ir.DataType.FLOAT16: 0.04,
    ir.DataType.INT32: 0.07,
    ir.DataType.INT64: 0.07,
    ir.DataType.INT8: 0.05,
    ir.DataType.UINT8: 0.05,
    ir.DataType.INT16: 0.02,
    ir.DataType.UINT32: 0.02,
    ir.DataType.BOOL: 0.02,
}
"""Element types by how often they are drawn; those that an operator does not take are left out there."""
RARE = (
    ir.DataType.BFLOAT16,
    ir.DataType.UINT16,
    ir.DataType.UINT64,
    ir.DataType.INT4,
    ir.DataType.UINT4,
    ir.DataType.INT2,
    ir.DataType.UINT2,
    ir.DataType.FLOAT8E4M3FN,
    ir.DataType.FLOAT8E4M3FNUZ,
    ir.DataType.FLOAT8E5M2,
    ir.DataType.FLOAT8E5M2FNUZ,
)
"""Element types drawn only if a rule names them, or if an operator takes no usual type."""
_NAMED = 0.4


def dtypes_of(rule: Rule) -> dict[ir.DataType, float]:
    """The element types of a rule's instances, by how often they are drawn."""
    return DTYPES | {d: _NAMED for d in named_in(rule) if d in RARE}


def named_in(rule: Rule) -> tuple[ir.DataType, ...]:
    """The element types that a rule mentions, among those that few operators take or produce by quantization."""
    names = {n.name for n in walk((rule.left, rule.right, rule.where)) if isinstance(n, Name)}
    return tuple(d for d in (*RARE, ir.DataType.INT16) if dtype_name(d) in names)


@dataclass(frozen=True)
class Pool:
    """Numbers that the conditions of a rule may require.

    Attributes:
        numbers: Numbers in the text, and results of simple arithmetic on them.
        extremes: Whether the rule mentions the least and greatest value of a type.
        mentioned: Only the numbers in the text, if their neighbours are drawn as well.
        reached: Arguments at which functions of the rule give these.
    """

    numbers: tuple[float, ...]
    extremes: bool
    mentioned: tuple[float, ...] = ()
    reached: tuple[float, ...] = ()

    @staticmethod
    def of(rule: Rule, pointed: bool) -> Pool:
        """The pool of a rule."""
        found = literals(rule)
        nodes = walk((rule.left, rule.right, rule.where))
        base = list(found)
        derived = dict.fromkeys(base)
        for a in base:
            derived.setdefault(-a)
            for b in base:
                if b:
                    derived.setdefault(a / b)
        called = any(isinstance(n, Apply) and n.function in ("lowest", "highest") for n in nodes)
        finite = tuple(v for v in derived if math.isfinite(v))
        return Pool(finite, called, found, reached(rule, found)) if pointed else Pool(finite, called)

    def beside(self, chance: Chance) -> float:
        """A number next to, or of the magnitude of, one that the text mentions."""
        number = chance.one_of(self.mentioned or _ALWAYS)
        return float(np.float32(number * chance.one_of((0.1, 0.5, 0.9, 1 - 2.0**-22, 1 + 2.0**-22, 1.1, 2.0))))

    def draw(self, chance: Chance, dtype: ir.DataType) -> float:
        """One number that a constant may be made of."""
        if self.extremes and chance.happens(0.5):
            low, high = limits(dtype)
            if high > 1 and dtype.is_floating_point() and chance.happens(0.3):
                low, high = -math.inf, math.inf
            return chance.one_of((low, high))
        kind = chance.number(0, 3)
        if kind == 1 and self.mentioned and dtype.is_floating_point() and chance.happens(0.3):
            return self.beside(chance)
        if kind <= 1 and self.numbers:
            return chance.one_of(self.numbers)
        if kind == 2:
            return chance.one_of(_ALWAYS)
        return float(np.float32(chance.rng.uniform(*chance.one_of(((-4.0, 4.0), (0.0, 1.0), (0.0, 8.0))))))


def literals(rule: Rule) -> tuple[float, ...]:
    """The numbers that a rule's text contains, in order."""
    found = dict.fromkeys(float(n.value) for n in walk((rule.left, rule.right, rule.where)) if isinstance(n, Number))
    return tuple(found)


def is_dyadic(value: float) -> bool:
    """Whether float32, and so an attribute, holds a number exactly."""
    with np.errstate(over="ignore"):
        return not math.isfinite(value) or float(np.float32(value)) == value


def around(numbers: Sequence[float], dtype: ir.DataType) -> np.ndarray:
    """The numbers that a rule mentions, in a type, each with its two neighbours."""
    kind = dtype.numpy()
    found: list[float] = []
    if dtype.is_integer():
        low, high = limits(dtype)
        for number in numbers:
            if math.isfinite(number):
                found += [
                    v for v in (math.floor(number), math.floor(number) - 1, math.ceil(number) + 1) if low <= v <= high
                ]
        return np.asarray(found, dtype=object).astype(kind)
    if kind not in (np.float16, np.float32, np.float64):
        return np.empty(0, kind)
    with np.errstate(over="ignore"):
        exact = np.asarray([n for n in numbers if math.isfinite(n)], np.float64).astype(kind)
    exact = exact[np.isfinite(exact) & (exact != 0)]
    inf = np.asarray(np.inf, kind)
    return np.concatenate([exact, np.nextafter(exact, inf), np.nextafter(exact, -inf)])


def array(
    chance: Chance,
    shape: Shape,
    dtype: ir.DataType,
    fill: Fill = "any",
    mood: Mood = "plain",
    numbers: Sequence[float] | None = None,
    arguments: Sequence[float] = (),
) -> np.ndarray:
    """Random contents; among them are numbers that the rule mentions, and their neighbours.

    Plain floats are of float32's precision and moderate, so that a wrong constant shows and rounding does not.

    Args:
        numbers: Numbers that the rule mentions; None if they do not matter.
        arguments: Arguments of its functions, which occur as well.
    """
    kind = dtype.numpy()
    rng = chance.rng
    if dtype == ir.DataType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_integer():
        return _mixed(chance, _integers(chance, shape, dtype, fill).astype(kind), dtype, fill, numbers)
    if mood == "grid":
        return _mixed(chance, _on_grid(chance, shape, fill).astype(kind), dtype, fill, numbers)
    values = rng.uniform(0.125, 2.5, shape) * rng.choice((-1.0, 1.0), shape)
    if fill in ("positive", "scale"):
        values = np.abs(values)
    elif fill == "unit":
        values = np.abs(values) / 2.6
    elif fill == "any" and chance.happens(0.3):
        values = np.where(rng.random(shape) < 0.1, 0.0, values)
    found = np.asarray(values).astype(np.float16 if chance.happens(0.5) else np.float32).astype(kind)
    found = _mixed(chance, found, dtype, fill, [*numbers, *arguments] if numbers else numbers)
    if fill == "any" and numbers is not None:
        found = _scaled(chance, found, mood, numbers)
    if mood == "special" and fill != "scale":
        found = _with_specials(chance, found, dtype)
    return found


def hiding(chance: Chance, values: np.ndarray, dtype: ir.DataType) -> np.ndarray:
    """Contents in which some rows, and some elements of others, are the lowest number: a mask that hides them."""
    rows = chance.rng.random((*values.shape[:-1], *[1] * min(values.ndim, 1))) < 0.3
    return np.asarray(np.where(rows | (chance.rng.random(values.shape) < 0.3), limits(dtype)[0], values), values.dtype)


def _on_grid(chance: Chance, shape: Shape, fill: Fill) -> np.ndarray:
    rng = chance.rng
    if fill == "scale":
        return np.exp2(rng.integers(-2, 2, shape, endpoint=True))
    if fill == "unit":
        return rng.integers(1, 7, shape, endpoint=True) / 8
    halves = rng.integers(1, 7, shape, endpoint=True) / 2
    if fill == "positive":
        return halves
    signed = halves * rng.choice((-1.0, 1.0), shape)
    return signed if fill == "nonzero" else np.where(rng.random(shape) < 0.1, 0.0, signed)


def _mixed(
    chance: Chance, values: np.ndarray, dtype: ir.DataType, fill: Fill, numbers: Sequence[float] | None
) -> np.ndarray:
    """Contents with some numbers that the rule mentions, in a third of the arrays."""
    if not numbers or fill in ("scale", "unit"):
        return values
    edges = around(numbers, dtype)
    if fill == "positive":
        edges = edges[edges > 0]
    if not edges.size or not chance.happens(0.35):
        return values
    chosen = edges[chance.rng.integers(len(edges), size=values.shape)]
    return np.asarray(np.where(chance.rng.random(values.shape) < 0.4, chosen, values), values.dtype)


def _scaled(chance: Chance, values: np.ndarray, mood: Mood, numbers: Sequence[float]) -> np.ndarray:
    """Contents all scaled down, so that numbers of the rule are not negligible beside them, or all scaled up."""
    small = [n for n in map(abs, numbers) if 0 < n < SMALL]
    if not chance.happens(0.3 if small else 0.05):
        return values
    scales = [s for n in small for s in (n, math.sqrt(n))] or [2.0**-10]
    if mood == "special":
        scales.append(2.0**13)  # Other classes do not claim how such numbers round.
    with np.errstate(all="ignore"):
        return np.asarray(values * np.asarray(chance.one_of(scales)).astype(values.dtype), values.dtype)


def _with_specials(chance: Chance, values: np.ndarray, dtype: ir.DataType) -> np.ndarray:
    info = ml_dtypes.finfo(dtype.numpy())
    specials = np.array(
        [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            info.smallest_subnormal,
            -info.smallest_subnormal,
            info.max,
            info.min,
            1.0,
        ],
        values.dtype,
    )
    chosen = specials[chance.rng.integers(len(specials), size=values.shape)]
    return np.asarray(np.where(chance.rng.random(values.shape) < 0.4, chosen, values), values.dtype)


def _integers(chance: Chance, shape: Shape, dtype: ir.DataType, fill: Fill) -> np.ndarray:
    low, high = (int(v) for v in limits(dtype))
    rng = chance.rng
    style = chance.number(0, 2)
    if style == 0:
        values = rng.integers(max(low, -9), min(high, 9), shape, endpoint=True, dtype=np.int64)
    elif style == 1:
        values = rng.integers(low, high, shape, endpoint=True, dtype=np.uint64 if low == 0 else np.int64)
    else:
        edges = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3], dtype=object)
        values = edges[rng.integers(len(edges), size=shape)]
    values = np.asarray(values, dtype=object)
    if fill != "any":
        values = np.where(values == 0, 1, values)
    if fill in ("positive", "scale", "unit"):
        values = np.where(values < 0, 2, values)
    return np.asarray(values, dtype=object)
