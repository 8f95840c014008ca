"""The requirements of conditions on leaves and attributes of an instance, which are drawn to meet them.

A condition such as ``k.shape[2] == q.shape[1] // 4``, ``x.rank >= 3``, ``p == [1, 1, 1, 1]`` or ``c.value[1] == 2`` is
seldom met by chance. As soon as everything else in it is known, it determines the leaf or the attribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from eqsat.check.solved import solved
from eqsat.errors import EqsatError
from eqsat.ops.sampling.chance import LARGEST, Chance
from eqsat.rules.ast import (
    Apply,
    Binary,
    Compare,
    Comprehension,
    Condition,
    Expr,
    Index,
    Match,
    Member,
    Name,
    Sequence,
    Slice,
    Unary,
)
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate
from eqsat.rules.tree import walk
from eqsat.schema.types import Shape, TensorType

WishKind = Literal["rank", "shape", "size", "value", "attribute", "length", "type"]

_FLIPPED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST_SIZE = 4096
"""Largest dimension taken from a condition; a larger one is left to chance."""
_MOST_ELEMENTS = 1 << 16
"""Most elements of a tensor whose size a condition requires."""
_MOST_NUMBER = 1 << 31
"""In conditions; larger ones are not asked for."""
_ROUNDS = 3
"""So often the sizes of one tensor are changed, where one condition undoes what another one asks for."""
_OF_TENSORS = ("rank", "size", "shape", "value")
_LISTS = {"perm": (1, 0), "kernel_shape": (1, 2), "strides": (1, 2), "dilations": (1, 2), "pads": (2, 2)}
"""Attributes with an entry for each dimension: the number of entries per dimension, and of dimensions without
entries.
"""


@dataclass(frozen=True)
class _Wish:
    """``kind [index] relation value``; with a divisor, of the remainder.

    Attributes:
        where: The sides of alternatives (``A or B``) that contain the wish: number of the alternative, and side.
    """

    kind: WishKind
    index: Expr | None
    relation: str
    value: Expr
    divisor: Expr | None = None
    where: tuple[tuple[int, bool], ...] = ()


class Wishes:
    """The requirements of a rule's conditions on its leaves and nodes by name, and on attributes by name or
    ``NODE.NAME``.
    """

    def __init__(self, conditions: Iterable[Condition], *, limited: bool = True) -> None:
        """Sizes are limited where instances are executed."""
        self._limited = limited
        self._most_size = _MOST_SIZE if limited else _MOST_NUMBER
        self._most_elements = _MOST_ELEMENTS if limited else _MOST_NUMBER
        self._of: dict[str, list[_Wish]] = {}
        self._alternatives = 0
        for condition in conditions:
            for name, wish in self._found(condition.expr, ()):
                self._of.setdefault(name, []).append(wish)

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def of_node(self, pattern: Match) -> frozenset[str]:
        """The attributes of a pattern's node that conditions access through the name of the node."""
        prefix = f"{pattern.bind}."
        return frozenset(name.removeprefix(prefix) for name in self._of if name.startswith(prefix))

    def sides(self, chance: Chance) -> dict[int, bool]:
        """The side of each alternative that one instance should meet."""
        return {number: chance.happens(0.5) for number in range(self._alternatives)}

    def shape(
        self,
        name: str,
        shape: Shape,
        dtype: ir.DataType,
        env: Mapping[str, object],
        chance: Chance,
        sides: Mapping[int, bool],
        *,
        of_size: bool = False,
    ) -> Shape:
        """A shape, changed to meet the conditions as far as the requirement is known.

        Args:
            of_size: Whether to keep the number of elements.
        """
        dims = list(shape)

        def env_of() -> Mapping[str, object]:
            # Conditions between two dimensions of one tensor want its own shape.
            return {**env, name: TensorFacts(TensorType(dtype, tuple(dims)), None, False, True, False, False)}

        for wish in self._asked(name, "rank", sides):
            rank = _number(wish, len(dims), env_of(), chance)
            if rank is not None and rank <= 8:
                dims = dims[:rank] + [chance.dim() for _ in range(rank - len(dims))]
        fixed: set[int] = set()
        for wish in [*self._asked(name, "shape", sides)] * _ROUNDS:
            if wish.index is None:
                whole = _known(wish.value, env_of())
                if wish.relation == "==" and _is_shape(whole):
                    dims = list(whole)
                continue
            if isinstance(wish.index, Slice):
                fixed |= _set_part(dims, wish, wish.index, env_of(), self._most_size)
                continue
            index = _known(wish.index, env_of())
            if isinstance(index, int) and -len(dims) <= index < len(dims):
                size = _number(wish, dims[index], env_of(), chance)
                if size is not None and size <= self._most_size:
                    dims[index] = size
                    fixed.add(index % len(dims))
        for wish in self._asked(name, "size", sides):
            size = _number(wish, math.prod(dims), env_of(), chance)
            if size is not None and size <= self._most_elements:
                dims = _of_size(dims, size, exact=wish.relation == "==", fixed=fixed)
        if of_size:
            dims = _of_size(dims, math.prod(shape), exact=True, fixed=fixed)
        if self._limited and math.prod(dims) > LARGEST and not any(True for _ in self._asked(name, "size", sides)):
            # Dimensions that no condition requires are changed.
            dims = [d if i in fixed else min(d, 1) for i, d in enumerate(dims)]
        return tuple(dims) if math.prod(dims) <= self._most_elements else shape

    def contents(
        self, name: str, values: np.ndarray, env: Mapping[str, object], chance: Chance, sides: Mapping[int, bool]
    ) -> np.ndarray:
        """Contents, changed likewise; a vector may get another length."""
        found = np.array(values)
        for wish in self._asked(name, "size", sides):
            if found.ndim == 1:
                size = _number(wish, found.size, env, chance)
                if size is not None and size <= _MOST_SIZE:
                    found = np.resize(found, size) if found.size else np.ones(size, found.dtype)
        for wish in self._asked(name, "value", sides):
            if wish.index is None:
                found = _whole(wish, found, env, chance)
                continue
            index = _known(wish.index, env)
            if isinstance(index, int) and found.ndim == 1 and -found.size <= index < found.size:
                number = _number(wish, int(found[index]) if np.isfinite(found[index]) else 0, env, chance)
                if number is not None:
                    found[index] = number
        return found

    def attribute(
        self, keys: Iterable[str], value: Any, env: Mapping[str, object], chance: Chance, sides: Mapping[int, bool]
    ) -> Any:
        """An attribute, changed likewise.

        Args:
            keys: Its names in conditions.
            value: The operator's own choice; its kind is kept.
        """
        for key in keys:
            for wish in self._asked(key, "type", sides):
                wanted = _one(wish, env, chance)
                if wish.relation in ("==", "in") and isinstance(wanted, ir.DataType):
                    value = int(wanted)
            for wish in self._asked(key, "attribute", sides):
                value = _attribute(wish, value, env, chance)
        return value

    def rank(self, pattern: Match, env: Mapping[str, object], chance: Chance, sides: Mapping[int, bool]) -> int | None:
        """The rank of the first operand that the length of an attribute implies."""
        for attribute, (each, none) in _LISTS.items():
            if attribute == "pads" and pattern.ops[0].name == "Pad":
                continue
            for key in keys_of(pattern, attribute):
                for wish in self._asked(key, "length", sides):
                    length = _number(wish, each * chance.number(1, 4), env, chance)
                    if length is not None and length % each == 0 and length // each <= 6:
                        return length // each + none
                for wish in self._asked(key, "attribute", sides):
                    value = _known(wish.value, env)
                    if wish.index is None and wish.relation == "==" and _is_shape(value):
                        return len(value) // each + none
        return None

    def _asked(self, name: str, kind: WishKind, sides: Mapping[int, bool]) -> Iterator[_Wish]:
        for wish in self._of.get(name, ()):
            if wish.kind == kind and all(sides.get(number) == side for number, side in wish.where):
                yield wish

    def _found(self, expr: Expr, where: tuple[tuple[int, bool], ...]) -> Iterator[tuple[str, _Wish]]:
        if isinstance(expr, Binary) and expr.op == "and":
            yield from self._found(expr.left, where)
            yield from self._found(expr.right, where)
        elif isinstance(expr, Binary) and expr.op == "or" and _is_absence(expr.left):
            yield from self._found(expr.right, where)
        elif isinstance(expr, Binary) and expr.op == "or":
            number = self._alternatives
            self._alternatives += 1
            yield from self._found(expr.left, (*where, (number, False)))
            yield from self._found(expr.right, (*where, (number, True)))
        elif (compared := expr if isinstance(expr, Compare) else _of_each(expr)) is not None:
            for name, wish in _compared(compared):
                yield name, replace(wish, where=where)


