"""The cache of compiled models in the user's folder: limited in size, the least recently used models are deleted first.

The name of a library ends in the hash of its content, and a library with another hash is not loaded: loading a file
that was truncated by a full disk or by another program would end the process.

Several processes may share the folder. A library is looked up just before it is loaded, and one that was looked up
within ``RECENT`` seconds is never removed, so no process finds it gone. A process that has loaded a library keeps it
anyway: the system frees a removed file when its last user closes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path

from eqsat.errors import CodegenError

LIMIT = 1024
"""Megabytes that compiled models may take, unless ``EQSAT_CACHE_LIMIT`` sets another limit; ResNet-50 takes about one.
"""
RECENT = 600
"""Seconds in which a library counts as being in use, and a folder as being worked in."""


def limit() -> int:
    """Bytes that compiled models may take.

    Raises:
        CodegenError: ``EQSAT_CACHE_LIMIT`` is not a number.
    """
    given = os.environ.get("EQSAT_CACHE_LIMIT", "").strip()
    if not given:
        return LIMIT << 20
    try:
        megabytes = float(given)
    except ValueError:
        megabytes = -1.0
    if not 0 <= megabytes < 1e12:
        raise CodegenError(
            "a number of megabytes is required",
            place="EQSAT_CACHE_LIMIT",
            actual=repr(given),
            hint="set it to a number such as 1024, or unset it",
        )
    return int(megabytes * (1 << 20))


def find(folder: Path, key: str, suffix: str) -> Path | None:
    """The library of a key, if there is an intact one; damaged ones are deleted."""
    try:
        found = sorted(folder.glob(f"{key}-*{suffix}"))
    except OSError:
        return None
    for library in found:
        try:
            if library.name == _name(library, key, suffix):
                mark_used(library)
                return library
            library.unlink()
        except IsADirectoryError:
            shutil.rmtree(library, ignore_errors=True)
        except OSError:
            continue  # Another process has removed it, or it may not be read.
    return None


def keep(built: Path, folder: Path, key: str, suffix: str) -> Path:
    """Moves a library to its place in the cache, in one step.

    Raises:
        OSError: It cannot be read or moved.
    """
    library = folder / _name(built, key, suffix)
    built.replace(library)
    return library


def _name(library: Path, key: str, suffix: str) -> str:
    with library.open("rb") as file:
        return f"{key}-{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}{suffix}"


def mark_used(library: Path) -> None:
    """Notes that a library is used now: in the time of access, which the system itself may not keep."""
    # A read-only cache works as well.
    with contextlib.suppress(OSError):
        os.utime(library, ns=(time.time_ns(), library.stat().st_mtime_ns))


def prune(folder: Path, most: int) -> list[Path]:
    """Removes the least recently used libraries until the rest takes no more than ``most`` bytes.

    Args:
        folder: The cache. Files that are not libraries stay; folders left by an interrupted compiler are removed.
        most: Bytes.

    Returns:
        The removed libraries, in order.
    """
    now = time.time()
    found: list[tuple[float, str, int]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            # Another process may have removed it in between.
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.startswith("build-") and entry.is_dir(follow_symlinks=False):
                    if now - status.st_mtime > RECENT:
                        shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name.endswith((".so", ".dll")) and entry.is_file(follow_symlinks=False):
                    used = max(status.st_atime, status.st_mtime)
                    found.append((used, entry.name, status.st_size))
    total = sum(size for _, _, size in found)
    removed = []
    for used, name, size in sorted(found):
        if total <= most or now - used <= RECENT:
            break
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
            removed.append(folder / name)
            total -= size
    return removed
