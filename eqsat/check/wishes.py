"""What conditions ask of the shape and contents of one leaf, so that it is drawn as they want it.

A condition such as ``k.shape[2] == q.shape[1] // 4``, ``x.rank >= 3``, ``x.shape[0] % 4 == 0`` or ``c.value[1] == 2``
is seldom met by chance. As soon as all else in it is known, it says what the leaf must be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.sampling.chance import LARGEST, Chance, Shape
from eqsat.rules.ast import Apply, Binary, Compare, Condition, Expr, Index, Member, Name, Sequence, Unary
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate
from eqsat.schema.types import TensorType

_FLIPPED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST_SIZE = 64
"""Of a dimension that a condition asks for; a larger one is left to chance."""


@dataclass(frozen=True)
class _Wish:
    """``what [index] relation value`` of a leaf; with a divisor, of the remainder."""

    what: Literal["rank", "shape", "size", "value"]
    index: Expr | None
    relation: str
    value: Expr
    divisor: Expr | None = None


class Wishes:
    """What the conditions of a rule ask of its leaves, by name."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self._of: dict[str, list[_Wish]] = {}
        for condition in conditions:
            for name, wish in _wishes(condition.expr):
                self._of.setdefault(name, []).append(wish)

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def shape(self, name: str, shape: Shape, dtype: ir.DataType, env: Mapping[str, object], chance: Chance) -> Shape:
        """A shape, changed to what the conditions ask for as far as that is known."""
        dims = list(shape)

        def env_of() -> Mapping[str, object]:
            # Conditions between two dimensions of one tensor want its own shape.
            return {**env, name: TensorFacts(TensorType(dtype, tuple(dims)), None, False, True, False, False)}

        for wish in (w for w in self._of.get(name, ()) if w.what == "rank"):
            rank = _number(wish, len(dims), env_of())
            if rank is not None and rank <= 8:
                dims = dims[:rank] + [chance.dim() for _ in range(rank - len(dims))]
        for wish in (w for w in self._of.get(name, ()) if w.what == "shape"):
            if wish.index is None:
                whole = _known(wish.value, env_of())
                if wish.relation == "==" and _is_shape(whole):
                    dims = list(whole)
                continue
            index = _known(wish.index, env_of())
            if isinstance(index, int) and -len(dims) <= index < len(dims):
                size = _number(wish, dims[index], env_of())
                if size is not None and size <= _MOST_SIZE:
                    dims[index] = size
        for wish in (w for w in self._of.get(name, ()) if w.what == "size"):
            size = _number(wish, int(np.prod(dims)), env_of())
            if size is not None and size <= _MOST_SIZE and len(dims) == 1:
                dims = [size]
        return tuple(dims) if int(np.prod(dims)) <= LARGEST else shape

    def contents(self, name: str, values: np.ndarray, env: Mapping[str, object]) -> np.ndarray:
        """Contents, changed likewise; a vector may get another length."""
        found = np.array(values)
        for wish in self._of.get(name, ()):
            if wish.what == "size" and found.ndim == 1:
                size = _number(wish, found.size, env)
                if size is not None and size <= _MOST_SIZE:
                    found = np.resize(found, size) if found.size else np.ones(size, found.dtype)
        for wish in self._of.get(name, ()):
            if wish.what != "value":
                continue
            if wish.index is None:
                whole = _known(wish.value, env)
                if wish.relation == "==" and _is_shape(whole) and found.ndim == 1:
                    found = np.asarray(whole).astype(found.dtype)
                continue
            index = _known(wish.index, env)
            if isinstance(index, int) and found.ndim == 1 and -found.size <= index < found.size:
                number = _number(wish, int(found[index]) if np.isfinite(found[index]) else 0, env)
                if number is not None:
                    found[index] = number
        return found


def _wishes(expr: Expr) -> Iterator[tuple[str, _Wish]]:
    if isinstance(expr, Binary) and expr.op == "and":
        yield from _wishes(expr.left)
        yield from _wishes(expr.right)
    if isinstance(expr, Binary) and expr.op == "or" and _is_absence(expr.left):
        yield from _wishes(expr.right)
    if not isinstance(expr, Compare):
        return
    left = expr.first
    for relation, right in expr.rest:
        if relation in _FLIPPED:
            yield from _of_pair(left, relation, right)
            yield from _of_pair(right, _FLIPPED[relation], left)
        elif relation == "in" and isinstance(right, Sequence) and right.items:
            yield from _of_pair(left, "==", right.items[0])
        left = right


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
    index: Expr | None = None
    if isinstance(side, Index):
        side, index = side.of, side.index
    if isinstance(side, Apply) and side.function == "len" and len(side.args) == 1:
        (inner,) = side.args
        if isinstance(inner, Member) and inner.name == "shape" and isinstance(inner.of, Name):
            yield inner.of.name, _Wish("rank", None, relation, value, divisor)
        return
    if isinstance(side, Member) and isinstance(side.of, Name):
        match side.name:
            case "rank" | "size" as what if index is None:
                yield side.of.name, _Wish(what, None, relation, value, divisor)
            case "shape" | "value" as what:
                yield side.of.name, _Wish(what, index, relation, value, divisor)
            case _:
                return


def _number(wish: _Wish, now: int, env: Mapping[str, object]) -> int | None:
    """The number that meets a wish, the present one if it does; None if that is not known."""
    value = _known(wish.value, env)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**31:
        return None
    if wish.divisor is not None:
        divisor = _known(wish.divisor, env)
        if not isinstance(divisor, int) or not 0 < divisor <= _MOST_SIZE or not 0 <= value < divisor:
            return None
        return now if now % divisor == value else now // divisor * divisor + value + (divisor if now < divisor else 0)
    meets: dict[str, Callable[[int, int], bool]] = {
        "==": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    if meets[wish.relation](now, value):
        return now
    found = value + {"<": -1, ">": 1}.get(wish.relation, 0)
    return found if found >= 0 or wish.what == "value" else None


def _known(expr: Expr, env: Mapping[str, object]) -> Any:
    try:
        return evaluate(expr, env)
    except (Unknown, EqsatError):
        return None


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