def keys_of(pattern: Match, attribute: str) -> list[str]:
    """The names by which conditions know an attribute of a pattern."""
    keys = [bind.name for bind in pattern.attrs if bind.attribute == attribute and bind.name is not None]
    return keys if pattern.bind is None else [*keys, f"{pattern.bind}.{attribute}"]


def _compared(expr: Compare) -> Iterator[tuple[str, _Wish]]:
    left = expr.first
    for relation, right in expr.rest:
        if relation in _FLIPPED:
            yield from _of_pair(left, relation, right)
            yield from _of_pair(right, _FLIPPED[relation], left)
        elif relation == "in" and isinstance(right, Sequence) and right.items:
            yield from _of_pair(left, "in", right)
        left = right


def _of_each(expr: Expr) -> Compare | None:
    """``x.value == 0`` from ``all([v == 0 for v in x.value])``, which means the same; None for any other expression."""
    if not (isinstance(expr, Apply) and expr.function == "all" and len(expr.args) == 1):
        return None
    (each,) = expr.args
    if not (isinstance(each, Comprehension) and each.condition is None and isinstance(each.item, Compare)):
        return None
    first, rest = each.item.first, each.item.rest
    known = not any(isinstance(part, Name) and part.name == each.variable for _, term in rest for part in walk(term))
    is_of_contents = isinstance(each.source, Member) and each.source.name == "value"
    if known and is_of_contents and isinstance(first, Name) and first.name == each.variable:
        return replace(each.item, first=each.source)
    return None


