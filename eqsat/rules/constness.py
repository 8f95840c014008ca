"""Where a rule may ask whether a value is constant.

An e-class becomes a constant expression when one of its e-nodes is found to be one, so the answer may change from no to
yes while rules run, but never back. The e-graph therefore joins on it, condition by condition: it can be required, but
neither negated nor be one of several possibilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eqsat.rules import ast
from eqsat.rules.dependencies import uses
from eqsat.rules.tree import walk

if TYPE_CHECKING:
    from eqsat.rules.scope import Context


def split_constness(condition: ast.Condition, context: Context) -> Iterator[ast.Condition]:
    """The condition, as several where constness is one part of a conjunction.

    Raises:
        RuleError: A test for constness is inside of a larger expression, or on something without a name.
    """
    if not uses(condition.expr).consts:
        yield condition
        return
    for part in conjuncts(condition.expr):
        if uses(part).consts:
            check_requires_constness(part, context)
        yield ast.Condition(part, condition.because, part.place)


def conjuncts(expr: ast.Expr) -> Iterator[ast.Expr]:
    """The parts of ``a and b``, and the parts of these parts."""
    if isinstance(expr, ast.Binary) and expr.op == "and":
        yield from conjuncts(expr.left)
        yield from conjuncts(expr.right)
    else:
        yield expr


def check_requires_constness(expr: ast.Expr, context: Context) -> None:
    """Raises: RuleError: It is more than the requirement that named values are constant."""
    names = asked_constant(expr)
    bad = next((n for n in names if not isinstance(n, ast.Name)), None)
    if bad is not None or not names:
        raise context.error(
            (bad or _asking(expr)).place,
            "a test whether a value is constant must be a condition of its own, on a name",
            hint="write `where const(x), ...`; an absent operand counts as constant",
        )


def forbid_constness(expr: ast.Expr, context: Context) -> None:
    """Raises: RuleError: The expression asks whether a value is constant."""
    if uses(expr).consts:
        raise context.error(
            _asking(expr).place, "a test whether a value is constant must be a condition of its own in `where`"
        )


def forbid_facts_of_classes(expr: ast.Expr, context: Context) -> None:
    """Raises: RuleError: The expression asks for a fact that only an e-graph has."""
    names = ("has_free_term", "has_free_factor", "bound")
    asked = next((p for p in walk(expr) if isinstance(p, ast.Member) and p.name in names), None)
    if asked is not None:
        raise context.error(asked.place, f"`.{asked.name}` is known only in `where` of rules and composites")


def _asking(expr: ast.Expr) -> ast.Expr:
    """The part that tests for constness."""
    return next((part for part in walk(expr) if asked_constant(part)), expr)


def asked_constant(expr: ast.Expr) -> tuple[ast.Expr, ...]:
    """The terms that ``const(x, y)`` and ``x.is_const`` test."""
    if isinstance(expr, ast.Apply) and expr.function == "const":
        return expr.args
    return (expr.of,) if isinstance(expr, ast.Member) and expr.name == "is_const" else ()
