"""The graphs of a report as a picture: the input next to the result; a kernel and the operators that it replaces share
a colour.

For READMEs, slides and papers, where the page with its scripts cannot stand. The places are those of the page.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from eqsat import units
from eqsat.report.drawn_graphs import place, sizes_of
from eqsat.report.graph_layout import DrawnEdge, GraphDrawing, Point
from eqsat.report.graphs import Graph, GraphComparison, GraphNode
from eqsat.report.summary import Summary
from eqsat.text import name_of

GAP, HEAD, MARGIN = 48.0, 30.0, 8.0
BEYOND, LANE = 90.0, 12.0
"""Edges without a route that are longer pass at this distance from the node above them."""
TURN = 137.5
"""Degrees between the hues of two kernels: the golden angle, which keeps neighbours different for any number."""
LETTERS = 22
"""Most characters in a node."""
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1c2430; text-anchor: middle; dominant-baseline: central }
.head { font-weight: 600; font-size: 14px; text-anchor: start } .note { fill: #5b6675; text-anchor: start }
.cost { fill: #5b6675; font-size: 10px } .edge { fill: none; stroke: #8a94a6 } .region { fill: none; stroke: #8a94a6; stroke-dasharray: 5 4 }
.loose { fill: none; stroke: #8a94a6 } .host { fill: #e8ebf0; stroke: #8a94a6 } .paper { fill: #fff }
"""  # noqa: E501


def to_svg(summary: Summary) -> str:
    """The picture as text; of a model with bodies of control flow, one below the other."""
    parts: list[str] = []
    width = top = MARGIN
    for comparison in summary.graphs:
        drawn, size = _comparison(comparison, summary)
        parts.append(f'<g transform="translate({MARGIN:g} {top:g})">\n{drawn}\n</g>')
        width, top = max(width, MARGIN + size[0]), top + size[1] + GAP
    width, height = round(width + MARGIN), round(max(top - GAP, 0) + MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<title>{_text(summary.model)}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{width}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _comparison(comparison: GraphComparison, summary: Summary) -> tuple[str, Point]:
    """Both graphs side by side, and their extent."""
    hues = _hues(comparison, summary.targets[0])
    before: list[float | None] = [None] * len(comparison.before.nodes)
    for covered, hue in zip(comparison.covers, hues, strict=True):
        for i in covered:
            before[i] = hue if before[i] is None else before[i]
    name = f" of {_text(comparison.body)}" if comparison.body else ""
    costs = [sum(n.cost for n in graph.nodes) for graph in (comparison.before, comparison.after)]
    heads = [f"{side}{name}" for side in ("before", "after")]
    if not comparison.body:
        costs = [summary.before.cost, summary.after.cost]
    left, right = place(comparison.before), place(comparison.after)
    offset = max(left[0].width, 170.0) + GAP
    drawn = "\n".join(
        (
            _graph(comparison.before, *left, before, 0.0, f"{heads[0]}: {units.seconds(costs[0])}"),
            _graph(comparison.after, *right, hues, offset, f"{heads[1]}: {units.seconds(costs[1])}"),
        )
    )
    return drawn, (offset + max(right[0].width, 170.0), HEAD + max(left[0].height, right[0].height))


def _hues(comparison: GraphComparison, host: str) -> list[float | None]:
    """Of each node after: a hue for what runs on an accelerator or replaces several operators."""
    hues: list[float | None] = []
    count = 0
    for node in comparison.after.nodes:
        own = node.kind == "composite" or (node.kind == "operator" and node.target != host)
        hues.append((210 + TURN * count) % 360 if own else None)
        count += own
    return hues


def _graph(
    graph: Graph,
    placed: GraphDrawing,
    boxes: list[tuple[float, float, float, float]],
    hues: list[float | None],
    left: float,
    head: str,
) -> str:
    sizes = sizes_of(graph)
    lines = [
        f'<g transform="translate({left:g} {HEAD:g})">',
        f'<text class="head" x="0" y="{-HEAD / 2:g}">{head}</text>',
    ]
    for region, (x, y, w, h) in zip(graph.regions, boxes, strict=True):
        lines.append(f'<rect class="region" x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="8"/>')
        lines.append(f'<text class="note" x="{x + 8:.0f}" y="{y + 12:.0f}">{_text(region.target)}</text>')
    lines += (_edge(edge, placed, sizes) for edge in graph.edges)
    for node, size, centre, hue in zip(graph.nodes, sizes, placed.centres, hues, strict=True):
        lines += _node(node, size, centre, hue)
    return "\n".join([*lines, "</g>"])


def _edge(edge: DrawnEdge, placed: GraphDrawing, sizes: list[Point]) -> str:
    (ax, ay), (bx, by) = (placed.centres[i] for i in edge)
    first, last = (ax, ay + sizes[edge[0]][1] / 2), (bx, by - sizes[edge[1]][1] / 2)
    route = placed.routes.get(edge, [])
    if not route and last[1] - first[1] > BEYOND:
        beside = max(ax, bx) + max(sizes[i][0] for i in edge) / 2 + LANE
        route = [(beside, first[1] + LANE), (beside, last[1] - LANE)]
    points = [first, *route, last]
    return f'<path class="edge" d="M{" L".join(f"{x:.0f} {y:.0f}" for x, y in points)}"/>'


def _node(node: GraphNode, size: Point, centre: Point, hue: float | None) -> list[str]:
    (w, h), (x, y) = size, centre
    works = node.kind in ("operator", "composite")
    kind = 'class="host"' if works else 'class="loose"'
    if hue is not None:
        kind = f'fill="hsl({hue:.0f} 75% 88%)" stroke="hsl({hue:.0f} 60% 45%)"'
    box = f'<rect {kind} x="{x - w / 2:.0f}" y="{y - h / 2:.0f}" width="{w:.0f}" height="{h:.0f}" rx="6"/>'
    title = " + ".join(node.operators) or node.op or node.kind
    lines = [f"<g><title>{_text(f'{node.name}: {title}')}</title>{box}"]
    if works:
        lines.append(f'<text x="{x:.0f}" y="{y - 6:.0f}">{_short(node.op)}</text>')
        lines.append(f'<text class="cost" x="{x:.0f}" y="{y + 9:.0f}">{units.seconds(node.cost)}</text>')
    else:
        lines.append(f'<text x="{x:.0f}" y="{y:.0f}">{_short(node.name)}</text>')
    return [*lines, "</g>"]


def _short(text: str) -> str:
    return _text(text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…")


def _text(text: str) -> str:
    return escape(name_of(text))