def _is_absence(expr: Expr) -> bool:
    """``not x.is_present``"""
    return (
        isinstance(expr, Unary)
        and expr.op == "not"
        and isinstance(expr.operand, Member)
        and expr.operand.name == "is_present"
    )


def _of_pair(side: Expr, relation: str, value: Expr) -> Iterator[tuple[str, _Wish]]:
    divisor: Expr | None = None
    if isinstance(side, Binary) and side.op == "%" and relation == "==":
        side, divisor = side.left, side.right
    for target, turned, other in solved(side, relation, value):
        yield from _of_target(target, turned, other, divisor)


def _of_target(side: Expr, relation: str, value: Expr, divisor: Expr | None) -> Iterator[tuple[str, _Wish]]:
    index: Expr | None = None
    if isinstance(side, Index):
        side, index = side.of, side.index
    elif isinstance(side, Slice):
        side, index = side.of, side
    if isinstance(side, Apply) and len(side.args) == 1:
        (inner,) = side.args
        if side.function == "len":
            if isinstance(inner, Member) and inner.name == "shape" and isinstance(inner.of, Name):
                yield inner.of.name, _Wish("rank", None, relation, value, divisor)
            elif (key := _key(inner)) is not None:
                yield key, _Wish("length", None, relation, value, divisor)
        elif side.function == "element_type" and (key := _key(inner)) is not None:
            yield key, _Wish("type", None, relation, value)
        return
    if isinstance(side, Member) and isinstance(side.of, Name) and side.name in _OF_TENSORS:
        kind: WishKind = side.name  # pyright: ignore[reportAssignmentType]
        if index is None or kind in ("shape", "value"):
            yield side.of.name, _Wish(kind, index, relation, value, divisor)
    elif (key := _key(side)) is not None:
        yield key, _Wish("attribute", index, relation, value, divisor)


def _key(expr: Expr) -> str | None:
    """The name by which :class:`Wishes` knows an attribute."""
    if isinstance(expr, Name):
        return expr.name
    if isinstance(expr, Member) and isinstance(expr.of, Name) and expr.name not in _OF_TENSORS:
        return f"{expr.of.name}.{expr.name}"
    return None


def _whole(wish: _Wish, found: np.ndarray, env: Mapping[str, object], chance: Chance) -> np.ndarray:
    """Contents that a condition requires as a whole."""
    wanted = _one(wish, env, chance)
    if wish.relation == "==" and _is_shape(wanted) and found.ndim == 1:
        return np.asarray(wanted).astype(found.dtype)
    if isinstance(wanted, np.ndarray):
        if wanted.shape == found.shape and wish.relation == "==":
            return wanted.astype(found.dtype)
        wanted = wanted.item() if wanted.size == 1 else None
    if not isinstance(wanted, int | float) or isinstance(wanted, bool) or not found.size or wish.divisor is not None:
        return found
    meets = _MEETS.get(wish.relation, _MEETS["=="])
    if found.dtype.kind == "f":
        entries = [v if meets(v, wanted) else _real(wish.relation, v, float(wanted), chance) for v in found.flat]
    elif found.dtype.kind in "iu" and float(wanted).is_integer():
        beside = int(wanted) + {"<": -1, ">": 1}.get(wish.relation, 0)
        low, high = np.iinfo(found.dtype).min, np.iinfo(found.dtype).max
        entries = [int(v) if meets(int(v), wanted) else min(max(beside, low), high) for v in found.flat]
    else:
        return found
    with np.errstate(over="ignore"):
        return np.asarray(entries).reshape(found.shape).astype(found.dtype)


