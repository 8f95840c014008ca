"""The terminal report says everything of the summary, aligned, and takes names literally."""

from __future__ import annotations

import html
import re

import eqsat
from eqsat.report.html import to_html
from eqsat.report.summary import HostRow, RegionRow, Verification, group_host_operators
from eqsat.report.table import as_text

from .sample import NO_CEIL, NO_LRN, sample


def row(text: str, first: str) -> list[str]:
    """The cells of the line that starts with ``first``."""
    line = next(line for line in text.splitlines() if line.strip().startswith(first))
    return re.split(r"\s{2,}", line.strip())


def test_before_and_after() -> None:
    text = as_text(sample())
    assert text.startswith("net[bold] for dnnl + ccompiler + cpu\n")
    assert row(text, "cost ") == ["cost", "12.0 ms", "3.00 ms", "4.00x"]
    assert row(text, "operators") == ["operators", "1,176", "124"]
    assert row(text, "composites") == ["composites", "0", "54"]
    assert row(text, "regions") == ["regions", "0", "2"]
    assert row(text, "host operators") == ["host operators", "1,176", "3"]
    assert row(text, "bound") == ["bound", "2.99 ms, gap 0.33 % (time limit)"]
    assert "12,345 e-nodes in 3,456 classes after 6 iterations (node limit)" in text
    assert "growth    explosive (my.rules:3) added 8,765 e-nodes, 432 of them for Add 'sum<1>'" in text
    assert "load 0.11, saturate 0.52, extract 0.30; together 0.93 of CPU time" in text


def test_lines_are_whole_however_narrow_the_tables() -> None:
    assert "load 0.11, saturate 0.52, extract 0.30; together 0.93 of CPU time\n" in as_text(sample(), width=50)


def test_regions_and_reasons() -> None:
    text = as_text(sample())
    assert row(text, "dnnl_0") == ["dnnl_0", "dnnl", "20", "44", "1", "2", "1.20 ms"]
    assert row(text, "LRN") == ["LRN", "2", "3.00 ms", "norm<1>, norm2", "operator not supported by dnnl"]
    assert "operator not supported by ccompiler" in text
    assert "ccompiler: cheaper on the host" in text
    assert row(text, "MaxPool")[-1] == "dnnl runs MaxPool only where ceil_mode == 0: ceil_mode is 1"


def test_without_accelerators_nobody_asks_why() -> None:
    assert "on the host" not in as_text(sample(targets=("cpu",)))


def test_details_show_kernels_and_rules_that_matched() -> None:
    short, long = as_text(sample()), as_text(sample(), details=True)
    assert "conv2d_bias_relu" not in short
    assert row(long, "conv1")[:5] == ["conv1", "dnnl.conv2d_bias_relu", "dnnl_0", "2", "100 µs"]
    assert "conv2d_bias_relu (dnnl.target:31)" in long
    assert row(long, "fold_batchnorm") == ["fold_batchnorm", "53", "12", "53", "3.00 ms", "fusion.rules:12"]
    said = " ".join(long.split())
    assert "held back in 3 rounds" in said
    assert "not applied 5 times" in said
    assert "int8[] is not float32[2]" in said
    assert "never_fired" not in long


def test_long_lists_are_cut_unless_details_are_asked_for() -> None:
    many = tuple(RegionRow(f"dnnl_{i}", "dnnl", 1, 1, (), (), 1e-6) for i in range(40))
    # Every row has reasons of its own, so that none are taken together.
    left = tuple(HostRow(f"n{i}", f"Op{i}", 1e-6, (NO_LRN,)) for i in range(40))
    summary = sample(regions=many, host_operators=left)
    short, long = as_text(summary), as_text(summary, details=True)
    assert short.count("… 28 more") == 2
    assert "dnnl_39" not in short
    assert "dnnl_39" in long
    assert "Op39" in long


def test_verification() -> None:
    assert "verified  PASSED: 1 output on a random input (seed 7); max abs error 3.1e-06, max rel error 0" in as_text(
        sample()
    )
    bad = Verification(agrees=False, outputs=2, max_abs_error=float("nan"), max_rel_error=2.0, seed=0)
    assert "verified  FAILED: 2 outputs" in as_text(sample(verification=bad))
    assert "verified" not in as_text(sample(verification=None))


def test_what_was_not_verified_is_said() -> None:
    part = Verification(
        True, 0, 0.0, 0.0, 0, pieces=1200, executed=7, input_by=("a", "b"), skipped=("random operators",)
    )
    text = as_text(sample(verification=part))
    assert "verified  PASSED: 7 of 1,200 rewritten pieces separately; " in text
    assert "; the input executed by a and b\n          not verified: random operators\n" in text
    off = Verification(None, 0, 0.0, 0.0, 0, done=False, skipped=("switched off",))
    assert "verified  no: switched off\n" in as_text(sample(verification=off))


def test_fits_its_width_without_losing_text() -> None:
    text = as_text(sample(), width=80)
    tables, _ = text.split("\nbound ")
    assert max(map(len, tables.splitlines())) <= 80
    joined = "".join(text.split())
    assert "onlywhereceil_mode==0:ceil_modeis1" in joined


def test_grouping_keeps_order_and_separates_reasons() -> None:
    rows = [
        HostRow("a", "LRN", 1.0, (NO_LRN,)),
        HostRow("b", "Add", 2.0, (NO_LRN,)),
        HostRow("c", "LRN", 4.0, (NO_LRN,)),
        HostRow("d", "LRN", 8.0, (NO_CEIL,)),
    ]
    assert [(g.op, g.names, g.cost) for g in group_host_operators(rows)] == [
        ("LRN", ("a", "c"), 5.0),
        ("Add", ("b",), 2.0),
        ("LRN", ("d",), 8.0),
    ]


def test_a_notebook_shows_the_report_without_markup_of_the_model() -> None:
    x = eqsat.input("x", (2, 3))
    result = eqsat.optimize(eqsat.graph({"<script>": eqsat.op.Relu(x)}), "dnnl")
    page = result._repr_html_()
    assert page.startswith("<div") and page.endswith("</div>") and "&lt;script&gt;" in page and "<script" not in page
    assert page.count("<div") == page.count("</div>")
    # The head is that of the page, number by number.
    tiles = re.findall(r'<div class="tile"><b>(.*?)</b><span>(.*?)</span>', to_html(result.summary))
    assert len(tiles) == 5
    assert re.findall(r"<b style[^>]*>(.*?)</b><span style[^>]*>(.*?)</span>", page) == tiles
    text = re.sub(r"<[^>]*>", "", page)
    for line in as_text(result.summary, width=100).splitlines():
        assert html.unescape(line.strip()) in html.unescape(text)
