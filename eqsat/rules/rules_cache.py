"""Keeps parsed rule and target files, and results of checks of rules, in the user's cache.

Reading the shipped ones takes longer than optimizing a small model.

The key of an entry covers the texts and paths of the files, the version of eqsat and the sources that reading depends
on. An entry is text (``stored.py``) after its own hash, written to a file of its own and moved to its place, so that
processes may share the folder. A damaged entry, or one that another user could have written, counts as missing, because
rules decide what a model computes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from functools import cache
from pathlib import Path

import onnx

from eqsat.errors import EqsatError
from eqsat.files import cache_folder, replacing
from eqsat.rules.ast import RuleFile
from eqsat.rules.stored import from_text, to_text
from eqsat.version import __version__

_READ = "rules"
MOST_ENTRIES = 64
"""In the folder; the shipped files take three. The oldest are deleted first."""
MOST_BYTES = 64 << 20
"""Most bytes of one entry."""
_ROOMS = ("schema", "ops", "model", "rules")
"""Rooms from which the reader imports; with the files beside them, they are all sources that reading depends on."""


def find(key: str) -> list[RuleFile] | None:
    """The entry of a key, or None."""
    text = find_text(_READ, key)
    try:
        return None if text is None else from_text(text)
    except ValueError:
        return None


def keep(key: str, files: list[RuleFile]) -> None:
    """Writes an entry; where that fails, the files are read again next time."""
    text = to_text(files)
    if text:
        keep_text(_READ, key, text, MOST_ENTRIES)


def find_text(folder_name: str, key: str) -> str | None:
    """The text stored under a key in a folder of the cache, or None."""
    try:
        folder = _folder(folder_name, make=False)
        if folder is None:
            return None
        descriptor = os.open(folder / key, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not _is_own(status) or status.st_size > MOST_BYTES:
                return None
            content = file.read()
        digest, _, text = content.partition(b"\n")
        if digest != hashlib.sha256(text).hexdigest().encode():
            return None
        return text.decode("utf-8", "surrogatepass")
    except (OSError, ValueError, RuntimeError):
        return None


def keep_text(folder_name: str, key: str, text: str, most: int) -> None:
    """Writes a text, and keeps at most ``most`` in the folder; where that fails, nothing is kept."""
    content = text.encode("utf-8", "surrogatepass")
    if not content or len(content) > MOST_BYTES:
        return
    with contextlib.suppress(OSError, RuntimeError, EqsatError):
        folder = _folder(folder_name, make=True)
        if folder is None:
            return
        with replacing(folder / key) as file:
            Path(file.name).chmod(0o600)
            file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        _prune(folder, most)


def key_of(texts: list[tuple[str, str]], further: object, rooms: tuple[str, ...] = ()) -> str:
    """The name of an entry.

    Args:
        texts: Name and content of each file, and of the prelude.
        further: Further dependences of the entry, by their ``repr``.
        rooms: Rooms that it depends on, in addition to those of the reader.
    """
    digest = hashlib.sha256(_sources(rooms).encode())
    digest.update(repr(further).encode("utf-8", "surrogatepass"))
    for part in (part for text in texts for part in text):
        content = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()


@cache
def _sources(rooms: tuple[str, ...]) -> str:
    """The version and the sources of the reader, of further rooms, and of the operators' schemas, as a hash."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(repr((__version__, sys.version, onnx.__version__)).encode())
    for folder in (package, *(package / room for room in (*_ROOMS, *rooms))):
        for path in sorted(folder.glob("*" if folder == package else "**/*")):
            if path.suffix in (".py", ".lark", ".json"):
                digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _folder(name: str, *, make: bool) -> Path | None:
    """The folder of the entries, if nobody else can write to it."""
    folder = cache_folder() / name
    if make:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    return folder if stat.S_ISDIR(status.st_mode) and _is_own(status) else None


def _is_own(status: os.stat_result) -> bool:
    return os.name != "posix" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def _prune(folder: Path, most: int) -> None:
    found: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # Another process may have removed it.
            if path.is_file():
                found.append((path.stat().st_mtime, path))
    for _, path in sorted(found)[:-most]:
        with contextlib.suppress(OSError):
            path.unlink()
