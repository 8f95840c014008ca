"""Dimensions of ONNX, which may be expressions of symbols, as sizes; shapes of them broadcast."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from eqsat.schema.free_sizes import FreeSize, ranges
from eqsat.schema.size import Size, Undecided, symbol
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import any_free

ANY_SIZE = FreeSize(0, None, 0)
_NAMES = re.compile(r"[^\W\d]\w*")


def size_of(dim: int | str, free: Mapping[str, FreeSize]) -> int:
    """The size that a dimension of ONNX is.

    Args:
        dim: A number, or an expression of symbols.
        free: The symbols.

    Raises:
        Undecided: It is not a polynomial of free sizes, of their quotients and the like.
    """
    return _parsed(dim, tuple(free.items())) if isinstance(dim, str) else int(dim)


def dimension(dim: str | None) -> int | None:
    """A symbolic dimension as a size within the current ranges; None if it is not an expression of sizes.

    Sizes that are not mentioned depend on data, and may be zero.
    """
    if dim is None:
        return None
    known = ranges()
    free = tuple((name, known.get(name, ANY_SIZE)) for name in dict.fromkeys(_NAMES.findall(dim)))
    try:
        return _parsed(dim, free)
    except Undecided:
        return None


@lru_cache(maxsize=4096)
def _parsed(dim: str, free: tuple[tuple[str, FreeSize], ...]) -> int:
    try:
        found = _read(ast.parse(dim, mode="eval").body, dict(free))
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError):  # Files may say anything there.
        raise Undecided(f"{dim[:80]!r} is not an expression of sizes") from None
    if found[1] != 1:
        raise Undecided(f"{dim!r} is not a whole number for all sizes")
    return found[0]


def _read(node: ast.expr, free: Mapping[str, FreeSize]) -> tuple[int, int]:
    """Numerator and denominator."""
    match node:
        case ast.Constant(value=int(value)):
            return value, 1
        case ast.Name(id=name) if name in free:
            return symbol(name, free[name]), 1
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            a, p = _read(operand, free)
            return -a, p
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power >= 0:
            a, p = _read(left, free)
            return a**power, p**power
        case ast.BinOp(left=left, op=op, right=right):
            return _computed(op, *_read(left, free), *_read(right, free))
        case ast.Call(func=ast.Name(id=("floor" | "ceiling") as name), args=[argument]):
            a, p = _read(argument, free)
            return (a // p if name == "floor" else -(-a // p)), 1
        case ast.Call(func=ast.Name(id=("Max" | "Min") as name), args=[first, *rest]):
            found = _whole(first, free)
            for other in rest:
                found = (largest if name == "Max" else smallest)(found, _whole(other, free))
            return found, 1
        case ast.Call(func=ast.Name(id="Mod"), args=[first, second]):
            return _whole(first, free) % _whole(second, free), 1
        case _:
            raise Undecided(f"{ast.unparse(node)!r} is not a size of the inputs")


def _whole(node: ast.expr, free: Mapping[str, FreeSize]) -> int:
    a, p = _read(node, free)
    if p != 1:
        raise Undecided(f"{ast.unparse(node)!r} is not a whole number for all sizes")
    return a


def _computed(op: ast.operator, a: int, p: int, b: int, q: int) -> tuple[int, int]:
    match op:
        case ast.Add() | ast.Sub():
            return _reduced(a * q + b * p if isinstance(op, ast.Add) else a * q - b * p, p * q)
        case ast.Mult():
            return _reduced(a * b, p * q)
        case ast.Div():
            return _reduced(a * q, p * b)
        case ast.FloorDiv():
            return (a * q) // (p * b), 1
        case ast.Mod() if p == q == 1:
            return a % b, 1
        case _:
            raise Undecided("a size of an unknown form")


def _reduced(a: int, p: int) -> tuple[int, int]:
    """A fraction in lower terms, with a positive denominator."""
    if not isinstance(a, Size) and not isinstance(p, Size):
        found = Fraction(a, p)
        return found.numerator, found.denominator
    if isinstance(p, Size):
        return (a // p, 1) if a % p == 0 else (a, p)
    divisor = common_divisor(a, p) * (1 if p > 0 else -1)
    return a // divisor, p // divisor


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which shapes broadcast: a free size only with itself and with 1.

    Raises:
        ValueError: They do not, or not for all sizes.
    """
    if not any(map(any_free, shapes)):
        return np.broadcast_shapes(*map(tuple, shapes))
    rank = max(map(len, shapes))
    result = []
    for axis in range(rank):
        given = [shape[axis - rank + len(shape)] for shape in shapes if axis >= rank - len(shape)]
        sizes = [n for n in given if n != 1]
        if any(n != sizes[0] for n in sizes):
            raise ValueError(f"{' and '.join(map(repr, sizes))} do not broadcast")
        result.append(sizes[0] if sizes else 1)
    return tuple(result)


def common_divisor(value: int, other: int) -> int:
    """A number that divides both for all sizes: the greatest of a size's coefficients and the other number."""
    if not isinstance(value, Size):
        return math.gcd(value, other)
    return math.gcd(other, *value.terms.values())


def as_divisor(count: int) -> str:
    """The number of elements of a mean as a double in C. It is never zero: the mean of no elements is their sum."""
    divisor = largest(count, 1)
    return f"(double){divisor}" if isinstance(divisor, Size) else f"{divisor}.0"
