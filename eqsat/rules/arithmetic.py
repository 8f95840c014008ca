"""The values of expressions: how they compare and compute, and where that is unknown.

Whole numbers are exact Python integers also inside arrays, so that shapes and zero points never overflow. Floats
keep the precision of their origin until they are computed with: a float32 constant equals the literal ``0.1``
if it is the float32 nearest to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.rules.known_facts import SymbolicDim, Unknown
from eqsat.schema.size import Size, Undecided
from eqsat.schema.size_questions import may_be_zero

_LARGEST_BITS = 4096
LONGEST = 100_000
"""Items of a list that is made by repeating or counting."""


def contents(value: np.ndarray) -> Any:
    """Contents of a constant for an expression: a scalar if it has no dimensions, otherwise an array."""
    array = np.asarray(value)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    elif array.dtype.kind in "iu" or array.dtype.name in ("int4", "uint4", "int2", "uint2"):
        whole = np.empty(array.shape, dtype=object)
        whole.flat[:] = [int(v) for v in array.flat]
        array = whole
    if array.dtype == object:
        decoded = np.empty(array.shape, dtype=object)
        decoded.flat[:] = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.flat]
        array = decoded
    if array.ndim:
        return array
    return bool(array[()]) if array.dtype.kind == "b" else array[()]


def items(value: object) -> list[Any]:
    """Items of a list or, along its first dimension, of an array."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, np.ndarray) and value.ndim:
        return [value[i] for i in range(len(value))]
    raise Unknown("a list is required")


def as_number(value: object) -> int | float:
    """A number to compute with; a truth value is not a number."""
    if isinstance(value, SymbolicDim):
        raise Unknown(f"dimension {value.name or 'of unknown size'} is not a number")
    if isinstance(value, Size):
        return value
    if isinstance(value, ir.DataType):
        return int(value)
    if isinstance(value, int | float) and not isinstance(value, bool | np.generic):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.generic) and not isinstance(value, np.bool_ | np.complexfloating | np.str_ | np.bytes_):
        return float(value)
    raise Unknown(f"{value!r} is not a number")


def _operand(value: object) -> Any:
    """An operand of arithmetic: a Python number, or an array of exact integers or float64."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return value
        if value.dtype.kind in "bcSU":
            raise Unknown("an array without numbers")
        return value.astype(np.float64)
    if isinstance(value, tuple | list):
        return _array(value)
    return as_number(value)


def _array(value: tuple[Any, ...] | list[Any]) -> np.ndarray:
    """A nested list as an array; a ragged list has none."""
    numbers = [_array(v) if isinstance(v, tuple | list) else v for v in value]
    if any(isinstance(v, np.ndarray) for v in numbers):
        if len({np.shape(v) for v in numbers}) != 1:
            raise Unknown("a list of lists of unequal lengths")
        return np.stack(numbers)
    array = np.empty(len(numbers), dtype=object)
    array[:] = [v if isinstance(v, str | bool) else as_number(v) for v in numbers]
    return array.astype(np.float64) if any(isinstance(v, float) for v in array) else array


def arithmetic(op: str, left: object, right: object) -> Any:
    """``left op right``; ``+`` and ``*`` on lists are Python's."""
    if isinstance(left, tuple | list) and isinstance(right, tuple | list) and op == "+":
        return (*left, *right)
    for sequence, factor in ((left, right), (right, left)) if op == "*" else ():
        if isinstance(sequence, tuple | list) and not isinstance(factor, tuple | list | np.ndarray):
            count = as_number(factor)
            if not isinstance(count, int) or count * len(sequence) > LONGEST:
                raise Unknown("a list that is too long")
            return tuple(sequence) * count
    if (isinstance(left, tuple | list) or isinstance(right, tuple | list)) and not (
        isinstance(left, np.ndarray) or isinstance(right, np.ndarray)
    ):
        raise Unknown(f"`{op}` of a list")
    a, b = _operand(left), _operand(right)
    try:
        with np.errstate(all="raise", under="ignore"):
            return _apply(op, a, b)
    except (ArithmeticError, TypeError, ValueError, Undecided) as error:
        raise Unknown(f"`{op}` has no result: {error}") from None


def _apply(op: str, a: Any, b: Any) -> Any:
    if _holds_size(a) or _holds_size(b):
        # Scales of a Resize are floats, and sizes are whole.
        a, b = _whole(a), _whole(b)
    if op == "/" and (isinstance(a, Size) or isinstance(b, Size)):
        if a % b != 0:
            raise Unknown("a quotient that is not whole for all sizes")
        op = "//"
    if op == "**":
        _check_power(a, b)
    result = _OPERATIONS[op](a, b)
    if isinstance(result, complex):
        raise Unknown("a complex number")
    check_size(result)
    return result


