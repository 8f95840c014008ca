"""The operators of the input that each kernel of the result replaces, according to the kernel's origin."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.explain.origin import Origin
from eqsat.report.graphs import Graph, GraphComparison


def covered(before: Graph, after: Graph, origins: Mapping[str, Origin]) -> tuple[tuple[int, ...], ...]:
    """Per node of the result the nodes of the input that it was made from, and whose results it computes."""
    ends = ("input", "output")
    places: dict[str, list[int]] = {}
    leaves: dict[tuple[str, str], int] = {}
    for i, node in enumerate(before.nodes):
        if node.kind in ends:
            leaves[node.kind, node.name] = i
        else:
            # Of several results each may be what the origin names.
            for name in dict.fromkeys((node.name, *(typed.rpartition(": ")[0] for typed in node.makes))):
                places.setdefault(name, []).append(i)
    found: list[tuple[int, ...]] = []
    for node in after.nodes:
        if node.kind in ends:
            twin = leaves.get((node.kind, node.name))
            found.append(() if twin is None else (twin,))
        else:
            sources = origins[node.name].sources if node.name in origins else ()
            found.append(tuple(sorted({i for name in sources for i in places.get(name, ())})))
    return tuple(found)


def shared_costs(comparison: GraphComparison) -> dict[str, tuple[float, float]]:
    """For each operator of the input its cost there, and the cost of its part of the result.

    The cost of a kernel is divided among the operators that it replaces, in proportion to their costs in the input.
    Operators that an earlier kernel replaces, such as that of a value that it reads in rounded form, do not count
    again.
    """
    before, after = comparison.before.nodes, comparison.after
    found = {node.name: (node.cost, 0.0) for node in before if node.kind not in ("input", "output")}
    reads: dict[int, set[int]] = {}
    for a, b in after.edges:
        reads.setdefault(b, set()).update(comparison.covers[a])
    for i, (node, covers) in enumerate(zip(after.nodes, comparison.covers, strict=True)):
        own = [k for k in covers if k not in reads.get(i, ())] or list(covers)
        together = sum(before[k].cost for k in own)
        for k in own:
            share = before[k].cost / together if together else 1 / len(own)
            if before[k].name in found:
                cost, so_far = found[before[k].name]
                found[before[k].name] = cost, so_far + share * node.cost
    return found
