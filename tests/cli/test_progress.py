"""Progress is one line for people, and nothing where nobody looks."""

from __future__ import annotations

import pytest

from eqsat.cli.progress import describe, showing_progress, showing_stage
from eqsat.stages.event import Event


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


def test_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with showing_progress(quiet=False) as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")


def test_stages_are_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with showing_stage("verify", quiet=False):
            pass
        assert ("executing both models" in stream.getvalue()) is shown
