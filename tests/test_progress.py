"""Progress is shown where people look, by public functions as by commands, and nowhere else."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import eqsat
from eqsat import op, progress
from eqsat.progress import describe, showing
from eqsat.stages.event import Event


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event("load"), "loading the model"),
        (Event("saturate", iteration=3, enodes=12345), "applying rules: iteration 3, 12,345 e-nodes"),
        (Event("extract", cost=0.0032), "choosing the cheapest program: 3.20 ms"),
        (Event("extract", cost=0.004, bound=0.003), "choosing the cheapest program: 4.00 ms, gap 25.00 %"),
        (Event("extract", cost=0.0, bound=0.0), "choosing the cheapest program: 0 s, gap 0.00 %"),
        (Event("calibrate", step=3, steps=8), "gathering statistics: 3 of 8"),
        (Event("choose", step=1, steps=4), "comparing methods: 1 of 4"),
        (Event("measure", step=1200), "measuring the noise of tensors: 1,200"),
        (Event("something new"), "something new"),
    ],
)
def test_lines(event: Event, line: str) -> None:
    assert describe(event) == line


def _optimized(**options: Any) -> None:
    eqsat.optimize(eqsat.graph(op.Relu(eqsat.input("x", (2, 3)))), verify=False, **options)


@pytest.mark.parametrize(
    ("options", "terminal", "shows"),
    [({}, True, True), ({"progress": False}, True, False), ({}, False, False), ({"progress": True}, False, True)],
)
def test_a_line_unless_told_not_to(
    options: dict[str, bool], terminal: bool, shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    _optimized(**options)
    # A terminal shows what is being done when it is drawn, which is not every stage.
    if not terminal:
        assert ("building the e-graph" in stream.getvalue()) is shows
    assert bool(stream.getvalue()) is shows


def test_calls_from_within_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with showing(False):
        _optimized()
    assert not stream.getvalue()


def test_a_function_receives_events() -> None:
    events: list[Event] = []
    _optimized(progress=events.append)
    assert {"load", "saturate", "extract"} <= {event.stage for event in events}


class Handle:
    """A display of a notebook that keeps what it showed."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.opened = threading.Event()

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert display_id
        self.update(content, raw)
        self.opened.set()
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self.lines.append(content["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Handle:
    import IPython
    from IPython import display

    handle = Handle()
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(display, "display", handle.display)
    return handle


def test_a_cell_of_a_notebook_has_a_line_that_is_empty_in_the_end(
    notebook: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_MOMENT", 0.0)
    with showing() as receive:
        assert receive is not None
        assert notebook.opened.wait(timeout=60)
        receive(Event("encode"))
        receive(Event("encode"))
    assert notebook.lines == ["starting", "building the e-graph", ""]


def test_a_short_run_leaves_no_empty_output_below_its_cell(notebook: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_MOMENT", 3600.0)
    _optimized()
    assert not notebook.lines
