"""Judges one match of a rule or composite in a saturated e-graph: it applies, or there is a reason why not.

The match need not be one that saturation found, and the rule need not be one that ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from eqsat.egraph.answer import Answerer
from eqsat.egraph.clause_refusal import CONDITIONS, RIGHT, ClauseRefusal
from eqsat.egraph.compile_rules import CompiledClause, Compiler
from eqsat.egraph.language import ABSENT, Constructor
from eqsat.egraph.magnitudes import UNBOUNDED, bound
from eqsat.egraph.partial import Partial, PartialMatcher
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.signature import FUNCTIONS, SignatureColumn
from eqsat.egraph.snapshot import Snapshot
from eqsat.egraph.template import Answer
from eqsat.rules.ast import Composite, Rule
from eqsat.rules.evaluation import TensorFacts
from eqsat.rules.expand import Clause
from eqsat.schema.types import Attrs, OpKey

Classes = dict[str, int | None]
"""By egglog variable of a query."""


class Judge:
    """Judges matches in one e-graph.

    Args:
        saturation: A finished saturation.
        snapshot: The snapshot of it.
        facts: Facts of each of its classes.
    """

    def __init__(self, saturation: Saturation, snapshot: Snapshot, facts: Sequence[TensorFacts]) -> None:
        self.saturation = saturation
        self.snapshot = snapshot
        self._compiled: dict[object, list[CompiledClause]] = {}
        self._watched = saturation.has_infinities
        self.facts = facts
        self.matcher = PartialMatcher(snapshot, self._with_elements(facts))

    def _with_elements(self, facts: Sequence[TensorFacts]) -> list[TensorFacts]:
        """The facts, in which a constant that is not small has the number that all of its elements equal."""
        known, elements = list(facts), self.saturation.tables.elements
        for eclass, number in self._table("element").items():
            if known[eclass].value is None:
                known[eclass] = replace(known[eclass], value=elements[number].numpy())
        return known

    def judge(
        self, definition: Rule | Composite, number: int, target: str, match: Partial
    ) -> tuple[CompiledClause, Classes, Answer | ClauseRefusal]:
        """Whether a rule or composite applies to a whole match.

        Args:
            definition: The rule, or a composite of a target.
            number: Of the definition in the e-graph.
            target: Name of the target, empty for a rule.
            match: Without misses.
        """
        clause, classes, attrs = self._clause(definition, number, target, match)
        answerer = Answerer(clause, self.saturation.tables, self.saturation.additions.places)
        return clause, classes, self._answer(clause, answerer, classes, attrs)

    def _clause(
        self, definition: Rule | Composite, number: int, target: str, match: Partial
    ) -> tuple[CompiledClause, Classes, dict[str, Attrs]]:
        nodes = self.snapshot.nodes
        sites = {id(m): (n, children, eclass) for m, n, children, eclass in match.sites}
        forms = {
            m: Constructor(nodes[n].op, len(nodes[n].children), nodes[n].outputs) for m, (n, _, _) in sites.items()
        }
        for clause in self._clauses(definition, number, target, match.clause, tuple(dict.fromkeys(forms.values()))):
            if all(forms[id(site.match)] == site.constructor for site in clause.query.sites):
                break
        else:
            raise AssertionError("a match without a query")
        classes: Classes = {}
        attrs: dict[str, Attrs] = {}
        for site in clause.query.sites:
            n, children, eclass = sites[id(site.match)]
            classes[site.value] = eclass
            attrs[site.attrs] = nodes[n].attrs
            classes.update((v, c) for v, c in zip(site.operands, children, strict=True) if v != ABSENT)
        return clause, classes, attrs

    def _clauses(
        self, definition: Rule | Composite, number: int, target: str, clause: Clause, forms: tuple[Constructor, ...]
    ) -> list[CompiledClause]:
        key = (id(clause), forms)
        if key not in self._compiled:
            by_op: dict[OpKey, list[Constructor]] = {}
            for form in forms:
                by_op.setdefault(form.op, []).append(form)
            self._compiled[key] = list(Compiler(by_op).plain(definition, number, target, clause))
            for compiled in self._compiled[key] if self._watched else ():
                compiled.watch()
        return self._compiled[key]

    def _answer(
        self, clause: CompiledClause, answerer: Answerer, classes: Classes, attrs: Mapping[str, Attrs]
    ) -> Answer | ClauseRefusal:
        absent = TensorFacts(None, None, False, False)
        numbers = {variable for variable, _ in clause.query.numbers}
        facts = {
            v: absent if c is None else self.matcher.facts[c] if v in numbers else self._free(self.facts[c], c)
            for v, c in classes.items()
        }
        env = answerer.names(facts, attrs)
        if isinstance(env, ClauseRefusal):
            return env
        refused = answerer.conditions(env, constants=True)
        roots = [classes[root] for root in clause.query.roots]
        if refused is None and any(c is not None and self.snapshot.constant[c] for c in roots):
            refused = ClauseRefusal(
                CONDITIONS, "a value that depends on inputs", "a constant, which is computed in advance"
            )
        if refused is None and clause.layout is None and len(set(roots)) < len(roots):
            refused = ClauseRefusal(CONDITIONS, "results that are different values", "results that are equal")
        key: list[int] = []
        for column in clause.columns if refused is None else ():
            number = self._number(column, classes, attrs)
            if number is None:
                return ClauseRefusal(RIGHT, *self._unknown(column, clause))
            key.append(number)
        return refused or answerer.judge(tuple(key))

    def _free(self, facts: TensorFacts, eclass: int) -> TensorFacts:
        """With whether a constant may move out of the tensor, and with its bound."""
        term, factor = (self._table(kind).get(eclass) == 1 for kind in ("free_term", "free_factor"))
        reach = bound(self._table("bound").get(eclass, UNBOUNDED))
        return replace(facts, free_term=term, free_factor=factor, bound=reach)

    def _number(self, column: SignatureColumn, classes: Classes, attrs: Mapping[str, Attrs]) -> int | None:
        if column.kind == "attrs":
            return self.saturation.tables.attrs.id(attrs[column.variable])
        eclass = classes[column.variable]
        return None if eclass is None else self._table(column.kind).get(eclass)

    def _table(self, kind: str) -> dict[int, int]:
        if kind not in self._columns:
            to_int, ids = self.saturation.engine.egraph.value_to_i64, self.snapshot.ids
            rows = self._tables[FUNCTIONS[kind]].rows
            self._columns[kind] = {ids[r.inputs[0]]: to_int(r.output) for r in rows if r.inputs[0] in ids}
        return self._columns[kind]

    @cached_property
    def _columns(self) -> dict[str, dict[int, int]]:
        return {}

    @cached_property
    def _tables(self) -> Mapping[str, Any]:
        return self.saturation.engine.tables()

    def _unknown(self, column: SignatureColumn, clause: CompiledClause) -> tuple[str, str]:
        name = next((k for k, v in clause.query.tensors.items() if v == column.variable), "")
        what = f"`{name}`" if name else "an operand"
        if column.kind == "type":
            return f"the type of {what}", "a value whose type is not known"
        return f"{what} as a small constant, because its value is used", "a value that is not a small constant"
