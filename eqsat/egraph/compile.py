"""Compiles rules and composites to egglog, in two stages around a Python answer.

Stage one finds the pattern and writes the match together with its *signature*: the ids of the attributes, types
and small constants that conditions and computed attributes look at. Python answers each distinct signature
once (:mod:`eqsat.egraph.answer`): does the rule apply, and with which attribute and constant ids. Stage two joins
matches with answers, builds the right side and unites. A mismatch of types is thus found before anything
enters the e-graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from eqsat.egraph.language import Constructor
from eqsat.egraph.layout import BuildStep, Layout, LayoutBuilder
from eqsat.egraph.query import Query, QueryBuilder
from eqsat.errors import RuleError
from eqsat.model.types import OpKey
from eqsat.rules.ast import (
    AttrBind,
    Build,
    CallExpr,
    Composite,
    Condition,
    Expr,
    Member,
    Name,
    Pattern,
    Rule,
    Template,
    Tensor,
)
from eqsat.rules.expand import Clause, expand
from eqsat.rules.expression import uses


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a signature: an attribute id, a type id or a constant id of an egglog variable."""

    kind: str
    variable: str

    @property
    def name(self) -> str:
        return self.variable if self.kind == "attrs" else f"{'t' if self.kind == 'type' else 'c'}_{self.variable}"

    @property
    def premise(self) -> str | None:
        """The egglog fact that binds the column, None where the pattern does."""
        if self.kind == "attrs":
            return None
        return f"(= {self.name} ({'type' if self.kind == 'type' else 'cval'} {self.variable}))"


@dataclass
class CompiledClause:
    """One egglog query of a rule or composite.

    Attributes:
        key: Unique and usable in egglog names. It ends with no digit: egglog numbers its own variables by appending to
            names, and the 12th of `r9` would be the 2nd of `r91`.
        number: Of the rule, for provenance.
        constants: egglog variables that must be constant expressions.
        layout: Right side; None for a composite.
        absent, operators, aliases: Of the clause: names that did not match, chosen operators, further names.
    """

    key: str
    number: int
    definition: Rule | Composite
    target: str
    query: Query
    columns: tuple[Column, ...]
    constants: tuple[str, ...]
    layout: Layout | None
    absent: frozenset[str]
    operators: Mapping[str, OpKey]
    aliases: Mapping[str, str]
    built: tuple[Constructor, ...] = field(default=())

    @property
    def outputs(self) -> int:
        return 1 if self.layout is None else len(self.layout.steps)

    @property
    def _variables(self) -> list[str]:
        used = dict.fromkeys(self.query.roots)
        for name in self.query.leaves if self.layout is None else self.layout.variables:
            used.setdefault(name)
        return list(used)

    def commands(self) -> list[str]:
        """Declarations and the two egglog rules."""
        key, query = self.key, self.query
        variables, signature = self._variables, [c.name for c in self.columns]
        facts = [c.premise for c in self.columns if c.premise]
        # Constant expressions are evaluated, not rewritten.
        facts += [f"(isc {v})" for v in self.constants] + [f"(live {v})" for v in query.roots]
        premises = [*query.atoms, *facts]
        matched = f"(match_{key} {' '.join([*variables, *signature])})"
        outs = [f"o{i}" for i in range(self.outputs)]
        yes = f"(yes_{key} {' '.join([*signature, *outs])})"
        return [
            f"(relation match_{key} ({' '.join(['T'] * len(variables) + ['i64'] * len(signature))}))",
            f"(relation need_{key} ({' '.join(['i64'] * len(signature))}))",
            f"(relation yes_{key} ({' '.join(['i64'] * (len(signature) + len(outs)))}))",
            f"(ruleset find_{key})",
            f"(ruleset apply_{key})",
            f"(rule ({' '.join(premises)})\n      ({matched} (need_{key} {' '.join(signature)}))\n"
            f'      :ruleset find_{key} :name "find {key}")',
            f"(rule ({matched} {yes})\n      ({' '.join(self._actions())})\n"
            f'      :ruleset apply_{key} :name "apply {key}")',
        ]

    def _actions(self) -> list[str]:
        if self.layout is None:
            (composite,) = self.built
            operands = list(self.query.leaves)
            call = composite.call("o0", operands)
            return [composite.made("o0", operands, str(self.number)), f"(union {self.query.roots[0]} {call})"]
        roots = zip(self.query.roots, self.layout.roots, strict=True)
        unions = [f"(union {left} {self.layout.expression(right)})" for left, right in roots]
        return [*self.layout.actions(self.number), *unions]


