"""A few of the hostile inputs; ``make hostile`` runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.corpus import SHORT, cases


def _run(names: tuple[str, ...]) -> None:
    # A process of its own: cases are forked from it, and pytest's has threads.
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile", *names],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(cases(names))} cases, 0 wrong" in done.stdout


@pytest.mark.slow
def test_short() -> None:
    assert {case.name for case in cases(SHORT)} >= set(SHORT)
    _run(SHORT)


@pytest.mark.heavy
def test_all() -> None:
    assert len(cases()) >= 100
    _run(())
