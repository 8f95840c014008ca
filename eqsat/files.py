"""Writes files completely or not at all, and replaces nothing but files.

Files are made in a hidden folder next to their place and moved there by renaming. If that fails in between, files
already moved go back. A device, a pipe or an open stream (``/dev/null``, ``/dev/stdout``, a FIFO) is not a file that
could be replaced: it gets what was made as one piece.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from eqsat.errors import EqsatError

PATIENCE = 10.0
"""Seconds within which a reader must open a FIFO."""
_PREFIX = ".eqsat-"
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_LINKS = 40
"""Symbolic links in a row that are followed; as many as Linux follows."""


def require_folder(folder: Path, error: type[EqsatError] = EqsatError) -> None:
    """Says before the work that a file cannot be written because its folder is missing.

    Raises:
        EqsatError: It is missing; ``error`` is its class.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such directory"
        raise error("a directory to write to is required", place=str(folder), actual=what)


def cannot_write(folder: Path) -> str:
    """Why no file can be made in a folder; empty if one can. Permissions alone do not say it: a file is made."""
    try:
        with _scratch(folder):
            return ""
    except OSError as error:
        return reason(error)


def cannot_fill(folder: Path) -> str:
    """Why a folder that need not exist yet cannot be filled; empty if it can."""
    place = Path(os.path.realpath(folder))
    return cannot_write(next(p for p in (place, *place.parents) if p.exists()))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends well, and vanishes when it does not.

    Raises:
        EqsatError: If the file cannot be written.
    """
    try:
        with staged(path) as part, part.open("wb") as file:
            yield file
    except OSError as error:
        raise EqsatError(
            "a file that can be written is required", place=os.fspath(path), actual=reason(error)
        ) from error


@contextmanager
def staged(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[Path]:
    """The place to make a file that is then moved to ``path``, together with other files made next to it.

    Args:
        path: May name a device, a pipe or a stream, which gets the contents.
        follow: Whether a symbolic link stays and the file that it names is replaced.

    Raises:
        OSError: From writing or moving; everything is as it was before.
    """
    stream = _own_stream(path)
    place = Path(os.path.realpath(path)) if follow and stream is None else Path(path)
    if stream is not None or _is_device(place):
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as scratch:
            part = Path(scratch) / Path(path).name
            yield part
            if list(Path(scratch).iterdir()) != [part]:
                raise OSError(errno.EINVAL, "one file is written there, not several")
            _pour(part, _opened(place) if stream is None else os.dup(stream))
        return
    with _scratch(place.parent) as scratch:
        part = scratch / "made" / Path(path).name
        part.parent.mkdir()
        yield part
        if part.name != place.name:  # Through a link; its name has said in which format.
            part = part.rename(part.with_name(place.name))
        names = sorted((p.name for p in part.parent.iterdir()), key=lambda name: (name == part.name, name))
        with _uninterrupted() as deliver:
            _move(part.parent, place.parent, names, scratch, deliver)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path stands for an open stream, a device or a pipe, and not for a file that is made or replaced."""
    return _own_stream(path) is not None or _is_device(Path(path))