class Compiler:
    """Compiles definitions against the constructors that occur.

    Args:
        constructors: By operator; grows as rules build new ones.
    """

    def __init__(self, constructors: Mapping[OpKey, Sequence[Constructor]]) -> None:
        self.constructors = constructors

    def rule(self, rule: Rule, number: int) -> Iterator[CompiledClause]:
        """All clauses of a rule whose operators occur in the e-graph."""
        for clause in expanded(rule.left):
            for query in self._queries(clause):
                layout = LayoutBuilder(query, clause.absent, clause.operators, rule.place).layout(rule.right)
                built = tuple(s.constructor for s in layout.steps if isinstance(s, BuildStep))
                yield self._clause(rule, number, "", clause, query, layout, built)

    def composite(self, composite: Composite, target: str, number: int) -> Iterator[CompiledClause]:
        """All clauses of a target's composite whose operators occur in the e-graph."""
        for clause in expanded((composite.pattern,)):
            for query in self._queries(clause):
                built = Constructor(OpKey(target, composite.name), len(query.leaves), composite=True)
                yield self._clause(composite, number, target, clause, query, None, (built,))

    def _queries(self, clause: Clause) -> Iterator[Query]:
        for query in QueryBuilder(self.constructors, clause.absent).queries(clause.roots):
            for alias, name in clause.aliases.items():
                if name in query.tensors:
                    query.tensors[alias] = query.tensors[name]
            yield query

    def _clause(
        self,
        definition: Rule | Composite,
        number: int,
        target: str,
        clause: Clause,
        query: Query,
        layout: Layout | None,
        built: tuple[Constructor, ...],
    ) -> CompiledClause:
        signature = _Signature(definition, clause, query, layout)
        return CompiledClause(
            key="",
            number=number,
            definition=definition,
            target=target,
            query=query,
            columns=signature.columns(),
            constants=signature.constants(),
            layout=layout,
            absent=clause.absent,
            operators=clause.operators,
            aliases=clause.aliases,
            built=built,
        )


@lru_cache(maxsize=4096)
def expanded(roots: tuple[Pattern, ...]) -> tuple[Clause, ...]:
    """The plain patterns of a definition; the same definitions meet many models."""
    return tuple(expand(roots))


class _Signature:
    """Which facts a clause's conditions, computed attributes and type checks look at."""

    def __init__(self, definition: Rule | Composite, clause: Clause, query: Query, layout: Layout | None) -> None:
        self.definition = definition
        self.clause = clause
        self.query = query
        self.layout = layout

    def constants(self) -> tuple[str, ...]:
        """Variables of ``const(...)`` and ``x.is_const`` conditions, which egglog itself checks."""
        found: dict[str, None] = {}
        for condition in self.definition.where:
            for name in const_names(condition):
                for variable in self._variables_of(name):
                    found.setdefault(variable)
        return tuple(found)

    def columns(self) -> tuple[Column, ...]:
        query, columns = self.query, {}
        nodes = {s.match.bind: s for s in query.sites if s.match.bind}
        nodes |= {alias: nodes[name] for alias, name in self.clause.aliases.items() if name in nodes}

        def add(kind: str, variable: str) -> None:
            columns.setdefault(Column(kind, variable))

        for site in query.sites:
            if self.layout is None or site.match.attrs:
                add("attrs", site.attrs)
        for variable, _ in query.numbers:
            add("value", variable)
        for expr in self._expressions():
            used = uses(expr)
            for name in used.attrs:
                if name in nodes:
                    add("attrs", nodes[name].attrs)
            for name in used.types:
                for variable in self._variables_of(name):
                    add("type", variable)
            for name in used.values:
                for variable in self._variables_of(name):
                    add("value", variable)
        if self.layout is not None:
            for name in _spreads(self._templates()):
                add("attrs", nodes[name].attrs)
            for root in query.roots:
                add("type", root)
            for variable in self.layout.variables:
                add("type", variable)
            for variable in self.layout.by_value:
                add("value", variable)
        if not columns:
            add("attrs", query.sites[-1].attrs)
        return tuple(columns)

    def _variables_of(self, name: str) -> tuple[str, ...]:
        if name in self.query.rests:
            return self.query.rests[name]
        return (self.query.tensors[name],) if name in self.query.tensors else ()

    def _templates(self) -> tuple[Template, ...]:
        return self.definition.right if isinstance(self.definition, Rule) else ()

    def _expressions(self) -> Iterator[Expr]:
        for condition in self.definition.where:
            if not const_names(condition):
                yield condition.expr
        for _, expr in self.definition.lets:
            yield expr
        for site in self.query.sites:
            for bind in site.match.attrs:
                if isinstance(bind, AttrBind) and bind.equals is not None:
                    yield bind.equals
        for template in self._templates():
            yield from _template_expressions(template)


def const_names(condition: Condition) -> tuple[str, ...]:
    """Names in a condition that is just ``const(a, b)`` or ``a.is_const``; empty for any other."""
    expr = condition.expr
    if isinstance(expr, CallExpr) and expr.function == "const":
        names = []
        for arg in expr.args:
            if not isinstance(arg, Name):
                raise RuleError("a name is required in const(...)", place=str(arg.place))
            names.append(arg.name)
        return tuple(names)
    if isinstance(expr, Member) and expr.name == "is_const" and isinstance(expr.of, Name):
        return (expr.of.name,)
    return ()


def _template_expressions(template: Template | None) -> Iterator[Expr]:
    if isinstance(template, Tensor):
        yield template.value
        if template.dtype is not None:
            yield template.dtype
    if isinstance(template, Build):
        for arg in template.args:
            yield from _template_expressions(arg)
        for _, expr in template.attrs:
            yield expr


def _spreads(templates: Sequence[Template | None]) -> Iterator[str]:
    for template in templates:
        if isinstance(template, Build):
            yield from template.spread
            yield from _spreads(template.args)
