"""The page is well-formed, needs nothing from elsewhere, and takes names literally."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

from eqsat.report.html import to_html
from eqsat.report.summary import HostRow, RefusalRow, Verification

from .sample import SUMMARY, sample

VOID = {"meta", "input", "br", "hr", "link", "img"}


class Page(HTMLParser):
    """Checks the nesting of the elements and collects text and table rows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "script" in self.open:
            return
        self.texts.append(data)
        if ("td" in self.open or "th" in self.open) and self.rows:
            self.rows[-1][-1] += data


def test_well_formed_and_complete() -> None:
    page = Page(to_html(SUMMARY))
    assert page.open == []
    rows = [[cell.strip() for cell in row] for row in page.rows]
    assert ["cost", "12.0 ms", "3.00 ms"] in rows
    assert ["host operators", "1,176", "3"] in rows
    assert ["dnnl_0", "dnnl", "20", "44", "x", "conv1, y", "0 s", "0 s", "1.20 ms"] in rows
    assert ["LRN", "2", "3.00 ms", "norm<1>, norm2", "dnnl", "operator not supported by dnnl"] in rows
    assert ["ccompiler", "operator not supported by ccompiler"] in rows
    assert any(row[:5] == ["MaxPool", "1", "10.0 µs", "pool", "dnnl"] and "ceil_mode is 1" in row[5] for row in rows)
    kernel = next(row for row in rows if "dnnl.conv2d_bias_relu" in row and "conv1" in row)
    assert kernel[1:6] == ["conv1", "dnnl.conv2d_bias_relu", "dnnl_0", "Conv Relu", "100 µs"]
    assert any(row[0] == "explosive" and "held back in 3 rounds" in row[-1] for row in rows if row)
    assert not any(row[0] == "never_fired" for row in rows if row)


def test_without_accelerators_nobody_asks_why() -> None:
    assert "Left on the host" in to_html(SUMMARY)
    assert "Left on the host" not in to_html(sample(targets=("cpu",), regions=(), kernels=()))


def test_names_are_escaped() -> None:
    html = to_html(sample(model="<script>alert(1)</script>"))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_nothing_is_loaded_from_elsewhere() -> None:
    html = to_html(SUMMARY)
    assert not re.search(r"https?://|@import|url\(", html)
    assert not {"src", "href"} & {name for name, _ in Page(html).attributes}


def test_each_target_has_its_colour() -> None:
    html = to_html(SUMMARY)
    assert len(set(re.findall(r"\.t\d \{ background: (.*?);", html))) == 2


def test_says_whether_it_was_verified() -> None:
    assert "PASSED" in "".join(Page(to_html(SUMMARY)).texts)
    assert "was not executed against the input" in "".join(Page(to_html(sample(verification=None))).texts)
    off = Verification(None, 0, 0.0, 0.0, 0, done=False, skipped=("switched off",))
    assert "not executed against the input model: switched off." in "".join(
        Page(to_html(sample(verification=off))).texts
    )
    some = Verification(True, 2, 0.0, 0.0, 3, samples=("zeros",), pieces=5, executed=4, skipped=("strings",))
    text = "".join(Page(to_html(sample(verification=some))).texts)
    assert "and 4 of 5 rewritten pieces" in text
    assert "Samples: zeros." in text
    assert "Not verified: strings." in text
    there = tuple(f"{kind} at the borders of rewritten pieces" for kind in ("zeros", "tiny numbers"))
    some = dataclasses.replace(some, samples=("normal numbers", *there))
    text = "".join(Page(to_html(sample(verification=some))).texts)
    assert "Samples: normal numbers; at the borders of rewritten pieces: zeros, tiny numbers." in text


def test_empty_summary_and_determinism() -> None:
    empty = sample(kernels=(), regions=(), host_operators=(), rules=(), seconds={})
    assert Page(to_html(empty)).open == []
    assert "Nothing." in to_html(empty)
    assert to_html(SUMMARY) == to_html(sample())


def test_regions_fill_their_strip_however_short_they_are() -> None:
    for scale in (1.0, 1e-6):
        regions = tuple(dataclasses.replace(r, cost=r.cost * scale) for r in SUMMARY.regions)
        factors = [float(f) for f in re.findall(r"flex-grow: ([0-9.]+)", to_html(sample(regions=regions)))]
        assert factors == [0.6, 1.0, 0.0005]
    free = tuple(dataclasses.replace(r, cost=0.0) for r in SUMMARY.regions)
    assert re.findall(r"flex-grow: ([0-9.]+)", to_html(sample(regions=free))) == ["1"] * 3


def test_the_bar_of_the_longest_kernel_is_full() -> None:
    assert re.findall(r'<td class="gauge"><span class="bar" style="width: ([0-9.]+)%', to_html(SUMMARY)) == [
        "5.00",
        "100.00",
    ]


def test_causes_on_the_host_are_grouped_with_both_costs() -> None:
    stay = RefusalRow("dnnl", "cheaper on the host", 3e-6)
    rows = (
        *(HostRow(f"r{i}", "Reshape", 1e-6, (stay,)) for i in range(3)),
        HostRow("t", "Transpose", 2e-6, (stay,)),
        HostRow("c", "Conv", 5e-6, (RefusalRow("dnnl", "group == 1 is required"),)),
    )
    found = [[cell.strip() for cell in row] for row in Page(to_html(sample(host_operators=rows))).rows]
    assert ["dnnl", "4", "cheaper on the host", "3 Reshape, 1 Transpose", "5.00 µs", "12.0 µs"] in found
    assert ["dnnl", "1", "group == 1 is required", "1 Conv", "5.00 µs", "cannot run there"] in found
