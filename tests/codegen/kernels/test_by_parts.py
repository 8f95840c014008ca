"""Kernels block by block, as threads execute them: values, and that no element is written by two blocks.

`make check-c` does the same with all tests of kernels. How kernels are executed is decided when the harness is
imported, hence a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "channel_normalization",
        "computed_transposed_convolution",
        "convolution_along_rows",
        "deformable_convolution",
        "matmul",
        "pool",
        "reductions",
        "rows",
    ],
)
def test_vectors(kind: str) -> None:
    tests = f"tests/codegen/kernels/vectors/test_{kind}.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests],
        cwd=ROOT,
        env=os.environ | {"EQSAT_TEST_PARTS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
