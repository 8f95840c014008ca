"""The graphs of a report with positions, as plain data that the page's script draws.

Regions are boxes. Each is laid out by itself and then takes part, as one node, in the layout of the whole; regions are
convex, so the graph of regions has no cycle.
"""

from __future__ import annotations

import json
import math
from typing import Any

from eqsat import units
from eqsat.report.graph_layout import DrawnEdge, GraphDrawing, Point, layered
from eqsat.report.graphs import Graph, GraphComparison, GraphNode
from eqsat.text import name_of

NODE: Point = (176.0, 40.0)
LEAF: Point = (150.0, 26.0)
PAD, HEAD = 16.0, 20.0
"""Around the nodes of a region, and for its name."""
LONGEST = 400
"""Characters of a term: one over many operators says less than its beginning."""


def script_data(comparisons: tuple[GraphComparison, ...], targets: tuple[str, ...]) -> str:
    """JSON that can be inside a ``script`` element of a page."""
    data = [_comparison(c, targets) for c in comparisons]
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # In strings only, and there the escapes mean the same; a name can then neither end the element nor begin a comment.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _comparison(comparison: GraphComparison, targets: tuple[str, ...]) -> dict[str, Any]:
    return {
        "title": name_of(comparison.body) or "main graph",
        "before": _graph(comparison.before, targets),
        "after": _graph(comparison.after, targets),
        "covers": comparison.covers,
        "rules": {name_of(r.name): [name_of(r.place), r.numerics, _lines(r.text)] for r in comparison.rules},
    }


def _lines(text: str) -> str:
    return "\n".join(name_of(line) for line in text.split("\n"))


def _graph(graph: Graph, targets: tuple[str, ...]) -> dict[str, Any]:
    placed, boxes = place(graph)
    number = {name: i for i, name in enumerate(targets)}
    return {
        "width": round(placed.width),
        "height": round(placed.height),
        "nodes": [
            _node(node, number, size, centre)
            for node, size, centre in zip(graph.nodes, sizes_of(graph), placed.centres, strict=True)
        ],
        "edges": [
            [a, b, *(round(v) for point in placed.routes.get((a, b), ()) for v in point)] for a, b in graph.edges
        ],
        "regions": [
            [name_of(region.name), number.get(region.target, 0), *map(round, box), len(region.nodes)]
            for region, box in zip(graph.regions, boxes, strict=True)
        ],
    }


def _node(node: GraphNode, number: dict[str, int], size: Point, centre: Point) -> list[Any]:
    """Place, then what the page shows; texts are final, so that the page has the units of the tables."""
    work = node.work
    limits = None
    if work is not None:
        roofline = work.launch + max(work.compute, work.memory)
        own = "" if math.isclose(node.cost, roofline, rel_tol=1e-3) else "its target has its own cost; by roofline "
        limits = [
            f"{work.macs:,.0f} MACs, {units.size(work.bytes)}",
            f"{own}{work.limit}: arithmetic {units.seconds(work.compute)}, memory {units.seconds(work.memory)}, "
            f"launch {units.seconds(work.launch)}",
        ]
    return [
        round(centre[0] - size[0] / 2),
        round(centre[1] - size[1] / 2),
        node.kind,
        name_of(node.op) or node.kind,
        name_of(node.name),
        number.get(node.target, 0),
        [name_of(t) for t in node.reads],
        [name_of(t) for t in node.makes],
        units.seconds(node.cost) if node.kind in ("operator", "composite") else "",
        limits,
        [name_of(o) for o in node.operators],
        [[name_of(step.rule), _term(step.before), _term(step.after)] for step in node.steps],
        [[name_of(c.name), [name_of(s) for s in c.sources]] for c in node.constants],
    ]


def _term(text: str) -> str:
    text = name_of(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def sizes_of(graph: Graph) -> list[Point]:
    """Width and height of each node."""
    return [NODE if n.kind in ("operator", "composite") else LEAF for n in graph.nodes]


def place(graph: Graph) -> tuple[GraphDrawing, list[tuple[float, float, float, float]]]:
    """The layout of a graph, and the box of each region: left, top, width and height."""
    sizes = sizes_of(graph)
    if not graph.regions:
        return layered(sizes, graph.edges), []
    region_of = {i: r for r, region in enumerate(graph.regions) for i in region.nodes}
    inner_edges: list[list[DrawnEdge]] = [[] for _ in graph.regions]
    local = {i: k for region in graph.regions for k, i in enumerate(sorted(region.nodes))}
    for a, b in graph.edges:
        if a in region_of and region_of.get(b) == region_of[a]:
            inner_edges[region_of[a]].append((local[a], local[b]))
    inside = [
        layered([sizes[i] for i in sorted(region.nodes)], inner_edges[r]) for r, region in enumerate(graph.regions)
    ]
    # The nodes of the outer graph: inputs of the model, regions in execution order, outputs.
    loose = [i for i in range(len(sizes)) if i not in region_of]
    heads, tails = ([i for i in loose if (graph.nodes[i].kind == "input") == want] for want in (True, False))
    outer = {i: k for k, i in enumerate(heads)}
    outer.update((i, len(heads) + r) for i, r in region_of.items())
    outer.update((i, len(heads) + len(inside) + k) for k, i in enumerate(tails))
    boxes = [(p.width + 2 * PAD, p.height + 2 * PAD + HEAD) for p in inside]
    across = dict.fromkeys((outer[a], outer[b]) for a, b in graph.edges if outer[a] < outer[b])
    whole = layered([*(sizes[i] for i in heads), *boxes, *(sizes[i] for i in tails)], list(across))
    corners = [
        (whole.centres[len(heads) + r][0] - w / 2, whole.centres[len(heads) + r][1] - h / 2)
        for r, (w, h) in enumerate(boxes)
    ]
    centres: list[Point] = []
    for i in range(len(sizes)):
        if i in region_of:
            (x, y), (dx, dy) = corners[region_of[i]], inside[region_of[i]].centres[local[i]]
            centres.append((x + PAD + dx, y + PAD + HEAD + dy))
        else:
            centres.append(whole.centres[outer[i]])
    routes: dict[DrawnEdge, list[Point]] = {}
    for a, b in graph.edges:
        if outer[a] == outer[b]:
            (x, y), found = corners[region_of[a]], inside[region_of[a]].routes.get((local[a], local[b]), [])
            routes[a, b] = [(x + PAD + dx, y + PAD + HEAD + dy) for dx, dy in found]
        else:
            routes[a, b] = whole.routes.get((outer[a], outer[b]), [])
    frames = [(x, y, w, h) for (x, y), (w, h) in zip(corners, boxes, strict=True)]
    return GraphDrawing(centres, routes, whole.width, whole.height), frames
