"""Bounds how often a pattern of several roots can match, before egglog searches for the matches.

Such a pattern is a join. If its parts share nothing, or share one tensor with thousands of readers, each match of one
part combines with each match of the others. egglog cannot be interrupted during a join, so a join that would take too
long is not started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.egraph.language import ABSENT
from eqsat.egraph.query import MatchedOperator

MOST_COMBINATIONS = 2_000_000
"""Matches of a clause in one round, beyond which it is not searched; a million take some seconds and 300 MB."""


def most_matches(sites: Sequence[MatchedOperator], tables: Mapping[str, Any]) -> int:
    """An upper bound: the operators are joined one by one, each as often as the fullest key occurs.

    Args:
        sites: The operators of a pattern.
        tables: Frozen tables of the e-graph by name.
    """
    bound: set[str] = set()
    left, total = list(sites), 1
    while left:
        columns = [_columns(site) for site in left]
        shared = [[i for i, v in found if v in bound] for found in columns]
        chosen = max(range(len(left)), key=lambda k: len(shared[k]))
        total *= _fullest(tables[left[chosen].constructor.name].rows, shared[chosen])
        bound.update(v for _, v in columns[chosen])
        left.pop(chosen)
    return total


def _columns(site: MatchedOperator) -> list[tuple[int, str]]:
    """Positions and variables of the operands and the result, whose position is -1; position 0 is that of the
    attributes.
    """
    operands = [(i, v) for i, v in enumerate(site.operands, start=1) if v != ABSENT]
    return [(-1, site.value), *operands]


def _fullest(rows: Sequence[Any], positions: Sequence[int]) -> int:
    """How many rows agree in some columns, at most."""
    if not positions:
        return len(rows)
    keys = (tuple(row.output if i < 0 else row.inputs[i] for i in positions) for row in rows)
    return max(Counter(keys).values(), default=0)
