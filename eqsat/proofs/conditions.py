"""The conditions of a rule in one clause: the parts that a proof may assume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eqsat.rules import ast
from eqsat.rules.ast import Rule
from eqsat.rules.constness import asked_constant, conjuncts
from eqsat.rules.expand import Clause


def assumed(rule: Rule, clause: Clause) -> list[ast.Expr]:
    """All conditions of a clause, split into parts that hold separately."""
    found: list[ast.Expr] = []
    for condition in rule.where:
        for part in conjuncts(_decided(condition.expr, clause)):
            if not asked_constant(part) and not (isinstance(part, ast.Truth) and part.value):
                found.append(part)
    return found


def is_contradiction(parts: list[ast.Expr]) -> bool:
    """Whether a clause never applies."""
    return any(isinstance(part, ast.Truth) and not part.value for part in parts)


def constants(rule: Rule) -> frozenset[str]:
    """Names that are required to be constant."""
    return frozenset(
        asked.name
        for condition in rule.where
        for part in conjuncts(condition.expr)
        for asked in asked_constant(part)
        if isinstance(asked, ast.Name)
    )


def _decided(expr: ast.Expr, clause: Clause) -> ast.Expr:
    """An expression without the tests for presence, which the clause decides."""
    match expr:
        case ast.Member(name="is_present") if isinstance(expr.of, ast.Name):
            return ast.Truth(expr.of.name not in clause.absent, expr.place)
        case ast.Unary(op="not"):
            inner = _decided(expr.operand, clause)
            return ast.Truth(not inner.value, expr.place) if isinstance(inner, ast.Truth) else expr
        case ast.Binary(op="and" | "or"):
            left, right = _decided(expr.left, clause), _decided(expr.right, clause)
            settles = expr.op == "or"
            for one, other in ((left, right), (right, left)):
                if isinstance(one, ast.Truth):
                    return one if one.value == settles else other
            return replace(expr, left=left, right=right)
        case ast.Conditional():
            condition = _decided(expr.condition, clause)
            if isinstance(condition, ast.Truth):
                return _decided(expr.then if condition.value else expr.otherwise, clause)
    return expr


def decided(expr: ast.Expr, clause: Clause) -> ast.Expr:
    """An expression in which the clause has decided ``a if c else b``."""
    return _decided(expr, clause)


def comparisons(parts: list[ast.Expr]) -> Iterator[tuple[ast.Expr, str, ast.Expr]]:
    """All comparisons of two among some parts; a chain is several."""
    for part in parts:
        if isinstance(part, ast.Compare):
            left = part.first
            for sign, right in part.rest:
                yield left, sign, right
                left = right


def member(expr: ast.Expr, name: str) -> str | None:
    """The name of the tensor whose fact a condition reads: ``x`` in ``x.shape``."""
    if isinstance(expr, ast.Member) and expr.name == name and isinstance(expr.of, ast.Name):
        return expr.of.name
    return None


def single(parts: list[ast.Expr]) -> frozenset[str]:
    """Names of tensors that have one element."""
    found: set[str] = set()
    for left, sign, right in comparisons(parts):
        if sign == "==":
            for a, b in ((left, right), (right, left)):
                for fact, least in (("rank", 0), ("size", 1)):
                    name = member(a, fact)
                    if name is not None and isinstance(b, ast.Number) and b.value == least:
                        found.add(name)
    return frozenset(found)


def scalars(parts: list[ast.Expr]) -> frozenset[str]:
    """Names of tensors of rank 0."""
    return frozenset(
        name
        for left, sign, right in comparisons(parts)
        if sign == "==" and isinstance(right, ast.Number) and right.value == 0
        for name in [member(left, "rank")]
        if name is not None
    )


def positive(parts: list[ast.Expr]) -> frozenset[str]:
    """Names of tensors whose elements are all known to be greater than zero."""
    found: set[str] = set()
    for left, sign, right in comparisons(parts):
        pairs = {"<": (left, right), "<=": (left, right), ">": (right, left), ">=": (right, left)}
        if sign in pairs:
            low, high = pairs[sign]
            name = member(high, "value")
            least = 0 if sign in ("<", ">") else 1e-300
            if name is not None and isinstance(low, ast.Number) and low.value >= least:
                found.add(name)
    return frozenset(found)