@contextmanager
def filling(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to make files in. They are moved to ``folder``, which is made if it is not there.

    Raises:
        OSError: From writing or moving; everything is as it was before.
    """
    place = Path(os.path.realpath(folder))
    missing = [p for p in (place, *place.parents) if not p.exists()]
    made: list[Path] = []
    try:
        for parent in reversed(missing[1:]):
            parent.mkdir()
            made.append(parent)
        with _scratch(place.parent if missing else place) as scratch:
            part = scratch / "made"
            part.mkdir()
            yield part
            with _uninterrupted() as deliver:
                if missing:
                    # In one step; file by file only if another process made it in between.
                    try:
                        part.rename(place)
                        return
                    except OSError as error:
                        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                            raise
                _move(part, place, sorted(p.name for p in part.iterdir()), scratch, deliver)
    except BaseException:
        for parent in reversed(made):
            with contextlib.suppress(OSError):  # Others may have put something there.
                parent.rmdir()
        raise


def cache_folder() -> Path:
    """Where compiled models and read rules are kept: ``$EQSAT_CACHE``, else the user's cache of the platform."""
    given = os.environ.get("EQSAT_CACHE")
    if given:
        return Path(given)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "eqsat"


def reason(error: OSError) -> str:
    """The system's message about an error."""
    return error.strerror or str(error)


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    if not parent.is_dir():
        raise (
            NotADirectoryError(errno.ENOTDIR, "Not a directory")
            if parent.exists()
            else FileNotFoundError(errno.ENOENT, "No such file or directory")
        )
    scratch = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    try:
        yield Path(scratch)
    finally:
        with _uninterrupted():
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _uninterrupted() -> Iterator[Callable[[], None]]:
    """Lets signals wait until the block has ended; yields what executes their handlers earlier, where one may raise."""
    waiting: list[int] = []
    before: dict[int, Any] = {}

    def wait(number: int, _frame: object) -> None:
        waiting.append(number)

    def deliver() -> None:
        # Without a handler a signal ends the process at once, which waits for the end of the block.
        for number in [number for number in waiting if callable(before[number])]:
            waiting.remove(number)
            signal.signal(number, before[number])
            try:
                signal.raise_signal(number)
            finally:
                signal.signal(number, wait)

    # Python executes handlers in the main thread only.
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            # None belongs to a program that embeds Python.
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                before[number] = signal.signal(number, wait)
    try:
        yield deliver
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in waiting:
            signal.raise_signal(number)


def _move(source: Path, folder: Path, names: Sequence[str], scratch: Path, deliver: Callable[[], None]) -> None:
    """Moves files to a folder, or none of them, as when the handler of a signal raises an exception."""
    for name in names:
        target = folder / name
        if target.is_dir() or (target.exists() and not target.is_file()):
            raise OSError(errno.EEXIST, f"{name} exists and is not a file")
    kept = scratch / "kept"
    kept.mkdir()
    moved: list[str] = []
    try:
        for name in names:
            target = folder / name
            if target.is_symlink() or target.exists():
                if not target.is_symlink():
                    (source / name).chmod(stat.S_IMODE(target.stat().st_mode))
                _keep(target, kept / name)
            moved.append(name)
            (source / name).replace(target)
        deliver()
    except BaseException:
        for name in moved:
            with contextlib.suppress(OSError):
                if os.path.lexists(kept / name):
                    (kept / name).replace(folder / name)
                elif not (source / name).exists():
                    (folder / name).unlink(missing_ok=True)
        raise


def _keep(file: Path, copy: Path) -> None:
    """A second name for a file, so that it can come back; readers see it at its place all the time."""
    try:
        os.link(file, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):  # No hard links here, or none of symbolic links.
        shutil.copy2(file, copy, follow_symlinks=False)


# ---- targets that are not files --------------------------------------------------------------------------------


def _own_stream(path: str | os.PathLike[str]) -> int | None:
    """The descriptor that a path such as ``/dev/stdout`` or ``/dev/fd/3`` stands for.

    Opening its file would start at the beginning, and replacing it would cut it off from its reader.
    """
    at = Path(path)
    for _ in range(_LINKS):
        at = Path(os.path.realpath(at.parent)) / at.name
        found = re.fullmatch(rf"/proc/{os.getpid()}(?:/task/\d+)?/fd/(\d+)|/dev/fd/(\d+)", str(at))
        if found is not None:
            return int(found[1] or found[2])
        if not at.is_symlink():
            return None
        at = at.parent / at.readlink()
    return None


def _is_device(path: Path) -> bool:
    """Whether something is there that takes bytes and cannot be replaced."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory")
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "a disk or a socket cannot be overwritten")
    return not stat.S_ISREG(mode)


def _opened(path: Path) -> int:
    """A device or a FIFO opened for writing."""
    if not stat.S_ISFIFO(path.stat().st_mode):
        return os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    end = time.monotonic() + PATIENCE
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise OSError(errno.ENXIO, "a pipe that nobody reads") from error
            time.sleep(0.01)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def _pour(part: Path, descriptor: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with part.open("rb") as source, os.fdopen(descriptor, "wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def execute_file(path: Path, prefix: str, what: str, error: type[EqsatError]) -> ModuleType:
    """Executes a Python file that the user has named, because naming it means to run it.

    Args:
        path: The file.
        prefix: Of the name under which it is a module.
        what: What it should be, for messages.
        error: The kind of error for a file that cannot be read or executed.
    """
    name = f"{prefix}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise error(f"{what} is required", place=str(path), actual="no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses of the file look for it there.
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise error(
            "a Python file that can be executed is required",
            place=str(path),
            actual=f"{type(problem).__name__}: {problem}",
        ) from problem
    return module
