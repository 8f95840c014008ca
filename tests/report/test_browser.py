"""The report in Chromium: it opens without errors, and pointer, keyboard and search do what docs/report.md says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import eqsat
from eqsat.explain.origin import DerivationStep, FoldedConstant
from eqsat.report.html import to_html
from eqsat.report.summary import Summary
from tests.hostile_names import INSTRUCTIONS
from tests.quantization.networks import residual, samples
from tests.report.browser import ask, needs_browser
from tests.report.large import large
from tests.report.sample import SUMMARY

pytestmark = [needs_browser, pytest.mark.slow]

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[64, 64] x) => (float[64, 64] y) { a = Relu (x) b = Neg (a) c = Neg (b) d = Exp (c) y = Add (d, a) }"""
HELPERS = """
const before = document.querySelector("canvas[data-side=before]");
const after = document.querySelector("canvas[data-side=after]");
const detail = document.querySelector(".detail"), input = document.querySelector("#graph input");
const press = (on, key, more = {}) => on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...more }));
const pointer = (on, type, x, y, id = 1) => {
  const box = on.getBoundingClientRect();
  const at = { clientX: box.left + x, clientY: box.top + y, pointerId: id, bubbles: true };
  on.setPointerCapture = () => {}; on.dispatchEvent(new PointerEvent(type, at));
};
const click = (on, x, y) => { pointer(on, "pointerdown", x, y); pointer(on, "pointerup", x, y); };
const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
const picture = (on) => on.toDataURL();
"""


@pytest.fixture(scope="module")
def summary() -> Summary:
    return eqsat.optimize(MODEL).summary


def test_a_click_shows_what_a_kernel_stands_for(summary: Summary, tmp_path: Path) -> None:
    script = """
    await drawn();
    const empty = picture(before), box = after.getBoundingClientRect(), found = [];
    for (let y = 8; y < box.height; y += 12) for (let x = 8; x < box.width; x += 40) {
      click(after, x, y);
      const title = detail.querySelector("h3")?.textContent;
      if (!title || found.some((f) => f[0] === title)) continue;
      await drawn();
      found.push([title, [...detail.querySelectorAll(".link")].map((b) => b.textContent), picture(before) !== empty]);
    }
    return found;"""
    found = {title: (links, marked) for title, links, marked in ask(to_html(summary), HELPERS + script, tmp_path)}
    # The second negation makes the value of `a` again.
    assert found["Relu a"] == (["Relu a", "Neg b", "Neg c"], True)
    assert found["Exp d"] == (["Exp d"], True)
    assert found["Add y"] == (["Add y"], True)
    assert "Neg c" not in found


def test_a_kernel_shows_the_chain_of_rules_that_led_to_it(summary: Summary, tmp_path: Path) -> None:
    script = """
    input.value = "a"; input.dispatchEvent(new Event("input")); after.focus();
    press(after, "ArrowDown"); press(after, "ArrowDown");
    const chain = () => [...detail.querySelectorAll("details")].map((d) => [d.open, d.textContent]);
    const told = [detail.querySelector("h3").textContent, chain()];
    press(after, "Enter");
    return [...told, detail.querySelector("h3").textContent, chain()];"""
    title, chain, twin, same = ask(to_html(summary), HELPERS + script, tmp_path)
    assert (title, twin) == ("Relu a", "Relu a")
    (opened, text), *_ = chain
    assert opened
    assert text.startswith("1. ")
    assert "Neg(Neg(" in text
    assert "⇒" in text
    assert same == chain


def test_keys_follow_edges_and_change_sides(summary: Summary, tmp_path: Path) -> None:
    script = """
    after.focus(); const told = [];
    for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "Enter", "Escape"]) {
      press(document.activeElement, key);
      told.push([document.activeElement.dataset.side, detail.querySelector("h3")?.textContent ?? ""]);
    }
    return [told, document.querySelector(".spoken").textContent];"""
    told, spoken = ask(to_html(summary), HELPERS + script, tmp_path)
    assert told[0] == ["after", "input x"]
    assert told[1] == ["after", "Relu a"]
    assert told[3] == ["after", "Relu a"]
    assert told[4] == ["before", "Relu a"]
    assert told[5] == ["before", ""]
    assert spoken.startswith("Relu, a, ")


def test_search_counts_both_sides_and_goes_through_the_hits(summary: Summary, tmp_path: Path) -> None:
    script = """
    input.value = "NEG"; input.dispatchEvent(new Event("input"));
    const count = document.querySelector(".found").textContent;
    press(input, "Enter"); const first = detail.querySelector("h3").textContent;
    press(input, "Enter"); const second = detail.querySelector("h3").textContent;
    press(input, "Enter", { shiftKey: true });
    return [count, first, second, detail.querySelector("h3").textContent];"""
    # The rule that removed both has the word in its name.
    expected = ["2 before, 1 after", "Neg b", "Neg c", "Neg b"]
    assert ask(to_html(summary), HELPERS + script, tmp_path) == expected


