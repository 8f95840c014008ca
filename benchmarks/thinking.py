"""The pictures of docs/how-it-thinks.md, drawn from what its own programs compute: the two cannot disagree.

python -m benchmarks.thinking
"""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from eqsat import units
from eqsat.extract.from_egraph import MappedProblem
from eqsat.extract.program_cost import program_cost
from eqsat.report.summary import Summary
from eqsat.report.svg import to_svg
from eqsat.result import Result
from eqsat.search import Search
from tests.extract.oracle import programs

PAGE = Path(__file__).parent.parent / "docs" / "how-it-thinks.md"
PICTURES = PAGE.parent / "pictures" / "thinking"
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1c2430; text-anchor: middle; dominant-baseline: central }
.note { fill: #5b6675; font-size: 10px } .left { text-anchor: start } .edge { fill: none; stroke: #8a94a6 }
.class { fill: #e8ebf0; stroke: #c3cad5 } .enode { stroke: #8a94a6 } .chosen { stroke: #1c2430; stroke-width: 2.5 }
"""
INPUT, ADDED, HOST, CHIP, MOVED = "#fff", "#cfe2f8", "#aab3c0", "#4a86c8", "#e0913a"
BOX, HIGH, PAD, ROW, LABEL = 150.0, 52.0, 8.0, 94.0, 92.0


class Found(NamedTuple):
    """What the page computes: its result, and the search that its result is from."""

    result: Result
    search: Search


class Piece(NamedTuple):
    """A part of a bar of time: what it is called, its colour, and seconds."""

    name: str
    colour: str
    seconds: float


def followed() -> Found:
    """The programs of the page, executed in an empty folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with TemporaryDirectory() as folder, chdir(folder):
        for info, text in re.findall(r"^```(.+?)\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            if info == "python":
                exec(text, names)
            else:
                Path(info.partition("file=")[2]).write_text(text, "utf-8")
        search = Search.of(names["model"], ["kite.target"])
    return Found(names["result"], search)


def drawn() -> dict[str, str]:
    """The pictures by the names of their files."""
    found = followed()
    return {
        "egraph.svg": egraph(found),
        "bill.svg": bill(found.result.summary),
        "programs.svg": strip(found),
        "result.svg": to_svg(found.result.summary),
    }


# ---- the e-graph --------------------------------------------------------------------------------


def egraph(found: Found) -> str:
    """Classes from the input to the output, with their e-nodes side by side, and lines to the classes they read."""
    formulation, snapshot = found.search.formulation, found.search.snapshot
    rows = _rows(formulation)
    columns = _columns(formulation, rows)
    boxes: list[str] = []
    edges: list[str] = []
    right: dict[int, float] = {}
    for c, row in rows.items():
        members = [n for n, klass in enumerate(formulation.problem.node_class) if klass == c]
        top, last = row * ROW, max(columns[n] for n in members)
        right[c] = LABEL + (last + 1) * (BOX + PAD) + PAD
        kind = snapshot.types[formulation.eclass[c]]
        name = next((v.name for v, k in snapshot.refs.items() if k == formulation.eclass[c]), "")
        boxes.append(_box("class", LABEL, top, right[c] - LABEL, HIGH + 2 * PAD, "#e8ebf0"))
        boxes.append(_text(LABEL - 10, top + HIGH / 2 + PAD - 8, name or "", anchor="end"))
        boxes.append(_text(LABEL - 10, top + HIGH / 2 + PAD + 8, str(kind), "note", anchor="end"))
        for n in members:
            boxes += _enode(found, n, _left(columns[n]), top + PAD)
            for child in formulation.problem.children[n]:
                middle = _left(columns[n]) + BOX / 2
                if middle < right[child]:
                    edges.append(f"M{middle:g} {top + PAD:g} V{rows[child] * ROW + HIGH + 2 * PAD:g}")
                else:
                    level = rows[child] * ROW + PAD + HIGH / 2 + (columns[n] - 2) * 8
                    edges.append(f"M{middle:g} {top + PAD:g} V{level:g} H{right[child]:g}")
    lines = [f'<path class="edge" d="{edge}"/>' for edge in edges]
    return _svg(max(right.values()), len(rows) * ROW - (ROW - HIGH - 2 * PAD), [*boxes, *lines])


def _left(column: int) -> float:
    return LABEL + PAD + column * (BOX + PAD)


def _rows(formulation: MappedProblem) -> dict[int, int]:
    """Classes of run-time values by their distance from the input, along the input's own operators."""
    problem = formulation.problem
    depth: dict[int, int] = {}

    def of(c: int) -> int:
        if c not in depth:
            children = {k for n, klass in enumerate(problem.node_class) if klass == c for k in problem.children[n]}
            depth[c] = 1 + max(map(of, sorted(children)), default=-1)
        return depth[c]

    for c in range(problem.classes):
        of(c)
    return dict(sorted(depth.items(), key=lambda item: item[1]))


def _columns(formulation: MappedProblem, rows: dict[int, int]) -> dict[int, int]:
    """The place of each e-node in its row: beyond all rows that its line passes."""
    problem = formulation.problem
    width = dict.fromkeys(rows.values(), 0)
    places: dict[int, int] = {}
    for c, row in rows.items():
        for n in (n for n, klass in enumerate(problem.node_class) if klass == c):
            reads = min((rows[child] for child in problem.children[n]), default=row)
            places[n] = max(width[r] for r in range(min(reads + 1, row), row + 1))
            width[row] = places[n] + 1
    return places


def _enode(found: Found, n: int, x: float, y: float) -> list[str]:
    formulation, snapshot = found.search.formulation, found.search.snapshot
    node = snapshot.nodes[formulation.node[n]]
    chosen = {choice.node for choice in found.result.choices.values()}
    targets = [target.name for target in formulation.targets]
    costs = formulation.problem.cost[n]
    priced = ", ".join(
        f"{t} {units.seconds(c)}" for t, c in zip(targets, costs.tolist(), strict=True) if c < float("inf")
    )
    name = "input x" if node.kind == "input" else node.op.name if node.kind == "op" else str(node.op)
    made = snapshot.rules[node.rule] if node.rule else ""
    kind = "enode chosen" if n in chosen else "enode"
    lines = [_box(kind, x, y, BOX, HIGH, ADDED if made else INPUT), _text(x + BOX / 2, y + 12, name)]
    if node.kind != "input":
        lines.append(_text(x + BOX / 2, y + 27, priced, "note"))
    if made and node.kind == "op":
        lines.append(_text(x + BOX / 2, y + 41, f"by {made}", "note"))
    elif made:
        lines.append(_text(x + BOX / 2, y + 41, "a composite", "note"))
    return lines


# ---- costs ------------------------------------------------------------------------------------------


def pieces(summary: Summary) -> tuple[list[Piece], list[Piece]]:
    """What the input and the result pay for, in order of execution: copies in before a region, copies out behind it."""
    (graphs,) = summary.graphs
    before = [Piece(node.op, HOST, node.cost) for node in graphs.before.nodes if node.cost]
    after: list[Piece] = []
    for region in summary.regions:
        if region.dispatch:
            after.append(Piece("dispatch", MOVED, region.dispatch))
        if region.copies:
            after.append(Piece("copies", MOVED, region.copies))
        for kernel in (k for k in summary.kernels if k.region == region.name):
            after.append(Piece(kernel.op, CHIP if region.dispatch else HOST, kernel.cost))
    return before, after


def bill(summary: Summary) -> str:
    """Two bars on one scale of time, and the pieces of each as a list."""
    wide = 560.0
    scale = wide / max(summary.before.cost, summary.after.cost)
    launch = {(k.name, k.op): k.work.launch for k in summary.kernels if k.work is not None}
    starts = {op: seconds for (_, op), seconds in launch.items()}
    lines: list[str] = []
    y = 0.0
    for side, parts in zip(("before", "after"), pieces(summary), strict=True):
        total = sum(part.seconds for part in parts)
        lines.append(_text(0, y + 9, f"{side}: {units.seconds(total)}", "left"))
        x, y = 0.0, y + 22
        for i, part in enumerate(parts):
            w = part.seconds * scale
            lines.append(f'<rect x="{x:.1f}" y="{y:g}" width="{w - 1:.1f}" height="22" fill="{part.colour}"/>')
            if w > 22:
                lines.append(f'<text x="{x + w / 2:.1f}" y="{y + 11:g}" style="fill: #fff">{i + 1}</text>')
            x += w
        y += 36
        for i, part in enumerate(parts):
            own = side == "after" and part.name in starts
            more = f", of which {units.seconds(starts[part.name])} launch" if own else ""
            lines.append(_text(12, y, f"{i + 1}  {part.name}: {units.seconds(part.seconds)}{more}", "left"))
            y += 17
        y += 14
    return _svg(wide, y - 22, lines)


def strip(found: Found) -> str:
    """A dot for each program of the e-graph, stacked where costs are close, with the bound and the input's own."""
    problem, summary = found.search.formulation.problem, found.result.summary
    costs = sorted(program_cost(problem, choices) for choices in programs(problem))
    wide, low, left = 600.0, 96.0, 20.0
    scale = (wide - 2 * left) / costs[-1]
    stack: dict[int, int] = {}
    lines = [f'<path class="edge" d="M{left:g} {low:g} H{wide - left:g}"/>']
    for cost in costs:
        column = round(cost * scale / 6)
        y = low - 6 - 6 * stack.get(column, 0)
        stack[column] = stack.get(column, 0) + 1
        lines.append(f'<circle cx="{left + column * 6:g}" cy="{y:g}" r="2.6" fill="{CHIP}"/>')
    marks = (("bound, and the result", summary.bound, 14), ("the input on the host", summary.before.cost, 30))
    for name, cost, down in marks:
        x = left + round(cost * scale / 6) * 6
        lines.append(f'<path class="edge" d="M{x:g} {low:g} v{down - 8:g}"/>')
        lines.append(_text(x, low + down, f"{name}: {units.seconds(cost)}", "note"))
    lines.append(_text(left, low + 14, "0 s", "note"))
    lines.append(_text(wide - left, low + 14, units.seconds(costs[-1]), "note"))
    high = max(stack.values()) * 6 + 12
    return _svg(wide, low + 40, lines, top=min(0.0, low - high))


# ---- shapes -----------------------------------------------------------------------------------------


def _box(kind: str, x: float, y: float, w: float, h: float, fill: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{fill}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    # A style, because the sheet's rule wins over an attribute.
    style = f' style="text-anchor: {anchor}"' if anchor else ""
    return f'<text{css}{style} x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _svg(width: float, height: float, lines: list[str], top: float = 0.0) -> str:
    box = (-8.0, top - 8, width + 16, height - top + 16)
    view = " ".join(f"{v:g}" for v in box)
    paper = f'<rect x="{box[0]:g}" y="{box[1]:g}" width="{box[2]:g}" height="{box[3]:g}" fill="#fff"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" width="{box[2]:g}" height="{box[3]:g}">\n'
        f"<style>{STYLE}</style>\n{paper}\n" + "\n".join(lines) + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, text in drawn().items():
        (PICTURES / name).write_text(text, "utf-8")
        print(name)
