"""Rules and composites as text: in full, as the reader understood them, and in a line for lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.rules import ast
from eqsat.rules import syntax as s
from eqsat.rules.ast import Composite, Expr, Place, Rule
from eqsat.rules.dtypes import dtype_name
from eqsat.rules.format import print_clauses
from eqsat.rules.format_clauses import print_composite, print_rule
from eqsat.rules.print_term import flat
from eqsat.rules.quoting import quote
from eqsat.rules.written import built_parts, named_parts
from eqsat.schema.types import Attrs, OpKey

_ONE_LINE = s.Span(1, 1)


@dataclass(frozen=True, slots=True)
class Description:
    """What a list of rules shows of one.

    Attributes:
        numerics: ``exact``, ``within 2 lsb``, ...
        pattern: ``left => right`` of a rule, the pattern of a composite; macros expanded, on one line.
        conditions: One text each.
    """

    name: str
    numerics: str
    place: Place
    doc: str
    pattern: str
    conditions: tuple[str, ...]


def describe(definition: Rule | Composite) -> Description:
    """A rule or composite in a line."""
    conditions = tuple(flat(c.expr) for c in definition.where)
    surface = _rule(definition) if isinstance(definition, Rule) else _composite(definition)
    lets = "".join(f"let {let.name} = {flat(let.body)}; " for let in surface.before)
    if isinstance(surface, s.Rule):
        pattern = f"{lets}{_side(surface.left)} => {_side(surface.right)}"
        after = [c for c in surface.after if isinstance(c, s.Let)]
        pattern += "".join(f"; let {let.name} = {flat(let.body)}" for let in after)
    else:
        pattern = lets + flat(surface.pattern)
    return Description(definition.name, str(definition.numerics), definition.place, definition.doc, pattern, conditions)


def format_rule(rule: Rule) -> str:
    """A rule in the rule language, macros expanded. Reading it gives the same rule."""
    return print_clauses(print_rule(_rule(rule)), rule.doc)


def format_composite(composite: Composite) -> str:
    """A composite in the rule language, macros expanded, indented as in a target."""
    return print_clauses(print_composite(_composite(composite)), composite.doc)


def format_expression(expr: Expr) -> str:
    """An expression in the rule language."""
    return flat(expr)


def _side(roots: tuple[s.Root, ...]) -> str:
    return ", ".join(("" if r.target is None else f"{flat(r.target)} = ") + flat(r.value) for r in roots)


def _numerics(definition: Rule | Composite) -> s.Numerics:
    kind = definition.numerics.kind
    if kind == "lsb":
        return s.Numerics("within", definition.numerics.lsb, "lsb", definition.place)
    return s.Numerics(kind, None, "", definition.place)


def _lets(terms: dict[str, ast.Term], place: Place) -> tuple[s.Let, ...]:
    return tuple(s.Let(name, None, term, place, _ONE_LINE) for name, term in terms.items())


def _where(definition: Rule | Composite) -> tuple[s.Where, ...]:
    return (s.Where(definition.where, _ONE_LINE),) if definition.where else ()


def _rule(rule: Rule) -> s.Rule:
    names = [None if len(rule.left) == 1 or r.bind is None else ast.Name(r.bind, r.place) for r in rule.left]
    left, before = named_parts(rule.left)
    right, after = built_parts(rule.right)
    # The name of a root stands before its `=`, and not in it.
    left = [
        replace(r, bind=None) if name and not isinstance(r, ast.Name) else r
        for name, r in zip(names, left, strict=True)
    ]
    return s.Rule(
        rule.name,
        _numerics(rule),
        _lets(before, rule.place),
        tuple(s.Root(name, term, _ONE_LINE) for name, term in zip(names, left, strict=True)),
        False,
        tuple(s.Root(name, term, _ONE_LINE) for name, term in zip(names, right, strict=True)),
        (*_lets(after, rule.place), *_where(rule)),
        rule.place,
        _ONE_LINE,
    )


def _annotation(op: OpKey, attrs: Attrs, place: Place) -> ast.Term:
    if not attrs:
        return ast.Name(op.name, place)
    words = ((n, dtype_name(ir.DataType(v)) if n == "dtype" and isinstance(v, int) else str(v)) for n, v in attrs)
    arguments = tuple(ast.Keyword(name, ast.Name(word, place), place) for name, word in words)
    return ast.Apply(ast.Name(op.name, place), arguments, place)


def _composite(composite: Composite) -> s.Composite:
    (pattern,), before = named_parts([composite.pattern])
    by = (s.By(composite.family, composite.place, _ONE_LINE),) if composite.family else ()
    cost = () if composite.cost is None else (s.Cost(composite.cost, _ONE_LINE),)
    call: tuple[s.Call, ...] = ()
    if composite.call is not None:
        string = ast.String(composite.call, quote(composite.call), composite.place)
        call = (s.Call((string,), _ONE_LINE),)
    annotate: tuple[s.Annotate, ...] = ()
    if composite.annotations:
        annotate = (s.Annotate(tuple(_annotation(*a, composite.place) for a in composite.annotations), _ONE_LINE),)
    return s.Composite(
        composite.name,
        _numerics(composite),
        _lets(before, composite.place),
        pattern,
        _ONE_LINE,
        (*by, *_where(composite), *cost, *call, *annotate),
        composite.place,
        _ONE_LINE,
    )
