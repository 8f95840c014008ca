"""Tells of most patterns that cannot match yet that they cannot, before egglog is given their rules.

egglog takes as long to compile the rule of a pattern as Python takes to look through a small table, and most patterns
whose operators all occur never match: `Relu(Relu(x))` does not where each `Relu` reads a `Conv`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.egraph.language import ABSENT
from eqsat.egraph.query import MatchedOperator

MOST_ROWS = 2048
"""Rows of all tables of a pattern beyond which egglog is given its rule unseen: it searches large tables faster."""


class Columns:
    """The columns of frozen tables, each read once.

    Args:
        tables: By name; a constructor's rows have attributes and operands as inputs.
    """

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self.tables = tables
        self._read: dict[tuple[str, int], frozenset[Any]] = {}

    def may_join(self, sites: Sequence[MatchedOperator]) -> bool:
        """Whether each operator of a pattern occurs, and each tensor that two of them share may be the same class.

        Never false for a pattern that matches.
        """
        tables = [self.tables.get(site.constructor.name) for site in sites]
        rows = [0 if table is None else len(table.rows) for table in tables]
        if not all(rows):
            return False
        if len(sites) == 1 or sum(rows) > MOST_ROWS:
            return True
        places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for site in sites:
            name = site.constructor.name
            for i, variable in enumerate(site.operands, start=1):
                if variable != ABSENT:
                    places[variable].add((name, i))
            # The result of an operator with several results is one of a tuple.
            if not site.constructor.outputs:
                places[site.value].add((name, -1))
        return all(frozenset.intersection(*map(self._column, found)) for found in places.values() if len(found) > 1)

    def _column(self, place: tuple[str, int]) -> frozenset[Any]:
        """The classes in one column; position -1 is the result, 0 would be the attributes."""
        if place not in self._read:
            name, i = place
            rows = self.tables[name].rows
            self._read[place] = frozenset(row.output if i < 0 else row.inputs[i] for row in rows)
        return self._read[place]
