"""Scalar terms: expressions for single elements of tensors.

Equal terms are one object, so that comparing large ones takes no time. Two terms that are the same object compute the
same bits: the same operators on the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from eqsat.ops.properties import is_commutative
from eqsat.schema.types import OpKey

TermAttributes = tuple[tuple[str, Hashable], ...]
"""By name, sorted; a value that the rule computes from elements is a term."""
_LEAVES = ("number", "zero", "infinity", "symbol")


class NotModelled(Exception):
    """Something whose meaning is not stated here, so that nothing about it is proven."""


class ScalarTerm:
    """An element: a number, a symbol, or an operator on other elements.

    Attributes:
        op: ``"number"``, ``"zero"`` (either zero), ``"infinity"``, ``"symbol"``, or the name of an operator.
        data: The number, 1 or -1 of an infinity, what identifies the symbol, or the operator's attributes.
        number: In order of creation, so that sorting does not depend on addresses.
    """

    __slots__ = ("args", "data", "number", "op")

    def __init__(self, op: str, args: tuple[ScalarTerm, ...], data: Any, number: int) -> None:
        self.op = op
        self.args = args
        self.data = data
        self.number = number

    def __repr__(self) -> str:
        if self.op in _LEAVES:
            return str(self.data)
        return f"{self.op}({', '.join(map(repr, self.args))})"

    @property
    def value(self) -> Fraction | None:
        """The number that it is."""
        if self.op == "zero":
            return Fraction(0)
        return self.data if self.op == "number" and isinstance(self.data, Fraction) else None


_all: dict[tuple[str, tuple[ScalarTerm, ...], Hashable], ScalarTerm] = {}


def forget() -> None:
    """Frees all terms; those that are still referred to must not meet new ones."""
    _all.clear()


def size() -> int:
    """How many terms there are."""
    return len(_all)


def _make(op: str, args: tuple[ScalarTerm, ...], data: Hashable) -> ScalarTerm:
    key = (op, args, data)
    found = _all.get(key)
    if found is None:
        found = _all[key] = ScalarTerm(op, args, data, len(_all))
    return found


def number(value: float | Fraction) -> ScalarTerm:
    """A number, exact.

    Raises:
        NotModelled: It is NaN.
    """
    if value in (math.inf, -math.inf):
        return _make("infinity", (), 1 if value > 0 else -1)
    try:
        return _make("number", (), Fraction(value))
    except ValueError:
        raise NotModelled(f"the number {value}") from None


def either_zero(name: Hashable) -> ScalarTerm:
    """A constant that is a zero of unknown sign."""
    return _make("zero", (), name)


def symbol(*identity: Hashable) -> ScalarTerm:
    """Any value; the same for the same identity."""
    return _make("symbol", (), identity)


def apply(op: str, args: Iterable[ScalarTerm], attributes: TermAttributes = ()) -> ScalarTerm:
    """An operator on elements; operands of a commutative one are sorted."""
    operands = tuple(args)
    if len(operands) == 2 and not attributes and is_commutative(OpKey("", op)):
        operands = tuple(sorted(operands, key=lambda t: t.number))
    return _make(op, operands, attributes)


def walk(*roots: ScalarTerm) -> Iterator[ScalarTerm]:
    """All parts of terms, each once, operands first."""
    seen: set[int] = set()
    stack: list[tuple[ScalarTerm, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        term, done = stack.pop()
        if done:
            yield term
        elif id(term) not in seen:
            seen.add(id(term))
            stack.append((term, True))
            parts = [*term.args, *(v for v in parameters(term) if isinstance(v, ScalarTerm))]
            stack += [(part, False) for part in reversed(parts)]


def parameters(term: ScalarTerm) -> list[Hashable]:
    """The values of a term's attributes."""
    if term.op in _LEAVES or not isinstance(term.data, tuple):
        return []
    return [pair[1] for pair in term.data if isinstance(pair, tuple) and len(pair) == 2]
