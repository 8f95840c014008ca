"""Finds the patterns of a target's composites in a saturated e-graph, without their conditions.

Saturation only finds composites that apply. Reports also explain why others do not. For that, the same queries are run
once more without their premises about types and constants, when a report needs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from eqsat.egraph.answer import Answerer
from eqsat.egraph.compile import CompiledClause
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.enode import ENode
from eqsat.egraph.language import ABSENT
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.schema.types import Attrs, OpKey


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence of a pattern.

    Attributes:
        answerer: Of the pattern's clause.
        classes: By egglog variable of the clause's query.
        attrs: By egglog variable.
    """

    answerer: Answerer
    classes: Mapping[str, int]
    attrs: Mapping[str, Attrs]

    def uses(self, node: ENode) -> bool:
        """Whether one of the pattern's operators is this e-node, in any order of its operands."""
        wanted = node.op, node.eclass, node.attrs, Counter(node.children)
        for site in self.answerer.clause.query.sites:
            operands = Counter(None if o == ABSENT else self.classes[o] for o in site.operands)
            if (site.constructor.op, self.classes[site.value], self.attrs[site.attrs], operands) == wanted:
                return True
        return False


class Occurrences:
    """The places of all composites' patterns.

    Args:
        saturation: Finished.
        snapshot: Of its e-graph.
    """

    def __init__(self, saturation: Saturation, snapshot: Snapshot) -> None:
        self.saturation = saturation
        self.snapshot = snapshot
        self._found: dict[str, dict[tuple[OpKey, int], list[Occurrence]]] = {}

    def of(self, target: str, node: ENode) -> Iterator[Occurrence]:
        """The occurrences in which an e-node is part of a composite's pattern; none once the time is over."""
        if target not in self._found:
            self._found[target] = {}
            with suppress(TimeUp):
                self._found[target] = self._find(target)
        return (found for found in self._found[target].get((node.op, node.eclass), ()) if found.uses(node))

    def _find(self, target: str) -> dict[tuple[OpKey, int], list[Occurrence]]:
        composites = [(c, a) for c, a in self.saturation.clauses() if c.layout is None and c.target == target]
        engine, ids = self.saturation.engine, self.snapshot.ids
        tables = engine.tables()
        # Several programs of one e-graph have a report each.
        new = [clause for clause, _ in composites if f"near_{clause.key}" not in tables]
        for clause in new:
            engine.run_text(_commands(clause))
            engine.step(f"find_near_{clause.key}")
        tables = engine.tables() if new else tables
        found: dict[tuple[OpKey, int], list[Occurrence]] = {}
        for clause, answerer in composites:
            variables, attributes = _variables(clause), _attributes(clause)
            for row in tables[f"near_{clause.key}"].rows:
                classes = {v: ids[value] for v, value in zip(variables, row.inputs, strict=False) if value in ids}
                if len(classes) < len(variables):
                    continue
                numbers = map(engine.egraph.value_to_i64, row.inputs[len(variables) :])
                attrs = {a: self.snapshot.tables.attrs[n] for a, n in zip(attributes, numbers, strict=True)}
                place = Occurrence(answerer, classes, attrs)
                for site in clause.query.sites:
                    found.setdefault((site.constructor.op, classes[site.value]), []).append(place)
        return found


def _variables(clause: CompiledClause) -> list[str]:
    query = clause.query
    operators = (v for site in query.sites for v in (site.value, *site.operands) if v != ABSENT)
    return list(dict.fromkeys([*operators, *query.leaves, *(v for v, _ in query.numbers)]))


def _attributes(clause: CompiledClause) -> list[str]:
    return list(dict.fromkeys(site.attrs for site in clause.query.sites))


def _commands(clause: CompiledClause) -> list[str]:
    """The query without its premises about types and constants."""
    name, columns, attributes = f"near_{clause.key}", _variables(clause), _attributes(clause)
    premises = [*clause.query.atoms, *(f"(live {root})" for root in clause.query.roots)]
    return [
        f"(relation {name} ({' '.join(['T'] * len(columns) + ['i64'] * len(attributes))}))",
        f"(ruleset find_{name})",
        f"(rule ({' '.join(premises)}) (({name} {' '.join([*columns, *attributes])})) :ruleset find_{name})",
    ]
