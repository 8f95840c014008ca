"""The functions that expressions may call: signature for the reader, implementation for the evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.rules.arithmetic import LONGEST, as_number, check_size, equal, items, truth
from eqsat.rules.kinds import ValueKind
from eqsat.rules.known_facts import NodeFacts, SymbolicDim, TensorFacts, Unknown
from eqsat.schema.dtypes import limits
from eqsat.schema.size import Size
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.types import bits

_Kinds = tuple[tuple[ValueKind, ...], ...]
_COLLECTION: _Kinds = (("list", "value"),)
_LISTS: _Kinds = (("list", "value", "tensors"),)
_ITEMS: _Kinds = (("list", "value", "number"),)
_TRUTHS: _Kinds = (("list", "value", "truth"),)
_NUMERIC: _Kinds = (("number", "value"),)
_TYPE: _Kinds = (("type", "number"),)


@dataclass(frozen=True)
class Builtin:
    """One function.

    Attributes:
        kinds: Allowed kinds of each argument; the last one repeats.
        most: Greatest number of arguments, None without limit.
        result: Kind of the result; None if it is that of the first argument.
    """

    call: Callable[..., Any]
    kinds: _Kinds
    result: ValueKind | None
    least: int = 1
    most: int | None = 1
    doc: str = ""


def is_const(fact: object) -> bool:
    """Whether a tensor is a constant expression; also true if it is absent, or for a list if all its tensors are."""
    if isinstance(fact, NodeFacts):
        fact = fact.output
    if isinstance(fact, TensorFacts):
        return fact.is_const or not fact.is_present
    if isinstance(fact, tuple | list):
        return all(is_const(f) for f in fact)
    if fact is None:
        raise Unknown("whether it is constant is not known")
    return True


def _const(*facts: object) -> bool:
    return all(list(map(is_const, facts)))  # each, so that an unknown one is met


def _range(*bounds: object) -> tuple[int, ...]:
    numbers = [_whole(b) for b in bounds]
    if len(numbers) == 3 and numbers[2] == 0:
        raise Unknown("a range with step 0")
    found = range(*numbers)
    # len() of a huge range overflows; its bounds do not.
    if abs(found.stop - found.start) > LONGEST * abs(found.step):
        raise Unknown("a range that is too long")
    return tuple(found)


def _whole(value: object) -> int:
    number = as_number(value)
    if not isinstance(number, int):
        raise Unknown(f"{number} is not a whole number")
    return number


def _members(args: tuple[object, ...]) -> list[Any]:
    """The numbers meant by ``min(xs)`` or ``min(a, b)``; arrays count with all their elements, a scalar's is one."""
    found: list[Any] = []
    if len(args) == 1:
        (only,) = args
        is_list = isinstance(only, tuple | list) or (isinstance(only, np.ndarray) and only.ndim > 0)
        args = tuple(items(only)) if is_list else args
    for item in args:
        found += [as_number(i) for i in item.flat] if isinstance(item, np.ndarray) else [as_number(item)]
    return found


def _extreme(pick: Callable[[list[Any]], Any], pick_size: Callable[[int, int], int]) -> Callable[..., Any]:
    def call(*args: object) -> Any:
        numbers = _members(args)
        if not numbers:
            raise Unknown("the extreme of no numbers")
        if any(isinstance(n, Size) for n in numbers) and not any(isinstance(n, float) for n in numbers):
            return reduce(pick_size, numbers)
        return pick(numbers)

    return call


def _product(values: object) -> Any:
    result: Any = 1
    for number in _members((values,)):
        result *= number
        # A product of many large numbers has as many digits as all factors together.
        check_size(result)
    return result


def _elementwise(scalar: Callable[[Any], Any]) -> Callable[[object], Any]:
    def call(value: object) -> Any:
        if isinstance(value, np.ndarray):
            results = [scalar(as_number(v)) for v in value.flat]
            array = np.empty(value.shape, dtype=object)
            array.flat[:] = results
            return array if all(isinstance(r, int) for r in results) else array.astype(np.float64)
        return scalar(as_number(value))

    return call


def _sorted(values: object) -> tuple[Any, ...]:
    return tuple(sorted(as_number(v) for v in items(values)))


def _index(values: object, item: object) -> int:
    for i, value in enumerate(items(values)):
        if equal(value, item):
            return i
    raise Unknown("the item is not in the list")


def _letters(text: object) -> tuple[str, ...]:
    if not isinstance(text, str):
        raise Unknown("a string is required")
    return tuple(text)


def _flat(values: object) -> tuple[Any, ...]:
    if isinstance(values, tuple | list):
        return tuple(leaf for value in values for leaf in _flat(value))
    return tuple(values.flat) if isinstance(values, np.ndarray) else (values,)


def _any(values: object) -> bool:
    found = [truth(v) for v in items(values)]
    return any(found)


