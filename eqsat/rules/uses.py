"""Which facts an expression looks at, so that nothing else need be known before it is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from eqsat.rules import ast
from eqsat.rules.dtypes import DTYPE_LISTS, DTYPES
from eqsat.rules.facts import FACTS
from eqsat.rules.tree import parts


@dataclass(frozen=True, slots=True)
class Uses:
    """Names by what an expression asks of them, each sorted.

    Attributes:
        types: Tensors of which shape, rank, size or element type is asked.
        values: Tensors of which the contents are asked.
        attrs: Bound nodes of which an attribute is asked.
        names: Names used as plain values: bound attributes, cost symbols, lists of tensors.
        consts: Tensors of which it is asked whether they are constant.
        presence: Names of which it is asked whether they are there.
    """

    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    attrs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    consts: tuple[str, ...] = ()
    presence: tuple[str, ...] = ()


_MEMBERS = {"value": "values", "is_const": "consts", "is_present": "presence"}


def uses(*exprs: ast.Expr) -> Uses:
    """What evaluating the expressions may look at."""
    found = _Collector()
    for expr in exprs:
        found.visit(expr, {})
    return Uses(**{kind: tuple(sorted(names)) for kind, names in found.names.items()})


class _Collector:
    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {f.name: set() for f in fields(Uses)}

    def visit(self, expr: ast.Expr, local: Mapping[str, frozenset[str]]) -> None:
        """``local`` gives for each comprehension variable the names it may stand for."""
        match expr:
            case ast.Name():
                if expr.name not in local and expr.name not in DTYPES and expr.name not in DTYPE_LISTS:
                    self.names["names"].add(expr.name)
            case ast.Member():
                self._member(expr, local)
            case ast.Apply(function="const"):
                for arg in expr.args:
                    self.names["consts"] |= _bases(arg, local)
            case ast.Apply():
                for arg in expr.args:
                    self.visit(arg, local)
            case ast.Comprehension():
                self.visit(expr.source, local)
                inner = {**local, expr.variable: _bases(expr.source, local)}
                for part in (expr.condition, expr.item):
                    if part is not None:
                        self.visit(part, inner)
            case _:
                for child in parts(expr):
                    self.visit(child, local)

    def _member(self, expr: ast.Member, local: Mapping[str, frozenset[str]]) -> None:
        kind = _MEMBERS.get(expr.name, "types" if expr.name in FACTS else "attrs")
        self.names[kind] |= _bases(expr.of, local)
        if isinstance(expr.of, ast.Index):
            self.visit(expr.of.index, local)
        elif isinstance(expr.of, ast.Member):
            self.visit(expr.of, local)


def _bases(expr: ast.Expr, local: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The tensors that an expression without a fact of its own may stand for."""
    match expr:
        case ast.Name():
            return local.get(expr.name, frozenset((expr.name,)))
        case ast.Index() | ast.Slice():
            return _bases(expr.of, local)
        case ast.Apply(function="zip" | "reversed"):
            return frozenset().union(*(_bases(a, local) for a in expr.args))
        case ast.Conditional():
            return _bases(expr.then, local) | _bases(expr.otherwise, local)
        case _:
            return frozenset()
