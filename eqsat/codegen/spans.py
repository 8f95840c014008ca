"""Consecutive nodes that belong together: the runs of backends and the regions that are functions."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.codegen.placed_program import Layout


@dataclass(frozen=True)
class NodeSpan:
    """Consecutive nodes, by number, and their group."""

    group: int | None
    numbers: list[int]


def pieces(layout: Layout) -> list[NodeSpan]:
    """Consecutive nodes in the same group, or in no group."""
    found: list[NodeSpan] = []
    for number, node in enumerate(layout.nodes):
        if not found or found[-1].group != node.group:
            found.append(NodeSpan(node.group, []))
        found[-1].numbers.append(number)
    return found


def spans(layout: Layout) -> dict[int, tuple[int, int]]:
    """First and last node of each group."""
    found: dict[int, tuple[int, int]] = {}
    for number, node in enumerate(layout.nodes):
        if node.group is not None:
            found[node.group] = (found.get(node.group, (number, number))[0], number)
    return found