def test_every_way_to_zoom_and_move_changes_the_picture(summary: Summary, tmp_path: Path) -> None:
    script = """
    const touch = (...steps) => steps.forEach(([type, x, y, id]) => pointer(before, `pointer${type}`, x, y, id));
    const turn = { deltaY: -300, clientX: 200, clientY: 400, cancelable: true };
    const ways = {
      wheel: () => before.dispatchEvent(new WheelEvent("wheel", turn)),
      button: () => document.querySelector("button[data-do=out][data-side=before]").click(),
      key: () => press(before, "+"),
      drag: () => touch(["down", 9, 9], ["move", 60, 60], ["up", 60, 60]),
      pinch: () => touch(
        ["down", 100, 100, 1], ["down", 140, 100, 2], ["move", 240, 100, 2], ["up", 100, 100, 1], ["up", 240, 100, 2]
      ),
      pan: () => press(before, "ArrowDown", { shiftKey: true }),
      start: () => press(before, "0"), whole: () => press(before, "f"),
    };
    const changed = {};
    for (const [name, act] of Object.entries(ways)) {
      const old = picture(before); act(); await drawn(); changed[name] = picture(before) !== old;
    }
    return changed;"""
    changed = ask(to_html(summary), HELPERS + script, tmp_path)
    assert all(changed[name] for name in ("wheel", "button", "key", "drag", "pinch", "pan", "start")), changed


def test_hover_shows_types_and_limits(summary: Summary, tmp_path: Path) -> None:
    script = """
    const tip = document.querySelector(".tip"), box = before.getBoundingClientRect(), found = new Set();
    for (let y = 8; y < box.height; y += 12) for (let x = 8; x < box.width; x += 40) {
      pointer(before, "pointermove", x, y); if (!tip.hidden) found.add(tip.textContent);
    }
    return [...found];"""
    found = ask(to_html(summary), HELPERS + script, tmp_path)
    text = next(t for t in found if t.startswith("Exp"))
    assert "c: float[64, 64]" in text
    assert "32.8 kB" in text
    assert "limited by" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_are_drawn_in_their_colours(summary: Summary, scheme: str, tmp_path: Path) -> None:
    script = "const p = before.getContext('2d').getImageData(2, 2, 1, 1).data; return [...p];"
    more = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    pixel = ask(to_html(summary), HELPERS + "await drawn();" + script, tmp_path, *more)
    assert (pixel[0] > 128) == (scheme == "light")


def test_hostile_names_do_nothing(tmp_path: Path) -> None:
    model = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Relu (x) }'
    summary = eqsat.optimize(model).summary
    (graphs,) = summary.graphs
    node = graphs.after.nodes[1]
    spoiled = tuple(
        dataclasses.replace(
            node,
            name=n,
            op=n,
            reads=(n,),
            steps=(DerivationStep(n, n, "exact", n, n),),
            constants=(FoldedConstant(n, (n,)),),
        )
        for n in INSTRUCTIONS
    )
    graph = dataclasses.replace(graphs.after, nodes=spoiled, edges=(), regions=())
    pair = dataclasses.replace(graphs, before=graph, after=graph, covers=tuple((i,) for i in range(len(spoiled))))
    script = """
    after.focus(); let shown = 0;
    input.value = "a"; input.dispatchEvent(new Event("input"));
    for (let i = 0; i < 100; i++) { press(input, "Enter"); shown += detail.querySelector("h3") !== null; }
    return [shown, document.querySelectorAll("#graph img, #graph script, #graph [onmouseover]").length];"""
    html = to_html(dataclasses.replace(summary, model=INSTRUCTIONS[20], graphs=(pair,)))
    assert ask(html, HELPERS + script, tmp_path) == [100, 0]


def test_every_section_of_a_quantization_opens_without_errors(tmp_path: Path) -> None:
    model = residual()
    summary = eqsat.quantize(model, samples(model, 2), ["dnnl"], sweep=3).summary
    script = """
    const heads = [...document.querySelectorAll("h2")].map((h) => h.textContent);
    const charts = [...document.querySelectorAll("svg.chart")].filter((c) => c.getBoundingClientRect().height > 100);
    const filter = document.querySelector("[data-filter=layers]"), body = document.getElementById("layers").tBodies[0];
    filter.value = "Relu"; filter.dispatchEvent(new Event("input"));
    const shown = [...body.rows].filter((r) => !r.hidden).length;
    document.querySelector("#layers th[data-sort]:last-child").click();
    const values = [...body.rows].map((r) => r.cells[6].dataset.value);
    return [heads, charts.length, shown < body.rows.length && shown > 0, values];"""
    heads, charts, filtered, ordered = ask(to_html(summary), script, tmp_path)
    for head in (
        "Quantization",
        "Cost against accuracy",
        "Layers: cost against error",
        "Memory over time",
        "Made from",
    ):
        assert head in heads
    assert charts >= 4
    assert filtered
    assert [float(v) for v in ordered] == sorted(float(v) for v in ordered)


