"""Places for the nodes of a directed acyclic graph: layers from top to bottom, few crossings, straight edges.

Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", IEEE Trans. SMC 11(2),
1981. Each step is linear but for the sorting of layers, so that graphs of thousands of nodes take a second: a network
is long and narrow. Edges that pass many layers are not routed around nodes. networkx can put nodes on given layers, but
does not order them within a layer. Graphviz does, but users would have to install that program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP_X, GAP_Y = 26.0, 34.0
LANE = 12.0
"""Width of an edge that passes a layer."""
LONGEST_ROUTE = 40
"""Layers through which an edge is routed."""
SWEEPS = 6

DrawnEdge = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """A drawing: the centre of each node, the points between its ends of each edge, the extent from (0, 0)."""

    centres: list[Point]
    routes: dict[DrawnEdge, list[Point]]
    width: float
    height: float


def layered(sizes: Sequence[Point], edges: Sequence[DrawnEdge]) -> GraphDrawing:
    """Places nodes of some widths and heights.

    Args:
        sizes: Per node, in a topological order.
        edges: From a node to a later one.
    """
    if not sizes:
        return GraphDrawing([], {}, 0.0, 0.0)
    layer = _layers(len(sizes), edges)
    count = max(layer) + 1
    widths = [w for w, _ in sizes]
    layers = list(layer)
    links: list[DrawnEdge] = []
    chains: dict[DrawnEdge, list[int]] = {}
    room = 6 * len(sizes) + 1000
    for a, b in edges:
        between = layer[b] - layer[a] - 1
        if between > min(LONGEST_ROUTE, room):
            continue
        room -= between
        chain = list(range(len(widths), len(widths) + between))
        widths += [LANE] * between
        layers += range(layer[a] + 1, layer[b])
        chains[a, b] = chain
        links += zip([a, *chain], [*chain, b], strict=True)
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for a, b in links:
        above[b].append(a)
        below[a].append(b)
    rows: list[list[int]] = [[] for _ in range(count)]
    for node in _depth_first(len(widths), above, below):
        rows[layers[node]].append(node)
    _untangle(rows, above, below)
    x = _columns(rows, widths, above, below, first_lane=len(sizes))
    left = min(x[i] - widths[i] / 2 for i in range(len(widths)))
    right = max(x[i] + widths[i] / 2 for i in range(len(widths)))
    middle, y = [], 0.0
    for row in rows:
        high = max((sizes[i][1] for i in row if i < len(sizes)), default=0.0)
        middle.append((y, y + high / 2, y + high))
        y += high + GAP_Y
    routes = {
        edge: [(x[i] - left, middle[layers[i]][k]) for i in chain for k in (0, 2)] for edge, chain in chains.items()
    }
    centres = [(x[i] - left, middle[layer[i]][1]) for i in range(len(sizes))]
    return GraphDrawing(centres, routes, right - left, max(0.0, y - GAP_Y))


def _layers(count: int, edges: Sequence[DrawnEdge]) -> list[int]:
    """Longest path from the top; nodes without operands are right above their first reader."""
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    layer = [0] * count
    for node in range(count):
        layer[node] = max((layer[a] + 1 for a in before[node]), default=0)
    for node in range(count):
        if not before[node] and after[node]:
            layer[node] = min(layer[b] for b in after[node]) - 1
    return layer


def _depth_first(count: int, above: list[list[int]], below: list[list[int]]) -> list[int]:
    """All nodes; branches stay together, so that few edges cross from the start."""
    seen, order = [False] * count, []
    for root in (i for i in range(count) if not above[i]):
        stack = [root]
        while stack:
            node = stack.pop()
            if not seen[node]:
                seen[node] = True
                order.append(node)
                stack += reversed(below[node])
    return order


def _untangle(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sorts each row by the mean place of its neighbours in the row before, downwards and upwards in turn."""
    place = {node: float(k) for row in rows for k, node in enumerate(row)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            if len(row) > 1:
                wanted = {i: _mean([place[j] for j in near[i]], place[i]) for i in row}
                row.sort(key=lambda i: wanted[i])
                place.update((node, float(k)) for k, node in enumerate(row))


def _columns(
    rows: list[list[int]], widths: list[float], above: list[list[int]], below: list[list[int]], *, first_lane: int
) -> list[float]:
    """Centres: as near to the mean of the neighbours as the order and the widths of a row allow."""
    x = [0.0] * len(widths)
    for row in rows:
        at = 0.0
        for node in row:
            x[node] = at + widths[node] / 2
            at += widths[node] + GAP_X
        for node in row:
            x[node] -= at / 2
    for sweep in range(SWEEPS + 2):
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            wanted = [_mean([x[j] for j in near[i]], x[i]) for i in row]
            # An edge that bends in every layer is harder to follow than a node that is off its axis.
            weights = [4.0 if i >= first_lane else 1.0 for i in row]
            apart = [0.0]
            for a, b in pairwise(row):
                apart.append(apart[-1] + (widths[a] + widths[b]) / 2 + GAP_X)
            placed = _isotonic([w - o for w, o in zip(wanted, apart, strict=True)], weights)
            for node, value, offset in zip(row, placed, apart, strict=True):
                x[node] = value + offset
    return x


def _isotonic(values: list[float], weights: list[float]) -> list[float]:
    """The nearest values that do not decrease, by the weighted sum of squares (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        total, mass, count = value * weight, weight, 1
        while blocks and blocks[-1][0] * mass > total * blocks[-1][1]:
            other = blocks.pop()
            total, mass, count = total + other[0], mass + other[1], count + other[2]
        blocks.append((total, mass, count))
    return [total / mass for total, mass, count in blocks for _ in range(count)]


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
