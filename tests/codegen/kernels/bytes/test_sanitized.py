"""The tests of integer kernels once more under AddressSanitizer and UndefinedBehaviorSanitizer.

Buffers without slack end where their last element does, so that a read after it is seen. Sanitizers have to be loaded
before Python, hence a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.kernels.vectors.harness import SANITIZERS

ROOT = Path(__file__).parents[4]


def _library(name: str) -> str:
    done = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, encoding="utf-8", check=False)
    return done.stdout.strip()


def _passes(*tests: str) -> None:
    libraries = [_library("libasan.so"), _library("libubsan.so")]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip("gcc has no sanitizers here")
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        # Not optimized: UndefinedBehaviorSanitizer makes a hundred times the work of what gcc optimizes here.
        "EQSAT_TEST_FLAGS": " ".join((*SANITIZERS, "-O0")),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.slow
def test_tables_and_copies():
    _passes("tests/codegen/kernels/bytes/test_elementwise.py", "-k", "tables or copies")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["conv", "matmul", "elementwise"])
def test_everything(name):
    _passes(f"tests/codegen/kernels/bytes/test_{name}.py", "-m", "not heavy")
