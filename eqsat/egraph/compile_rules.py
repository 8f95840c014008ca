"""Compiles rules and composites to egglog, in two stages around a Python answer.

Stage one finds the pattern and writes the match together with its *signature*: the ids of the attributes, types and
small constants that conditions and computed attributes read. Python answers each distinct signature once
(:mod:`eqsat.egraph.answer`): whether the rule applies, and with which attribute and constant ids. Stage two joins
matches with answers, builds the right side and unites. A part of a right side that uses only small constants is a
constant of the answer, so this stage has one egglog rule for each set of folded operators. Types that differ, and
constants that do not fit, are thus found before anything enters the e-graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

from eqsat.egraph.free_constants import GATHERINGS
from eqsat.egraph.language import ABSENT, Constructor
from eqsat.egraph.query import Query, QueryBuilder
from eqsat.egraph.right_side import BuildStep, Layout, LayoutBuilder
from eqsat.errors import RuleError
from eqsat.ops.properties import requires_finite
from eqsat.rules.ast import (
    Apply,
    AttrBind,
    Build,
    Composite,
    Condition,
    Expr,
    Name,
    Pattern,
    Rule,
    Template,
    Tensor,
    operands,
)
from eqsat.rules.constness import asked_constant
from eqsat.rules.counted_axes import may_count_from_end
from eqsat.rules.evaluation import uses
from eqsat.rules.expand import Clause, expand, needed
from eqsat.rules.tree import walk
from eqsat.schema.types import OpKey

_GATHERED = [[g.op] for g in GATHERINGS]
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
class Column:
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


@dataclass
class CompiledClause:
    """One egglog query of a rule or composite.

    Attributes:
        key: Unique and usable in egglog names. It does not end with a digit: egglog numbers its own variables by
        appending to
            names, and the 12th of `r9` would be the 2nd of `r91`.
        number: Of the rule, for provenance.
        constants: egglog variables that must be constant expressions.
        layout: Right side; None for a composite.
        watched: egglog variables that must not be infinite constants, see :meth:`watch`.
        recorded: Whether the matches record all values and attributes of the pattern, see :meth:`record`.
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
    watched: frozenset[str] = frozenset()
    recorded: bool = False

    def watch(self) -> None:
        """From now on, a rule over the reals applies only if the constants in its computation are finite.

        ``x * c + y * c`` is not ``(x + y) * c`` where c is infinite. Only for models that contain such a constant.
        """
        if not isinstance(self.definition, Rule) or self.definition.numerics.kind == "exact":
            return
        sites = [(s.constructor.op, s.operands) for s in self.query.sites]
        steps = self.layout.steps if self.layout is not None else ()
        built = [(s.constructor.op, [o.variable for o in s.operands if o]) for s in steps if isinstance(s, BuildStep)]
        read = dict.fromkeys(
            v for op, operands in [*sites, *built] if requires_finite(op) for v in operands if v is not None
        )
        self.watched = frozenset(v for v in read if v in self.query.leaves)
        columns = [Column("numbers", v) for v in read if v in self.watched]
        self.columns = tuple(dict.fromkeys([*self.columns, *columns]))

    @property
    def gathers(self) -> bool:
        """Whether it moves constants one step, or drops one that has no effect: until then ``x * 1`` has the class of x
        as an operand, and constants would move past the 1 without end. See :mod:`eqsat.egraph.free_constants`.
        """
        if self.layout is None:
            return False
        drops = not self.layout.steps and [s.constructor.op for s in self.query.sites] in _GATHERED
        return drops or any(c.kind in ("free_term", "free_factor") for c in self.columns)

    @property
    def outputs(self) -> int:
        return 1 if self.layout is None else len(self.layout.steps)

    def record(self) -> None:
        """From now on, the matches record the operand classes of each operator of the pattern, for the history of
        unions.
        """
        self.recorded = True
        attributes = (Column("attrs", site.attrs) for site in self.query.sites)
        self.columns = tuple(dict.fromkeys([*self.columns, *attributes]))

    @property
    def variables(self) -> list[str]:
        """egglog variables of the classes that a match records."""
        used = dict.fromkeys(self.query.roots)
        if self.recorded:
            for site in self.query.sites:
                used.update(dict.fromkeys(v for v in (site.value, *site.operands) if v != ABSENT))
            used.update(self.query.leaves)
        for name in self.query.leaves if self.layout is None else self.layout.variables:
            used.setdefault(name)
        return list(used)

    def commands(self) -> list[str]:
        """Declarations and the rule that finds matches."""
        key = self.key
        variables, signature = self.variables, self._signature
        facts = [c.premise for c in self.columns if c.premise]
        facts += [f"(isc {v})" for v in self.constants]
        if not self._leaves_out:
            # Constant expressions are evaluated, not rewritten.
            facts += [f"(live {v})" for v in self.query.roots]
        premises = [*self.query.atoms, *facts, *self._distinct]
        return [
            f"(relation match_{key} ({' '.join(['T'] * len(variables) + ['i64'] * len(signature))}))",
            f"(relation need_{key} ({' '.join(['i64'] * len(signature))}))",
            f"(ruleset find_{key})",
            f"(ruleset apply_{key})",
            f"(rule ({' '.join(premises)})\n      ({self._matched} (need_{key} {' '.join(signature)}))\n"
            f'      :ruleset find_{key} :name "find {key}")',
        ]

    @property
    def _leaves_out(self) -> bool:
        """Whether it is exact and makes nothing. Such a rule holds for constants too: unless ``w * 1`` is w, a product
        by w times ones has other weights each time the ones are folded into them.
        """
        definition = self.definition
        return isinstance(definition, Rule) and definition.numerics.kind == "exact" and not self.outputs

    @property
    def _distinct(self) -> Iterator[str]:
        """Facts: the results of a composite are different values; otherwise it would compute one of them twice."""
        roots = self.query.roots if self.layout is None else []
        return (f"(!= {a} {b})" for a, b in combinations(dict.fromkeys(roots), 2))

    @property
    def _signature(self) -> list[str]:
        return [c.name for c in self.columns]

    @property
    def _matched(self) -> str:
        return f"(match_{self.key} {' '.join([*self.variables, *self._signature])})"

    def yes(self, folded: frozenset[int]) -> str:
        """The relation of the signatures on which the clause applies with these operators folded.

        The name does not end with a digit, see ``key``.
        """
        return f"yes_{self.key}{''.join(f'{i}_' for i in sorted(folded))}"

    def apply_commands(self, folded: frozenset[int]) -> list[str]:
        """Declaration and rule that applies the clause to the signatures of :meth:`yes`."""
        key, yes, signature = self.key, self.yes(folded), self._signature
        outs = [f"o{i}" for i in range(self.outputs)]
        return [
            f"(relation {yes} ({' '.join(['i64'] * (len(signature) + len(outs)))}))",
            f"(rule ({self._matched} ({yes} {' '.join([*signature, *outs])}))\n"
            f"      ({' '.join(self._actions(folded))})\n"
            f'      :ruleset apply_{key} :name "{self.applying(folded)}")',
        ]

    def applying(self, folded: frozenset[int]) -> str:
        """The name of that rule."""
        return f"apply {self.yes(folded)}"

    def _actions(self, folded: frozenset[int]) -> list[str]:
        if self.layout is None:
            (composite,) = self.built
            operands = list(self.query.leaves)
            call = composite.call("o0", operands)
            made = composite.made("o0", operands, str(self.number))
            if not composite.outputs:
                return [made, f"(union {self.query.roots[0]} {call})"]
            parts = [f"(union {root} (out results {i}))" for i, root in enumerate(self.query.roots)]
            return [f"(let results {call})", made, *parts]
        roots = zip(self.query.roots, self.layout.roots, strict=True)
        unions = [f"(union {left} {self.layout.expression(right, folded)})" for left, right in roots]
        return [*self.layout.actions(self.number, folded), *unions]


