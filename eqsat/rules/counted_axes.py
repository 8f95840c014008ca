"""Axes in patterns may be counted from the end, as in ``ReduceMean(x, [-1])``; in the e-graph they are counted from the
front, and ascending where their order has no meaning.
"""

from __future__ import annotations

from eqsat.ops.normal import Axes
from eqsat.rules import ast
from eqsat.rules.tree import walk

_AXIS = "axis"


def may_count_from_end(expr: ast.Expr) -> bool:
    """Whether a number in an expression may be negative."""
    return any(
        (isinstance(part, ast.Number) and part.value < 0)
        or (isinstance(part, ast.Unary | ast.Binary) and part.op == "-")
        for part in walk(expr)
    )


def same_axes(value: ast.Expr, wanted: ast.Expr, operand: str, axes: Axes, place: ast.Place) -> ast.Expr:
    """The condition that contents list the axes wanted.

    Args:
        value: The contents.
        wanted: One number or a list.
        operand: Name of the operand whose axes they are.
        axes: How the operator lists them.
    """
    rank: ast.Expr = ast.Member(ast.Name(operand, place), "rank", place)
    if not isinstance(wanted, ast.Sequence | ast.Comprehension):
        exactly = ast.Compare(value, (("==", wanted),), place)
        if not may_count_from_end(wanted):
            return exactly
        if axes.of_result:
            rank = ast.Binary("+", rank, ast.Number(1, "1", place), place, place)
        counted = ast.Compare(value, (("==", ast.Binary("+", wanted, rank, place, place)),), place)
        return ast.Binary("or", exactly, counted, place, place)
    if _is_normal(wanted):
        return ast.Compare(value, (("==", wanted),), place)
    if may_count_from_end(wanted):
        if axes.of_result:
            rank = ast.Binary("+", rank, ast.Apply(ast.Name("len", place), (wanted,), place), place, place)
        value, wanted = _counted(value, rank, place), _counted(wanted, rank, place)
    if not axes.ordered:
        value, wanted = (ast.Apply(ast.Name("sorted", place), (listed,), place) for listed in (value, wanted))
    return ast.Compare(value, (("==", wanted),), place)


def _is_normal(listed: ast.Expr) -> bool:
    """Whether axes are written in the normal form that they have in the e-graph."""
    if not isinstance(listed, ast.Sequence):
        return False
    written = [item.value for item in listed.items if isinstance(item, ast.Number)]
    return len(written) == len(listed.items) and written == sorted(written) and min(written, default=0) >= 0


def _counted(listed: ast.Expr, rank: ast.Expr, place: ast.Place) -> ast.Expr:
    axis = ast.Name(_AXIS, place)
    from_front = ast.Binary("+", axis, rank, place, place)
    negative = ast.Compare(axis, (("<", ast.Number(0, "0", place)),), place)
    return ast.Comprehension(ast.Conditional(from_front, negative, axis, place), _AXIS, listed, None, place)
