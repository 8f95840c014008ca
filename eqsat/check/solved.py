"""Comparisons of arithmetic, solved for each of its operands: ``2 * b == a`` is ``b == a // 2``.

Only the order of the numbers matters here: whether the solution meets the comparison is asked of the comparison itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.rules.ast import Binary, Expr, Unary

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
SolvedEquation = tuple[Expr, str, Expr]
"""The isolated part, the relation, and the value that it is compared with."""


def solved(side: Expr, relation: str, value: Expr) -> Iterator[SolvedEquation]:
    """The comparison, solved for each part of one side that can be isolated.

    Args:
        side: The side that is taken apart.
        relation: ``==``, ``<``, ``<=``, ``>``, ``>=``, or ``in``, which is not solved.
        value: The other side.
    """
    if relation != "in" and isinstance(side, Unary) and side.op == "-":
        yield from solved(side.operand, _MIRRORED.get(relation, relation), Unary("-", value, side.place))
    elif relation != "in" and isinstance(side, Binary) and side.op in _INVERSE:
        for operand, turns, inverse in _INVERSE[side.op](side, value):
            if side.op == "*" and relation == ">=" and isinstance(inverse, Binary):  # 3 * a >= 8 is a >= 3.
                inverse = Unary("-", _binary("//", Unary("-", value, side.place), inverse.right, side), side.place)
            yield from solved(operand, _MIRRORED.get(relation, relation) if turns else relation, inverse)
    else:
        yield side, relation, value


def _binary(op: str, left: Expr, right: Expr, like: Binary) -> Binary:
    return Binary(op, left, right, like.place, like.sign)


def _sum(side: Binary, value: Expr) -> Iterator[tuple[Expr, bool, Expr]]:
    yield side.left, False, _binary("-", value, side.right, side)
    yield side.right, False, _binary("-", value, side.left, side)


def _difference(side: Binary, value: Expr) -> Iterator[tuple[Expr, bool, Expr]]:
    yield side.left, False, _binary("+", value, side.right, side)
    yield side.right, True, _binary("-", side.left, value, side)


def _product(side: Binary, value: Expr) -> Iterator[tuple[Expr, bool, Expr]]:
    yield side.left, False, _binary("//", value, side.right, side)
    yield side.right, False, _binary("//", value, side.left, side)


def _quotient(side: Binary, value: Expr) -> Iterator[tuple[Expr, bool, Expr]]:
    yield side.left, False, _binary("*", value, side.right, side)


_INVERSE = {"+": _sum, "-": _difference, "*": _product, "//": _quotient, "/": _quotient}
