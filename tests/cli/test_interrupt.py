"""Ctrl-C in the middle of the work: one line, exit code 130, and no file but those that were there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import op

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "eqsat", "optimize", "-", "-t", "dnnl", "-o", "out.onnx", "--report", "report.html"]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A network that is worked on for much longer than a signal takes, and larger than the buffer of a pipe."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    y = eqsat.input("x", (1, 64))
    for i in range(1500):
        y = op.Relu(y * np.full(64, 1 + i / 1000, np.float32) + np.full(64, i / 1000, np.float32))
    eqsat.save(eqsat.graph(y), path)
    content = path.read_bytes()
    assert len(content) > 4 * 65536
    return content


def start(folder: Path, stderr: int) -> subprocess.Popen[bytes]:
    (folder / "out.onnx").write_bytes(b"from before")
    return subprocess.Popen(
        COMMAND,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "TERM": "xterm"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        # A shell that runs the tests in the background has them ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def require_nothing_new(folder: Path) -> None:
    assert [path.name for path in folder.iterdir()] == ["out.onnx"]
    assert (folder / "out.onnx").read_bytes() == b"from before"


def send(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(content)
    process.stdin.close()
    process.stdin = None


@pytest.mark.slow
def test_while_it_loads_in_a_pipe(model: bytes, tmp_path: Path) -> None:
    process = start(tmp_path, subprocess.PIPE)
    # All but the pipe's buffer has been read when this returns.
    send(process, model)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")
    require_nothing_new(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [b"loading the model", b"applying rules"])
def test_on_a_terminal(stage: bytes, model: bytes, tmp_path: Path) -> None:
    """The line of progress says when."""
    import pty

    ours, theirs = pty.openpty()
    try:
        process = start(tmp_path, theirs)
    finally:
        os.close(theirs)
    send(process, model)
    seen = read(ours, lambda text: stage in text)
    process.send_signal(signal.SIGINT)
    seen += read(ours, lambda _: False)
    os.close(ours)
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, b"")
    assert seen.count(b"interrupted") == 1 and b"Traceback" not in seen
    assert seen.split(b"interrupted")[1] == b"\r\n"
    require_nothing_new(tmp_path)


def read(terminal: int, enough: Callable[[bytes], bool]) -> bytes:
    """What appears on a terminal, until it is enough or nobody writes to it any more."""
    seen = b""
    while not enough(seen):
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    return seen