class Compiler:
    """Compiles definitions against the constructors that occur.

    Args:
        constructors: By operator; grows when rules build new ones.
    """

    def __init__(self, constructors: Mapping[OpKey, Sequence[Constructor]]) -> None:
        self.constructors = constructors

    def rule(self, rule: Rule, number: int) -> Iterator[CompiledClause]:
        """All clauses of a rule whose operators occur in the e-graph."""
        yield from self._occurring(rule, rule.left, number, "")

    def composite(self, composite: Composite, target: str, number: int) -> Iterator[CompiledClause]:
        """All clauses of a target's composite whose operators occur in the e-graph."""
        yield from self._occurring(composite, composite.patterns, number, target)

    def may_match(self, needs: Sequence[frozenset[OpKey]]) -> bool:
        """Whether patterns may match that :func:`~eqsat.rules.expand.needed` says this of."""
        present = self.constructors.keys()
        return not any(map(present.isdisjoint, needs))

    def plain(self, definition: Rule | Composite, number: int, target: str, clause: Clause) -> Iterator[CompiledClause]:
        """The clauses of one plain pattern of a rule, or of a composite of a target."""
        options = QueryBuilder(self.constructors, clause.absent).options(clause.roots)
        for parts in _compiled(definition, target, clause, options):
            yield parts.numbered(number)

    def _occurring(
        self, definition: Rule | Composite, patterns: tuple[Pattern, ...], number: int, target: str
    ) -> Iterator[CompiledClause]:
        if not self.may_match(needed(patterns)):
            return
        for i, clause in enumerate(expanded(patterns)):
            if clause.matched <= self.constructors.keys():
                options = QueryBuilder(self.constructors, clause.absent).options(clause.roots)
                for parts in _compiled_once(definition, target, i, options):
                    yield parts.numbered(number)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is the same of a compiled clause in each e-graph; nobody changes it."""

    definition: Rule | Composite
    target: str
    clause: Clause
    query: Query
    layout: Layout | None
    columns: tuple[Column, ...]
    constants: tuple[str, ...]
    built: tuple[Constructor, ...]

    def numbered(self, number: int) -> CompiledClause:
        """The clause of one e-graph."""
        return CompiledClause(
            key="",
            number=number,
            definition=self.definition,
            target=self.target,
            query=self.query,
            columns=self.columns,
            constants=self.constants,
            layout=self.layout,
            absent=self.clause.absent,
            operators=self.clause.operators,
            aliases=self.clause.aliases,
            built=self.built,
        )


_Options = tuple[tuple[Constructor, ...], ...]


@lru_cache(maxsize=2048)
def _compiled_once(definition: Rule | Composite, target: str, index: int, options: _Options) -> tuple[_Parts, ...]:
    """The parts of one clause of a definition; cached, because the next model has the same operators."""
    patterns = definition.left if isinstance(definition, Rule) else definition.patterns
    return tuple(_compiled(definition, target, expanded(patterns)[index], options))


def _compiled(definition: Rule | Composite, target: str, clause: Clause, options: _Options) -> Iterator[_Parts]:
    for query in QueryBuilder({}, clause.absent).queries(clause.roots, options):
        for alias, name in clause.aliases.items():
            if name in query.tensors:
                query.tensors[alias] = query.tensors[name]
        constants = _constants(definition, query)
        layout = None
        if isinstance(definition, Rule):
            builder = LayoutBuilder(query, clause.absent, clause.operators, definition.place, constants)
            layout = builder.layout(definition.right)
            built = tuple(s.constructor for s in layout.steps if isinstance(s, BuildStep))
        else:
            outputs = len(definition.patterns) if len(definition.patterns) > 1 else 0
            built = (Constructor(OpKey(target, definition.name), len(query.leaves), outputs, composite=True),)
        columns = _Signature(definition, clause, query, layout).columns()
        yield _Parts(definition, target, clause, query, layout, columns, constants, built)


@lru_cache(maxsize=4096)
def expanded(roots: tuple[Pattern, ...]) -> tuple[Clause, ...]:
    """The plain patterns of a definition; cached, because many models use the same definitions."""
    return tuple(expand(roots))


class _Signature:
    """The facts that a clause's conditions, computed attributes and type checks read."""

    def __init__(self, definition: Rule | Composite, clause: Clause, query: Query, layout: Layout | None) -> None:
        self.definition = definition
        self.clause = clause
        self.query = query
        self.layout = layout

    def columns(self) -> tuple[Column, ...]:
        query, columns = self.query, {}
        nodes = {s.match.bind: s for s in query.sites if s.match.bind}
        nodes |= {alias: nodes[name] for alias, name in self.clause.aliases.items() if name in nodes}

        def add(kind: str, variable: str) -> None:
            columns.setdefault(Column(kind, variable))

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
                    for variable in _variables_of(name, query):
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

    def _templates(self) -> tuple[Template, ...]:
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
            yield from _template_expressions(template)


