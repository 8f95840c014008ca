"""Progress is one line for people, and nothing where nobody looks."""

from __future__ import annotations

import pytest

from eqsat.cli.progress import showing_progress, showing_stage


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