def _attribute(wish: _Wish, now: Any, env: Mapping[str, object], chance: Chance) -> Any:
    if wish.index is not None:
        index = _known(wish.index, env)
        if isinstance(now, tuple | list) and isinstance(index, int) and -len(now) <= index < len(now):
            entries = list(now)
            entries[index] = _attribute(replace(wish, index=None), entries[index], env, chance)
            return tuple(entries)
        return now
    if isinstance(now, int) and not isinstance(now, bool):
        found = _number(wish, now, env, chance)
        return now if found is None else found
    wanted = _one(wish, env, chance)
    if isinstance(wanted, np.ndarray) and wanted.ndim == 0:
        wanted = wanted.item()
    if isinstance(now, float) and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return _real(wish.relation, now, float(wanted), chance)
    if wish.relation not in ("==", "in"):
        return now
    if isinstance(now, tuple | list) and isinstance(wanted, tuple) and len(wanted) == len(now):
        return wanted
    return wanted if isinstance(now, str) and isinstance(wanted, str) else now


def _set_part(dims: list[int], wish: _Wish, part: Slice, env: Mapping[str, object], most: int) -> set[int]:
    """Gives some dimensions in a row the sizes that a condition asks for; which they are."""
    start = 0 if part.start is None else _known(part.start, env)
    stop = len(dims) if part.stop is None else _known(part.stop, env)
    wanted = _known(wish.value, env)
    if wish.relation != "==" or not isinstance(start, int) or not isinstance(stop, int) or not _is_shape(wanted):
        return set()
    chosen = range(len(dims))[start:stop]
    if len(chosen) != len(wanted) or any(size > most for size in wanted):
        return set()
    for i, size in zip(chosen, wanted, strict=True):
        dims[i] = size
    return set(chosen)


def _real(relation: str, now: float, wanted: float, chance: Chance) -> float:
    if relation in ("==", "in") or _MEETS[relation](now, wanted):
        return wanted if relation in ("==", "in") else now
    beside = (abs(wanted) or 1.0) * chance.one_of((0.125, 0.5, 1.0))
    found = wanted + (beside if relation in (">", ">=") else -beside)
    return float(np.float32(found if relation in (">", "<") or chance.happens(0.5) else wanted))


def _of_size(dims: list[int], size: int, *, exact: bool, fixed: set[int]) -> list[int]:
    """Dimensions with at least, or exactly, this many elements; fixed ones are kept if possible."""
    if math.prod(dims) == size:
        return dims
    if not dims:
        return [size]
    free = [i for i in range(len(dims)) if i not in fixed] or [len(dims) - 1]
    for last in reversed(free):
        others = math.prod(d for i, d in enumerate(dims) if i != last)
        if others and (size % others == 0 or not exact):
            return [d if i != last else -(-size // others) for i, d in enumerate(dims)]
    return [d if i in fixed else size if i == free[-1] else 1 for i, d in enumerate(dims)]


_MEETS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _number(wish: _Wish, now: int, env: Mapping[str, object], chance: Chance) -> int | None:
    """A number that meets a wish, the present one if it does; None if it is unknown."""
    value = _one(wish, env, chance)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _MOST_NUMBER:
        return None
    if wish.divisor is not None:
        divisor = _known(wish.divisor, env)
        if not isinstance(divisor, int) or not 0 < divisor <= _MOST_SIZE or not 0 <= value < divisor:
            return None
        return now if now % divisor == value else now // divisor * divisor + value + (divisor if now < divisor else 0)
    if wish.relation == "in":
        return value
    if _MEETS[wish.relation](now, value):
        return now
    found = value + {"<": -1, ">": 1}.get(wish.relation, 0)
    return found if found >= 0 or wish.kind in ("value", "attribute") else None


def _one(wish: _Wish, env: Mapping[str, object], chance: Chance) -> Any:
    """The value that a wish asks for; one of several."""
    if wish.relation == "in" and isinstance(wish.value, Sequence):
        return _known(chance.one_of(wish.value.items), env)
    return _known(wish.value, env)


def _known(expr: Expr, env: Mapping[str, object]) -> Any:
    try:
        return evaluate(expr, env)
    except (Unknown, EqsatError):
        return None


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
