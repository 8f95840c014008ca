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
from eqsat.egraph.right_side import BuildStep, LayoutBuilder, StepOrder
from eqsat.egraph.signature import ClauseSignature, SignatureColumn, const_names, variables_of
from eqsat.ops.properties import requires_finite
from eqsat.rules.ast import (
    Composite,
    Pattern,
    Rule,
)
from eqsat.rules.expand import Clause, expand, needed, operators
from eqsat.schema.types import OpKey

_PASSED = frozenset(op for g in GATHERINGS for op in (g.op, *g.readers))
"""Operators past which constants move."""


@dataclass
class CompiledClause:
    """One egglog query of a rule or composite.

    Attributes:
        key: Unique and usable in egglog names. It does not end with a digit: egglog numbers its own variables by
        appending to
            names, and the 12th of `r9` would be the 2nd of `r91`.
        number: Number of the rule, for provenance.
        constants: egglog variables that must be constant expressions.
        layout: Right side; None for a composite.
        watched: egglog variables that must not be infinite constants, see :meth:`watch`.
        recorded: Whether the matches record all values and attributes of the pattern, see :meth:`record`.
        absent, operators, aliases: Absent names, chosen operators and aliases of the clause.
    """

    key: str
    number: int
    definition: Rule | Composite
    target: str
    query: Query
    columns: tuple[SignatureColumn, ...]
    constants: tuple[str, ...]
    layout: StepOrder | None
    absent: frozenset[str]
    operators: Mapping[str, OpKey]
    aliases: Mapping[str, str]
    built: tuple[Constructor, ...] = field(default=())
    watched: frozenset[str] = frozenset()
    recorded: bool = False

    def watch(self) -> None:
        """From now on, a rule over the reals applies only if the constants in its computation are finite.

        ``x * c + y * c`` is not ``(x + y) * c`` if c is infinite. Only for models that contain such a constant.
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
        columns = [SignatureColumn("numbers", v) for v in read if v in self.watched]
        self.columns = tuple(dict.fromkeys([*self.columns, *columns]))

    @property
    def gathers(self) -> bool:
        """Whether it moves constants one step, or drops one without effect. Until that is dropped, the class of x
        contains ``x * 1`` and ``x / 1``, which read x, and constants would move past the 1 without end. See
        :mod:`eqsat.egraph.free_constants`.
        """
        if self.layout is None:
            return False
        operators = [s.constructor.op for s in self.query.sites]
        drops = not self.layout.steps and len(operators) == 1 and operators[0] in _PASSED
        return drops or any(c.kind in ("free_term", "free_factor") for c in self.columns)

    @property
    def outputs(self) -> int:
        return 1 if self.layout is None else len(self.layout.steps)

    def record(self) -> None:
        """From now on, the matches record the operand classes of each operator of the pattern, for the history of
        unions.
        """
        self.recorded = True
        attributes = (SignatureColumn("attrs", site.attrs) for site in self.query.sites)
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
        """Whether it is exact and builds no operator. Such a rule holds for constants too: unless ``w * 1`` is w,
        folding ones into the weights of a product gives other weights each time.
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
        present = tuple(tuple(self.constructors.get(op, ())) for op in operators(*patterns))
        for parts in _compiled_once(definition, target, patterns, present):
            yield parts.numbered(number)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The part of a compiled clause that is the same in each e-graph; it is never changed."""

    definition: Rule | Composite
    target: str
    clause: Clause
    query: Query
    layout: StepOrder | None
    columns: tuple[SignatureColumn, ...]
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


@lru_cache(maxsize=4096)
def _compiled_once(
    definition: Rule | Composite, target: str, patterns: tuple[Pattern, ...], present: _Options
) -> tuple[_Parts, ...]:
    """The parts of all clauses of a definition; cached, because the next model has the same operators.

    Args:
        present: The constructors of each of :func:`~eqsat.rules.expand.operators`.
    """
    constructors = {op: known for op, known in zip(operators(*patterns), present, strict=True) if known}
    return tuple(
        parts
        for i, clause in enumerate(expanded(patterns))
        if clause.matched <= constructors.keys()
        for parts in _clause_once(
            definition, target, i, QueryBuilder(constructors, clause.absent).options(clause.roots)
        )
    )


@lru_cache(maxsize=4096)
def _clause_once(definition: Rule | Composite, target: str, index: int, options: _Options) -> tuple[_Parts, ...]:
    """The parts of one clause, which most models share even where other operators of the definition differ."""
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
        columns = ClauseSignature(definition, clause, query, layout).columns()
        yield _Parts(definition, target, clause, query, layout, columns, constants, built)


@lru_cache(maxsize=4096)
def expanded(roots: tuple[Pattern, ...]) -> tuple[Clause, ...]:
    """The plain patterns of a definition; cached, because many models use the same definitions."""
    return tuple(expand(roots))


def _constants(definition: Rule | Composite, query: Query) -> tuple[str, ...]:
    """Variables of ``const(...)`` and ``x.is_const`` conditions, which egglog itself checks."""
    names = (name for condition in definition.where for name in const_names(condition))
    return tuple(dict.fromkeys(variable for name in names for variable in variables_of(name, query)))
