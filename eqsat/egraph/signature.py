"""The columns of a clause's signature, which are what Python needs to answer a match, and their facts in egglog.

Matches that agree in all columns have one answer, so columns hold only facts that conditions, computed attributes or
type checks read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.egraph.language import ABSENT
from eqsat.egraph.query import Query
from eqsat.egraph.right_side import StepOrder
from eqsat.errors import RuleError
from eqsat.rules.ast import (
    Apply,
    AttrBind,
    Build,
    Composite,
    Condition,
    Expr,
    Name,
    Rule,
    TemplateTerm,
    TensorTerm,
    operands,
)
from eqsat.rules.constness import asked_constant
from eqsat.rules.counted_axes import may_count_from_end
from eqsat.rules.evaluation import uses
from eqsat.rules.expand import Clause
from eqsat.rules.tree import walk

FUNCTIONS = {
    "type": "type",
    "value": "cval",
    "numbers": "nums",
    "element": "element",
    "free_term": "free_term",
    "free_factor": "free_factor",
    "bound": "magnitude",
}
_PREFIXES = dict(zip(FUNCTIONS, "tcnqspb", strict=True))


@dataclass(frozen=True, slots=True)
class SignatureColumn:
    """One column of a signature: the id of an egglog variable's attributes, type, value, or numbers."""

    kind: str
    variable: str

    @property
    def name(self) -> str:
        return self.variable if self.kind == "attrs" else f"{_PREFIXES[self.kind]}_{self.variable}"

    @property
    def premise(self) -> str | None:
        """The egglog fact that binds the column; None if the pattern binds it."""
        if self.kind == "attrs":
            return None
        return f"(= {self.name} ({FUNCTIONS[self.kind]} {self.variable}))"


class ClauseSignature:
    """The facts that a clause's conditions, computed attributes and type checks read."""

    def __init__(self, definition: Rule | Composite, clause: Clause, query: Query, layout: StepOrder | None) -> None:
        self.definition = definition
        self.clause = clause
        self.query = query
        self.layout = layout

    def columns(self) -> tuple[SignatureColumn, ...]:
        query, columns = self.query, {}
        nodes = {s.match.bind: s for s in query.sites if s.match.bind}
        nodes |= {alias: nodes[name] for alias, name in self.clause.aliases.items() if name in nodes}

        def add(kind: str, variable: str) -> None:
            columns.setdefault(SignatureColumn(kind, variable))

        for site in query.sites:
            if self.layout is None or site.match.attrs:
                add("attrs", site.attrs)
            if any(_depends_on_types(bind) for bind in site.match.attrs):
                for operand in site.operands:
                    if operand != ABSENT:
                        add("type", operand)
        for variable, _ in query.numbers:
            add("element", variable)
            if self.layout is None:
                add("type", variable)
        for expr in self._expressions():
            used = uses(expr)
            for name in used.attrs:
                if name in nodes:
                    add("attrs", nodes[name].attrs)
            asked = (
                ("type", used.types),
                ("value", used.values),
                ("free_term", used.terms),
                ("free_factor", used.factors),
                ("bound", used.bounds),
            )
            for kind, names in asked:
                for name in names:
                    for variable in variables_of(name, query):
                        add(kind, variable)
        if self.layout is not None:
            for name in _spreads(self._templates()):
                add("attrs", nodes[name].attrs)
            for root in query.roots:
                add("type", root)
            for variable in self.layout.variables:
                add("type", variable)
            for variable in self.layout.by_value:
                add("value", variable)
            for variable in self.layout.by_numbers:
                add("numbers", variable)
        if not columns:
            add("attrs", query.sites[-1].attrs)
        return tuple(columns)

    def _templates(self) -> tuple[TemplateTerm, ...]:
        return self.definition.right if isinstance(self.definition, Rule) else ()

    def _expressions(self) -> Iterator[Expr]:
        for condition in self.definition.where:
            if not const_names(condition):
                yield condition.expr
        for site in self.query.sites:
            for bind in site.match.attrs:
                if isinstance(bind, AttrBind) and bind.equals is not None:
                    yield bind.equals
        for template in self._templates():
            yield from template_expressions(template)


def _depends_on_types(bind: AttrBind) -> bool:
    """Whether a required attribute may differ in form from that of nodes, and its meaning depends on types."""
    if bind.equals is None:
        return False
    return bind.attribute in ("auto_pad", "equation") or may_count_from_end(bind.equals)


def variables_of(name: str, query: Query) -> tuple[str, ...]:
    if name in query.rests:
        return query.rests[name]
    return (query.tensors[name],) if name in query.tensors else ()


def const_names(condition: Condition) -> tuple[str, ...]:
    """Names in a condition that is just ``const(a, b)`` or ``a.is_const``; empty for any other."""
    asked = asked_constant(condition.expr)
    unnamed = next((arg for arg in asked if not isinstance(arg, Name)), None)
    if unnamed is not None and isinstance(condition.expr, Apply):
        raise RuleError("a name is required in const(...)", place=str(unnamed.place))
    return tuple(arg.name for arg in asked if isinstance(arg, Name))


def template_expressions(template: TemplateTerm | None) -> Iterator[Expr]:
    if isinstance(template, TensorTerm):
        yield template.value
        if template.dtype is not None:
            yield template.dtype
    if isinstance(template, Build):
        for arg in template.args:
            yield from template_expressions(arg)
        for _, expr in template.attrs:
            yield expr


def _spreads(templates: Sequence[TemplateTerm]) -> Iterator[str]:
    return (name for part in walk(templates, operands) if isinstance(part, Build) for name in part.spread)
