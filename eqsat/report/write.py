"""A report as a file: the name says in which form; a file is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eqsat.errors import EqsatError
from eqsat.report.summary import Summary

SUFFIXES = (".html", ".htm", ".json", ".txt")


def check_suffix(path: Path) -> None:
    """Say early, before the work is done, that a report cannot have this name.

    Raises:
        EqsatError: If the name ends in none of :data:`SUFFIXES`.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise EqsatError(
            "the name of a report ends in .html, .json or .txt",
            place=str(path),
            actual=repr(path.suffix) if path.suffix else "no suffix",
        )


def write(summary: Summary, path: Path) -> None:
    """Write the report.

    Raises:
        EqsatError: If the name ends in none of :data:`SUFFIXES`, or the file cannot be written.
    """
    check_suffix(path)
    match path.suffix.lower():
        case ".json":
            from eqsat.report.as_json import to_json

            text = to_json(summary)
        case ".txt":
            from eqsat.report.table import as_text

            text = as_text(summary, details=True)
        case _:
            from eqsat.report.html import to_html

            text = to_html(summary)
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` when the block ends well, and vanishes when it does not.

    Raises:
        EqsatError: If the file cannot be written.
    """
    temporary = None
    try:
        # In the same folder, since a file can be renamed only within its file system.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes it private
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise EqsatError("the file can be written", place=str(path), actual=reason) from error
        raise