def _depends_on_types(bind: AttrBind) -> bool:
    """Whether a required attribute may be written otherwise than nodes have it, and the types say what it means."""
    if bind.equals is None:
        return False
    return bind.attribute in ("auto_pad", "equation") or may_count_from_end(bind.equals)


def _variables_of(name: str, query: Query) -> tuple[str, ...]:
    if name in query.rests:
        return query.rests[name]
    return (query.tensors[name],) if name in query.tensors else ()


def _constants(definition: Rule | Composite, query: Query) -> tuple[str, ...]:
    """Variables of ``const(...)`` and ``x.is_const`` conditions, which egglog itself checks."""
    names = (name for condition in definition.where for name in const_names(condition))
    return tuple(dict.fromkeys(variable for name in names for variable in _variables_of(name, query)))


def const_names(condition: Condition) -> tuple[str, ...]:
    """Names in a condition that is just ``const(a, b)`` or ``a.is_const``; empty for any other."""
    asked = asked_constant(condition.expr)
    unnamed = next((arg for arg in asked if not isinstance(arg, Name)), None)
    if unnamed is not None and isinstance(condition.expr, Apply):
        raise RuleError("a name is required in const(...)", place=str(unnamed.place))
    return tuple(arg.name for arg in asked if isinstance(arg, Name))


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


def _spreads(templates: Sequence[Template]) -> Iterator[str]:
    return (name for part in walk(templates, operands) if isinstance(part, Build) for name in part.spread)
