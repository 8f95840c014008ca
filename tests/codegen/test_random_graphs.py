"""Random graphs as C, by the fuzzer's generator; the heavy form runs 200 of them with sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.codegen import graphs
from tests.codegen.__main__ import sanitized


def test_random_graphs_agree_with_the_executor():
    ran, wrong = graphs.failures(range(12))
    assert wrong == []
    assert ran >= 11


@pytest.mark.heavy
@pytest.mark.parametrize("start", range(0, 200, 40))
def test_sanitizers_find_nothing_in_random_graphs(start: int):
    done = subprocess.run(
        [sys.executable, "-m", "tests.codegen.graphs", str(start), "40", "--sanitize"],
        env={**os.environ, **sanitized()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert int(done.stdout.split()[-4]) >= 37, done.stdout