def _holds_size(operand: Any) -> bool:
    if isinstance(operand, np.ndarray):
        return operand.dtype == object and any(isinstance(n, Size) for n in operand.flat)
    return isinstance(operand, Size)


def _whole(operand: Any) -> Any:
    """Floats that are whole numbers as integers."""
    if isinstance(operand, np.ndarray):
        return np.array([_whole(n) for n in operand.ravel().tolist()], dtype=object).reshape(operand.shape)
    return int(operand) if isinstance(operand, float) and operand.is_integer() else operand


def check_size(result: Any) -> None:
    """Raises: Unknown: A whole number has more digits than anything could need."""
    numbers = result.flat if isinstance(result, np.ndarray) and result.dtype == object else (result,)
    if any(isinstance(n, int) and n.bit_length() > _LARGEST_BITS for n in numbers):
        raise Unknown("a number that is too large")


def _check_power(a: Any, b: Any) -> None:
    exponents = b.flat if isinstance(b, np.ndarray) else [b]
    bases = a.flat if isinstance(a, np.ndarray) else [a]
    widest = max((abs(v).bit_length() for v in bases if isinstance(v, int)), default=1)
    if any(isinstance(e, int) and abs(e) * widest > _LARGEST_BITS for e in exponents):
        raise Unknown("a power that is too large")


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}


def negate(value: object) -> Any:
    """``-value``."""
    if isinstance(value, tuple | list):
        raise Unknown("`-` of a list")
    return -_operand(value)


def equal(a: object, b: object) -> bool:
    """``a == b``: an array equals a number if all its elements do, and a list of the same shape and contents.

    Raises:
        Unknown: It depends on a symbolic dimension.
    """
    if isinstance(a, SymbolicDim) or isinstance(b, SymbolicDim):
        if a == b and isinstance(a, SymbolicDim) and a.name is not None:
            return True
        raise Unknown("a dimension is not known")
    if isinstance(a, Size) or isinstance(b, Size):
        return _equal_sizes(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        pairs = _pairs(a, b)
        # A number equals no array without elements, an array without elements does.
        lists = all(isinstance(x, np.ndarray | tuple | list) for x in (a, b))
        return pairs is not None and (lists or bool(pairs)) and all_known(lambda pair: equal(*pair), pairs)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) != len(b):
            return False
        return all_known(lambda pair: equal(*pair), zip(a, b, strict=True))
    if isinstance(a, tuple | list) or isinstance(b, tuple | list):
        return False
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return _equal_scalars(a, b)


def _equal_sizes(a: Any, b: Any) -> bool:
    """Whether a free size equals another value."""
    other = b if isinstance(a, Size) else a
    if isinstance(other, np.ndarray):
        return bool(other.size) and all_known(lambda item: equal(item, a if other is b else b), other.flat)
    if isinstance(other, str | bool | np.bool_ | tuple | list):
        return False
    left, right = (_whole(as_number(n)) for n in (a, b))
    if isinstance(left, float) or isinstance(right, float):
        return False
    if left == right:
        return True
    if may_be_zero(left - right):
        raise Unknown("whether two sizes are equal depends on their values")
    return False


def _equal_scalars(a: Any, b: Any) -> bool:
    if isinstance(a, bool | np.bool_) or isinstance(b, bool | np.bool_):
        return bool(a) == bool(b) if isinstance(a, bool | np.bool_) and isinstance(b, bool | np.bool_) else False
    if type(a) is float and type(b) is float:
        return a == b or _single(a) == b or a == _single(b)
    for narrow, other in ((a, b), (b, a)):
        if isinstance(narrow, np.generic) and type(other) is float and not isinstance(narrow, np.integer):
            with np.errstate(over="ignore"):
                rounded = np.asarray(other).astype(narrow.dtype)[()]
            # Neither infinity nor zero may replace a number outside the range of the type.
            held = bool(np.isfinite(rounded)) == math.isfinite(other) and bool(rounded) == bool(other)
            return held and bool(narrow == rounded)
    return as_number(a) == as_number(b)