def test_pages_without_graphs_have_no_errors(tmp_path: Path) -> None:
    assert ask(to_html(SUMMARY), "return document.querySelectorAll('table').length;", tmp_path) > 3


def test_a_large_report_opens_and_answers(tmp_path: Path) -> None:
    script = """
    input.value = "t4999"; input.dispatchEvent(new Event("input")); press(input, "Enter"); await drawn();
    return [document.querySelector(".found").textContent, detail.querySelector("h3").textContent];"""
    assert ask(to_html(large(5000)), HELPERS + script, tmp_path) == ["1 of 2, before", "Add block99/t4999"]


def test_in_print_tables_are_whole_and_tools_are_gone(summary: Summary, tmp_path: Path) -> None:
    rows = tuple(dataclasses.replace(row, name=f"{row.name}{i}") for i in range(40) for row in summary.kernels)
    page = to_html(dataclasses.replace(summary, kernels=rows)).replace("@media print", "@media screen")
    script = """
    const cut = [...document.querySelectorAll(".scroll")].filter((t) => t.scrollHeight > t.clientHeight + 1).length;
    const tools = [...document.querySelectorAll("#graph input, .bar-of-tools button, [data-filter]")];
    return [cut, tools.filter((t) => t.offsetParent).length, tools.length > 4];"""
    assert ask(page, script, tmp_path) == [0, 0, True]


# What the pictures of a graph on paper contain: the nodes of each, seen while they are drawn, and those that are cut.
ON_PAPER = """
const all = new Map(), cut = [];
const draw = View.prototype.drawNode;
View.prototype.drawNode = function (i, n, s) {
  if (this.wide === SHEET[0] && !document.contains(this.canvas)) {
    const top = n[Y] * s + this.y, bottom = (n[Y] + this.size[i][1]) * s + this.y;
    if (top >= 0 && bottom <= this.high) all.set(`${n[OP]} ${n[NAME]} ${n[KIND]}`, this.canvas);
    else if (bottom > 0 && top < this.high) cut.push(n[NAME]);
  }
  draw.call(this, i, n, s);
};
dispatchEvent(new Event("beforeprint"));
const sheets = document.querySelectorAll(".paper canvas").length, said = document.querySelector(".paper").textContent;
dispatchEvent(new Event("afterprint"));
const left = document.querySelectorAll(".paper canvas").length;
const kept = document.querySelectorAll("canvas.unprinted").length;
"""


def test_the_whole_graph_is_on_paper(tmp_path: Path) -> None:
    told = large(150)
    nodes = sum(len(side.nodes) for side in (told.graphs[0].before, told.graphs[0].after))
    script = "return [all.size, cut, sheets, left, kept, said];"
    found, cut, sheets, left, kept, said = ask(to_html(told), ON_PAPER + script, tmp_path)
    # Both sides of this sample have the same names.
    assert found == nodes // 2 and cut == []
    assert sheets > 6
    assert (left, kept, said) == (0, 0, "")


def test_a_graph_that_is_too_long_for_paper_says_so(tmp_path: Path) -> None:
    script = "return [all.size, sheets, left, kept, said];"
    found = ask(to_html(large(5000)), ON_PAPER + script, tmp_path)
    assert found == [0, 0, 0, 0, "The graph is too long to be printed. This is what was on the screen."]


def test_narrow_windows_do_not_scroll_sideways(summary: Summary, tmp_path: Path) -> None:
    script = "return [document.documentElement.scrollWidth, innerWidth];"
    wide, window = ask(to_html(summary), script, tmp_path, size="500,900")
    assert wide <= window


def test_long_tables_come_when_they_are_asked_for(tmp_path: Path) -> None:
    script = """
    const rows = () => [...document.getElementById("kernels").tBodies[0].rows].filter((r) => !r.hidden).length;
    const short = rows(), filter = document.querySelector("[data-filter=kernels]");
    filter.value = "t29"; filter.dispatchEvent(new Event("input")); const some = rows();
    filter.value = ""; filter.dispatchEvent(new Event("input"));
    return [short, some, rows(), document.querySelectorAll("[data-all]").length];"""
    assert ask(to_html(large(300)), script, tmp_path) == [200, 11, 300, 0]
