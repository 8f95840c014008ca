"""Runs the command line on hostile rule and target files, each in a process of its own under limits.

The processes are forks of a server that has imported what takes long, so that a case takes no longer than it must. The
e-graph's library is not among it: its threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

ADDRESS_SPACE = 8_000_000_000
CPU_SECONDS = 60
MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2,3] x, float[2,3] y) => (float[2,3] out) {
    a = Relu(x)
    b = Add(a, y)
    c = Mul(b, a)
    d = Sum(a, b, c)
    t = Transpose <perm = [1, 0]> (d)
    u = Transpose <perm = [1, 0]> (t)
    out = Sigmoid(u)
}"""


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["eqsat.cli", "eqsat.rules.reader", "eqsat.model.load", "eqsat.execute.executor"])


@dataclass(frozen=True)
class Outcome:
    """How a run ended: exit code (minus the signal's number), what it said, and the files that it left."""

    code: int
    said: str
    left: tuple[str, ...]


def run(content: bytes, suffix: str) -> Outcome:
    """``eqsat optimize`` with a file of rules, or of a target."""
    with tempfile.TemporaryDirectory() as folder:
        model, given, out = (Path(folder, name) for name in ("model.onnxtxt", f"hostile{suffix}", "out.onnx"))
        model.write_text(MODEL, "utf-8")
        given.write_bytes(content)
        said = Path(folder, "said")
        option = ["-t", str(given)] if suffix == ".target" else ["--no-default-rules", "--trust", "-r", str(given)]
        arguments = ["optimize", str(model), *option, "-o", str(out), "--report", str(Path(folder, "report.json"))]
        child = _SERVER.Process(target=_child, args=(arguments, said))
        child.start()
        child.join()
        code = child.exitcode
        assert code is not None
        left = sorted(p.name for p in Path(folder).iterdir() if p not in (model, given, said))
        return Outcome(code, said.read_text("utf-8") if said.exists() else "", tuple(left))


def require_refused(content: str | bytes, word: str, suffix: str) -> None:
    """That a file of rules, or of a target, is refused with one short message that names it, and nothing is written."""
    outcome = run(content if isinstance(content, bytes) else content.encode(), suffix)
    assert outcome.code == 1, outcome.said[-3000:]
    assert "Traceback" not in outcome.said
    assert outcome.said.startswith("error: ") and outcome.said.count("error: ") == 1
    assert word in outcome.said
    assert f"hostile{suffix}" in outcome.said
    assert len(outcome.said) < 3000, len(outcome.said)
    assert not outcome.left


def require_taken(content: str, suffix: str) -> None:
    """That a model is optimized with such a file."""
    outcome = run(content.encode(), suffix)
    assert outcome.code == 0 and "PASSED" in outcome.said, outcome.said[-3000:]
    assert outcome.left == ("out.onnx", "report.json")


def _child(arguments: list[str], said: Path) -> None:
    """Never returns."""
    code = 70
    try:
        from eqsat.cli import main

        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        text = io.StringIO()
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            try:
                code = main(arguments)
            except SystemExit as exit_:
                code = int(exit_.code or 0)
            except BaseException:
                traceback.print_exc()
        said.write_text(text.getvalue(), "utf-8")
    finally:
        sys.stdout.flush()
        os._exit(code)