def _all(values: object) -> bool:
    # `all(v == 1)` is what `v == 1` already says of an array.
    if isinstance(values, bool | np.bool_):
        return bool(values)
    found = [truth(v) for v in items(values)]
    return all(found)


def _zip(*lists: object) -> tuple[tuple[Any, ...], ...]:
    columns = [items(x) for x in lists]
    if len({len(c) for c in columns}) > 1:
        raise Unknown("lists of unequal lengths")
    return tuple(zip(*columns, strict=True))


def _dtype(value: object) -> ir.DataType:
    try:
        return ir.DataType(value)
    except ValueError:
        raise Unknown(f"{value!r} is not an element type") from None


def _limit(which: int) -> Callable[[object], int | float]:
    def call(dtype: object) -> int | float:
        try:
            return limits(_dtype(dtype))[which]
        except ValueError as error:
            raise Unknown(str(error)) from None

    return call


def _broadcast(*shapes: object) -> tuple[Any, ...]:
    """Shape of the broadcast of shapes, as ONNX has it (its document *Broadcasting in ONNX*)."""
    lists = [items(x) for x in shapes]
    rank = max(len(x) for x in lists)
    result: list[Any] = []
    for dims in zip(*([1] * (rank - len(x)) + x for x in lists), strict=True):
        wanted: Any = 1
        for dim in dims:
            if not isinstance(dim, SymbolicDim | Size) and as_number(dim) == 1:
                continue
            if not isinstance(wanted, SymbolicDim | Size) and wanted == 1:
                wanted = dim
            elif not equal(wanted, dim):
                raise Unknown("shapes that do not broadcast")
        result.append(wanted)
    return tuple(result)


FUNCTIONS: dict[str, Builtin] = {
    "const": Builtin(_const, (("tensor", "tensors", "node"),), "truth", most=None, doc="all are constant expressions"),
    "len": Builtin(lambda x: len(items(x)), _LISTS, "number", doc="number of items"),
    "range": Builtin(_range, (("number",),), "list", most=3, doc="whole numbers, as in Python"),
    "min": Builtin(_extreme(min, smallest), _ITEMS, "number", most=None, doc="least of a list or of arguments"),
    "max": Builtin(_extreme(max, largest), _ITEMS, "number", most=None, doc="greatest"),
    "sum": Builtin(lambda x: sum(_members((x,))), _COLLECTION, "number", doc="sum of a list"),
    "prod": Builtin(_product, _COLLECTION, "number", doc="product of a list"),
    "any": Builtin(_any, _COLLECTION, "truth", doc="whether one of a list is true"),
    "all": Builtin(_all, _TRUTHS, "truth", doc="whether all of a list are true"),
    "abs": Builtin(_elementwise(abs), _NUMERIC, None, doc="absolute value"),
    "floor": Builtin(_elementwise(math.floor), _NUMERIC, None, doc="rounded down"),
    "ceil": Builtin(_elementwise(math.ceil), _NUMERIC, None, doc="rounded up"),
    "round": Builtin(_elementwise(round), _NUMERIC, None, doc="rounded to nearest, halves to even"),
    "sqrt": Builtin(_elementwise(math.sqrt), _NUMERIC, None, doc="square root"),
    "exp": Builtin(_elementwise(math.exp), _NUMERIC, None, doc="exponential"),
    "log": Builtin(_elementwise(math.log), _NUMERIC, None, doc="natural logarithm"),
    "log2": Builtin(_elementwise(math.log2), _NUMERIC, None, doc="binary logarithm"),
    "sorted": Builtin(_sorted, _COLLECTION, "list", doc="in ascending order"),
    "reversed": Builtin(lambda x: tuple(items(x)[::-1]), _COLLECTION, "list", doc="backwards"),
    "index": Builtin(_index, (*_COLLECTION, ("any",)), "number", least=2, most=2, doc="position of an item in a list"),
    "letters": Builtin(_letters, (("text",),), "list", doc="the characters of a string"),
    "flat": Builtin(_flat, _COLLECTION, "list", doc="all elements, the last dimension fastest"),
    "zip": Builtin(_zip, _LISTS, "list", most=None, doc="lists of corresponding items"),
    "lowest": Builtin(_limit(0), _TYPE, "number", doc="least finite value of an element type"),
    "highest": Builtin(_limit(1), _TYPE, "number", doc="greatest finite value of an element type"),
    "bits": Builtin(lambda x: bits(_dtype(x)), _TYPE, "number", doc="bits of an element type; a string is a pointer"),
    "element_type": Builtin(_dtype, _TYPE, "type", doc="the type that Cast's `to` names"),
    "broadcast": Builtin(_broadcast, _COLLECTION, "list", most=None, doc="shape that shapes broadcast to"),
}  # fmt: skip
