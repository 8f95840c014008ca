"""Tables and lines on narrow terminals: nothing is lost, words stay whole, and no line is longer than asked."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType

from eqsat.report.fitting import FittingTable, Line, hanging
from eqsat.report.table import as_text
from tests.report.sample import sample


def shown(what: RenderableType, width: int, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, color_system=None).print(what, crop=False)
    return out.getvalue()


def table() -> FittingTable:
    found = FittingTable("rule", "place", ">count", "remark", rigid=2)
    found.add_row("relu_from_max", "rules/activations.rules:11", "7", "which zero a maximum gives is open")
    found.add_row("relu_twice", "rules/activations.rules:8", "1,234", "")
    return found


def test_a_table_that_fits_is_a_table() -> None:
    text = shown(table(), 80)
    assert text.split()[:4] == ["rule", "place", "count", "remark"]
    assert "relu_twice" in text


@pytest.mark.parametrize("width", [40, 50, 60])
def test_a_table_that_does_not_fit_is_a_list(width: int) -> None:
    text = shown(table(), width)
    assert max(map(len, text.splitlines())) <= width
    assert " ".join(text.split()) == (
        "rule relu_from_max place rules/activations.rules:11 count 7 remark which zero a maximum gives is open "
        "rule relu_twice place rules/activations.rules:8 count 1,234"
    )


@pytest.mark.parametrize("width", [40, 50, 70, 120])
def test_reports_fit(width: int) -> None:
    lines = as_text(sample(), details=True, width=width).splitlines()
    closing = next(i for i, line in enumerate(lines) if line.startswith("bound"))
    assert max(map(len, lines[1:closing])) <= width
    flat = "".join("".join(lines[:closing]).split())
    for word in ("dnnl.conv2d_bias_relu", "conv2d_bias_relu(dnnl.target:31)", "norm<1>", "ceil_modeis1"):
        assert word in flat


def test_lines_fold_on_terminals_only() -> None:
    line = Line("verified  PASSED: one output on a random input, two pieces separately")
    assert shown(line, 40) == f"{line.text}\n"
    assert shown(line, 40, terminal=True) == (
        "verified  PASSED: one output on a random\n          input, two pieces separately\n"
    )


def test_hanging_lines_keep_words_whole() -> None:
    path = "/a/path/that/nobody/can/copy/if/it/is/folded"
    assert hanging(f"cache  {path} and\nmore", 7, 30) == f"cache\n       {path}\n       and\n       more"
    assert hanging("", 7, 30) == ""
