"""Elementwise arithmetic in every type, with constants from the whole range of the type."""

from __future__ import annotations

import numpy as np

from tests.fuzz.growing import Growing, RefusedError, Value
from tests.fuzz.numbers import INTEGERS, is_float, wild_number

BINARY = ("Add", "Sub", "Mul", "Div")
NEUTRAL = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5)


def number(g: Growing, dtype: np.dtype) -> float:
    """One constant."""
    if not is_float(dtype):
        info = np.iinfo(dtype)
        ends = (info.min, info.max, info.max - 1, info.max // 2 + 1)
        return int(g.one_of(ends)) if g.chance(0.25) else int(g.one_of((0, 1, 2, 3, 5, 7, 100)))
    if g.chance(0.3):
        return g.one_of(NEUTRAL)
    if g.wild or g.chance(0.2):
        return wild_number(g.rng, dtype)
    return float(g.rng.standard_normal())


def operand(g: Growing, x: Value) -> Value:
    """A constant that broadcasts with a value: one number, or several."""
    dtype = x.array.dtype
    shapes = [(), (), (1,), (1,) * len(x.shape), x.shape[-1:], x.shape]
    if len(x.shape) >= 3:
        shapes.append((x.shape[1], *[1] * (len(x.shape) - 2)))
    if g.chance(0.1):
        shapes.append((1, *x.shape))
    shape = g.one_of(shapes)
    if g.chance(0.75):
        return g.constant(np.full(shape, number(g, dtype)), dtype)
    each = [number(g, dtype) for _ in range(int(np.prod(shape)))]
    return g.constant(np.array(each, np.float64 if is_float(dtype) else object).reshape(shape), dtype)


def any_number(g: Growing) -> Value:
    """A run-time value of numbers, of whatever type; mostly the main one."""
    fits = [v for v in g.values if not v.constant and v.array.dtype.kind != "O" and v.array.dtype != np.bool_]
    main = [v for v in fits if v.is_float]
    chosen = main if main and g.chance(0.8) else fits
    if not chosen:
        raise RefusedError("no numbers")
    return chosen[-min(int(g.rng.geometric(0.3)), len(chosen))]


def partner(g: Growing, x: Value) -> Value:
    """Another run-time value of the same type that broadcasts with it."""

    def fits(v: Value) -> bool:
        pairs = zip(reversed(v.shape), reversed(x.shape), strict=False)
        return not v.constant and v.array.dtype == x.array.dtype and all(m == n or 1 in (m, n) for m, n in pairs)

    return g.one_of([v for v in g.values if fits(v)])


def apply(g: Growing, name: str, a: Value, b: Value) -> Value:
    if (
        name == "Div"
        and not is_float(a.array.dtype)
        and (not b.constant or (b.array == 0).any() or (b.array == -1).any())
    ):
        raise RefusedError("an integer division by 0")
    return g.op(name, a, b)


def step(g: Growing) -> Value:
    """One operator with a constant, on either side."""
    x = any_number(g)
    c = operand(g, x)
    name = g.one_of((*BINARY, "Mul", "Add", "Max", "Min"))
    return apply(g, name, *((x, c) if g.chance(0.6) else (c, x)))


def chain(g: Growing) -> Value:
    """Several constants after each other, with the intermediate results read elsewhere now and then."""
    x = any_number(g)
    names = BINARY if g.chance(0.5) else (g.one_of(("Mul", "Add")),)
    for _ in range(g.size(2, 4)):
        c = operand(g, x)
        x = apply(g, g.one_of(names), *((x, c) if g.chance(0.7) else (c, x)))
    return x


def sums_of_multiples(g: Growing) -> Value:
    """x + x, x + x * c, x * c + y * c, and what may be made of them."""
    x = any_number(g)
    y = partner(g, x)
    c = operand(g, x)
    kind = g.size(0, 7)
    if kind == 0:
        z = g.op("Add", x, x)
        return g.op(g.one_of(("Add", "Mul", "Sub")), z, g.one_of((z, x, c)))
    if kind == 1:
        return g.op("Add", *g.one_of(((x, g.op("Mul", x, c)), (g.op("Mul", c, x), x))))
    if kind == 2:
        return g.op("Add", g.op("Mul", x, c), g.op("Mul", y, c))
    if kind == 3:
        z = partner(g, x)
        return g.op("Add", g.op("Mul", x, z), g.op("Mul", z, y))
    if kind == 4:
        z = g.op("Add", x, x)
        return g.op("Max", z, g.op("Mul", z, c))
    if kind == 5:
        return g.op("Mul", g.op("Add", x, y), g.op("Sub", x, y))
    if kind == 6:
        return g.op("Sub", g.op("Mul", x, x), g.op("Mul", y, y))
    return g.op("Mul", g.op("Mul", x, c), y) if g.chance(0.5) else g.op("Add", g.op("Add", x, c), y)


def one_operand(g: Growing) -> Value:
    """A function, of what lies in its domain."""
    x = any_number(g)
    name = g.one_of(
        ("Neg", "Neg", "Abs", "Reciprocal", "Sqrt", "Exp", "Log", "Floor", "Round", "Ceil", "Sign", "Not", "Identity")
    )
    if name == "Not":
        return g.op("Not", g.op(g.one_of(("Less", "GreaterOrEqual", "Equal")), x, operand(g, x)))
    if name in ("Sqrt", "Log") and not (x.array.astype(np.float64) > 0).all():
        return g.op(name, g.op("Abs", x))
    if not is_float(x.array.dtype) and (name not in ("Neg", "Abs", "Sign", "Identity") or x.array.dtype.kind == "u"):
        raise RefusedError
    return g.op(name, x)


def power(g: Growing) -> Value:
    x = any_number(g)
    if not is_float(x.array.dtype):
        raise RefusedError
    exponent = g.one_of((2.0, 1.0, 0.5, -0.5, -1.0, 3.0, 0.0))
    base = x if exponent in (2.0, 1.0, -1.0, 3.0, 0.0) else g.op("Abs", x)
    return g.op("Pow", base, g.constant(exponent, x.array.dtype))


def compared(g: Growing) -> Value:
    """A choice by a comparison."""
    x = any_number(g)
    y = partner(g, x) if g.chance(0.5) else operand(g, x)
    condition = g.op(g.one_of(("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")), x, y)
    return g.op("Where", condition, x, y)


def cast(g: Growing) -> Value:
    """To another type and perhaps back. What does not fit is undefined, so the values are kept small."""
    import onnx_ir as ir

    x = any_number(g)
    numbers = x.array.astype(np.float64)
    kinds = [np.float32, np.float64, np.float16, g.floats, np.int32, np.int64, np.bool_, g.one_of(INTEGERS)]
    to = np.dtype(g.one_of(kinds))
    if not is_float(to) and to != np.bool_:
        limits = np.iinfo(to)
        if numbers.size and not (numbers.min() > limits.min + 1 and numbers.max() < limits.max - 1):
            raise RefusedError("out of range")
    return g.op("Cast", x, to=int(ir.DataType.from_numpy(to)))


ALGEBRA = (
    (step, 4), (chain, 5), (sums_of_multiples, 5), (one_operand, 3), (power, 1), (compared, 1), (cast, 1),
)  # fmt: skip
