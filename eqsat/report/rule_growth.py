"""Finds the rules that made an e-graph large, and where, for searches that a limit ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from eqsat.egraph.language import COMMUTED, ORIGINAL
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import Snapshot
from eqsat.report.summary import GrowthRow
from eqsat.schema.attributes import op_key

_MOST = 3


def growth(saturation: Saturation, snapshot: Snapshot, places: Mapping[str, str]) -> tuple[GrowthRow, ...]:
    """The rules that added most e-nodes, the largest first; none if everything was found.

    Args:
        saturation: A finished saturation.
        snapshot: Snapshot of its e-graph.
        places: ``file:line`` of each rule.
    """
    if saturation.stop_reason == "saturated":
        return ()
    tensors = _tensors(saturation, snapshot)
    total: Counter[int] = Counter()
    at: dict[int, Counter[int]] = {}
    for node in snapshot.nodes:
        if node.kind == "op" and node.rule not in (ORIGINAL, COMMUTED):
            total[node.rule] += 1
            if node.eclass in tensors:
                at.setdefault(node.rule, Counter())[tensors[node.eclass]] += 1
    rows = []
    for rule, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))[:_MOST]:
        name = snapshot.rules[rule]
        found = sorted(at.get(rule, Counter()).items(), key=lambda item: (-item[1], item[0]))
        number, largest = found[0] if found else (None, 0)
        value = None if number is None else saturation.encoding.values[number]
        producer = None if value is None else value.producer()
        op = "" if producer is None else str(op_key(producer))
        rows.append(GrowthRow(name, places.get(name, ""), count, (value.name or "") if value else "", op, largest))
    return tuple(rows)


def _tensors(saturation: Saturation, snapshot: Snapshot) -> dict[int, int]:
    """For each class its value of the model, otherwise the nearest value computed from it."""
    made = [saturation.encoding.values[k] for node in saturation.encoding.nodes for k in node.results]
    found: dict[int, int] = {}
    for value in made:
        found.setdefault(snapshot.refs[value], saturation.encoding.number[value])
    front = list(found)
    while front:
        reached = []
        for eclass in front:
            for n in snapshot.classes[eclass]:
                for child in snapshot.nodes[n].children:
                    if child is not None and child not in found and not snapshot.constant[child]:
                        found[child] = found[eclass]
                        reached.append(child)
        front = reached
    return found