def _single(value: float) -> float:
    """A number in float32, unless it would become infinite or zero there."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if math.isfinite(rounded) and rounded else value


def _nested(value: object) -> np.ndarray | None:
    """A nested list as an object array, so that items keep their types; None if the list is ragged."""
    if not isinstance(value, tuple | list):
        array = np.empty((), dtype=object)
        array[()] = value
        return array
    parts = [_nested(v) for v in value]
    if any(p is None for p in parts) or len({p.shape for p in parts if p is not None}) > 1:
        return None
    shape = (len(parts), *(parts[0].shape if parts and parts[0] is not None else ()))
    array = np.empty(shape, dtype=object)
    for i, part in enumerate(parts):
        array[i] = part[()] if part is not None and part.ndim == 0 else part
    return array


def less(a: object, b: object, *, or_equal: bool = False) -> bool:
    """``a < b`` or ``a <= b``, everywhere where one is an array."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        pairs = _pairs(a, b)
        if pairs is None:
            raise Unknown("arrays of different shapes have no order")
        return bool(pairs) and all_known(lambda pair: less(*pair, or_equal=or_equal), pairs)
    x, y = as_number(a), as_number(b)
    if isinstance(x, Size) or isinstance(y, Size):
        return _less_sizes(x, y, or_equal)
    return x <= y or equal(a, b) if or_equal else x < y and not equal(a, b)


def _less_sizes(x: Any, y: Any, or_equal: bool) -> bool:
    """The same operation for a free size and a number."""
    if any(isinstance(n, float) and math.isinf(n) for n in (x, y)):
        return (0 if isinstance(x, Size) else x) < (0 if isinstance(y, Size) else y)
    if isinstance(x, float):
        x = math.floor(x) if or_equal is False else math.ceil(x)
    if isinstance(y, float):
        y = math.ceil(y) if or_equal is False else math.floor(y)
    try:
        return x <= y if or_equal else x < y
    except Undecided as undecided:
        raise Unknown(str(undecided)) from None


def _pairs(a: object, b: object) -> list[tuple[Any, Any]] | None:
    """Corresponding elements of two values, one of which is an array; None if their shapes differ."""
    if not isinstance(a, np.ndarray | tuple | list) and isinstance(b, np.ndarray):
        return [(a, y) for y in b.flat]
    if not isinstance(b, np.ndarray | tuple | list) and isinstance(a, np.ndarray):
        return [(x, b) for x in a.flat]
    left, right = (x if isinstance(x, np.ndarray) else _nested(x) for x in (a, b))
    if left is None or right is None or left.shape != right.shape:
        return None
    return list(zip(left.flat, right.flat, strict=True))


def contains(collection: object, item: object) -> bool:
    """``item in collection``."""
    if isinstance(collection, str):
        return isinstance(item, str) and item in collection
    return not all_known(lambda other: not equal(item, other), items(collection))


def all_known(holds: Callable[[Any], bool], values: Any) -> bool:
    """Whether all hold. One that fails decides it, even if others are unknown."""
    doubt: Unknown | None = None
    for value in values:
        try:
            if not holds(value):
                return False
        except Unknown as unknown:
            doubt = unknown
    if doubt is not None:
        raise doubt
    return True


def truth(value: object) -> bool:
    """A truth value."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise Unknown(f"{value!r} is neither true nor false")


def is_whole(value: object) -> bool:
    """Whether a value is an integer and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def finish(value: Any, *, sizes: bool = False) -> Any:
    """A result as callers take it: Python scalars, tuples, arrays of int64, float64 or bool.

    Args:
        value: The result.
        sizes: Whether callers take free sizes as well; an array with some becomes a tuple.
    """
    if isinstance(value, SymbolicDim):
        raise Unknown(f"dimension {value.name or 'of unknown size'} is not a number")
    if isinstance(value, Size):
        if sizes:
            return value
        raise Unknown(f"the size {value:model} is not a number")
    if isinstance(value, tuple | list):
        return tuple(finish(v, sizes=sizes) for v in value)
    if isinstance(value, np.ndarray):
        if value.dtype == object and any(isinstance(v, Size) for v in value.flat):
            if sizes:
                return tuple(finish(v, sizes=True) for v in value.flat)
            raise Unknown("a size is not a number")
        if value.dtype != object:
            return value if value.dtype.kind in "bf" else value.astype(np.float64)
        if value.size and all(is_whole(v) for v in value.flat):
            numbers = [int(v) for v in value.flat]
            fits = min(numbers) >= -(2**63) and max(numbers) < 2**63
            return value.astype(
                np.int64 if fits else np.uint64 if 0 <= min(numbers) <= max(numbers) < 2**64 else object
            )
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.generic):
        return as_number(value)
    if isinstance(value, float) and math.isnan(value):
        raise Unknown("not a number")
    return value
