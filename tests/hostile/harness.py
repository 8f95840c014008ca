"""Runs cases as the command line would: each in a process of its own, with little memory and time, and judges them.

Processes are forked from one that has imported what all need: as isolated as a fresh one, and at once there.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.case import Case

MEMORY = 8_000_000_000
SECONDS = 120.0
"""CPU seconds, so that a busy machine does not matter; there is no telling how long a case waits for a core."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        name: Of the case.
        wrong: What is wrong with it, empty if nothing is.
        said: What the command wrote to the standard error.
        code: Its exit code, negative for a signal.
        seconds: Wall-clock time.
    """

    name: str
    wrong: str
    said: str
    code: int
    seconds: float


def run(cases: Iterable[Case]) -> Iterator[Outcome]:
    """Runs cases one after the other."""
    _warm_up()
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            yield _run(case, Path(folder))


def _warm_up() -> None:
    """Imports what takes long and starts no thread: a fork has none of its parent's."""
    import eqsat.cli
    import eqsat.execute.executor
    import eqsat.model.load

    assert eqsat.cli and eqsat.execute.executor and eqsat.model.load
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads"


def _run(case: Case, folder: Path) -> Outcome:
    given, written = folder / "given", folder / "said"
    given.mkdir()
    arguments = list(case.build(given))
    before = _listing(given)
    start = time.monotonic()
    child = os.fork()
    if not child:
        _execute(arguments, given, written)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - start
    code = os.waitstatus_to_exitcode(status)
    said = written.read_text("utf-8", "replace")
    wrong = _judge(case, code, said, _listing(given).items() - before.items())
    return Outcome(case.name, wrong, said, code, seconds)


def _execute(arguments: list[str], folder: Path, written: Path) -> None:
    """The child: never returns."""
    code = 70
    try:
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS) + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        error = os.open(written, os.O_WRONLY | os.O_CREAT)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(error, 2)
        sys.stdout, sys.stderr = (os.fdopen(k, "w", encoding="utf-8", closefd=False) for k in (1, 2))
        from eqsat.bounds import default_memory
        from eqsat.cli import main

        default_memory.cache_clear()
        code = main(arguments)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
    finally:
        os._exit(code)


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            stat = path.lstat()
            found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns if not path.is_dir() else 0)
    return found


def _judge(case: Case, code: int, said: str, changed: Iterable[tuple[str, tuple[int, int]]]) -> str:
    """What is wrong, empty if nothing is."""
    lines = said.splitlines()
    messages = [line for line in lines if line.startswith(("error:", "Error:"))]
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    if "Traceback" in said or "internal error" in said:
        return "not a message but an accident"
    if code == 0:
        return "it should have been refused" if case.refused else ""
    if code not in (1, 2):
        return f"exit code {code}"
    if len(messages) != 1:
        return f"{len(messages)} messages instead of one"
    if len(said) > 4000:
        return f"a message of {len(said)} characters"
    left = sorted(name for name, _ in changed)
    return f"it left {', '.join(left)}" if left else ""
