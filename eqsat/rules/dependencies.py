"""The facts that an expression reads, which must be known before it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

from eqsat.rules import ast
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.kinds import FACTS
from eqsat.rules.tree import parts


@dataclass(frozen=True, slots=True)
class Uses:
    """Names by the facts that an expression reads of them, each sorted.

    Attributes:
        types: Tensors whose shape, rank, size or element type is read.
        values: Tensors whose contents are read.
        attrs: Bound nodes of which an attribute is read.
        names: Names used as plain values: bound attributes, cost symbols, lists of tensors.
        consts: Tensors that are tested for being constant.
        presence: Names that are tested for being present.
        terms: Tensors that are tested for a constant that may move out of them as a summand.
        factors: Tensors that are tested for a constant that may move out of them as a factor.
        bounds: Tensors whose greatest magnitude is read.
    """

    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    attrs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    consts: tuple[str, ...] = ()
    presence: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()


_MEMBERS = {
    "value": "values",
    "is_const": "consts",
    "is_present": "presence",
    "has_free_term": "terms",
    "has_free_factor": "factors",
    "bound": "bounds",
}


@lru_cache(maxsize=16384)
def uses(*exprs: ast.Expr) -> Uses:
    """The facts that the expressions may read; cached, because many models use the same rules."""
    found: dict[str, set[str]] = {f.name: set() for f in fields(Uses)}
    for expr in exprs:
        for kind, names in _asked(expr, {}):
            found[kind] |= names
    return Uses(**{kind: tuple(sorted(names)) for kind, names in found.items()})


def _asked(expr: ast.Expr, local: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, frozenset[str]]]:
    """Kinds of facts with the names that have them; ``local`` gives those of comprehension variables."""
    inside: Sequence[ast.Expr] = ()
    match expr:
        case ast.Name():
            if expr.name not in local and expr.name not in DTYPES and expr.name not in DTYPE_LISTS:
                yield "names", frozenset((expr.name,))
        case ast.Member():
            yield _MEMBERS.get(expr.name, "types" if expr.name in FACTS else "attrs"), _bases(expr.of, local)
            of = expr.of
            inside = (of.index,) if isinstance(of, ast.Index) else (of,) if isinstance(of, ast.Member) else ()
        case ast.Apply(function="const"):
            for arg in expr.args:
                yield "consts", _bases(arg, local)
        case ast.Apply():
            inside = expr.args
        case ast.Comprehension():
            yield from _asked(expr.source, local)
            local = {**local, expr.variable: _bases(expr.source, local)}
            inside = [expr.item] if expr.condition is None else [expr.condition, expr.item]
        case _:
            inside = parts(expr)
    for part in inside:
        yield from _asked(part, local)


def _bases(expr: ast.Expr, local: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The tensors that an expression without a fact of its own may denote."""
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
