"""A report as a file: the suffix of the name gives the form."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from eqsat.errors import EqsatError
from eqsat.files import cannot_write, is_stream, replacing, require_folder
from eqsat.report.summary import Summary

SUFFIXES = (".html", ".htm", ".json", ".svg", ".txt")


def check_place(path: Path) -> None:
    """Say early, before the work is done, that a report cannot have this name, or cannot be written there.

    Raises:
        EqsatError: If the name ends in none of :data:`SUFFIXES`, or its folder is missing or cannot be written to.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise EqsatError(
            "the name of a report that ends in .html, .json, .svg or .txt is required",
            place=str(path),
            actual=repr(path.suffix) if path.suffix else "no suffix",
            hint=f"for example {str(path.with_suffix('.html') if path.name != '-' else 'report.html')!r}"
            if path.name
            else "",
        )
    require_folder(path.parent)
    obstacle = "a directory" if path.is_dir() else "" if is_stream(path) else cannot_write(path.parent)
    if obstacle:
        raise EqsatError("a file that can be written is required", place=str(path), actual=obstacle)


def write(summary: Summary, path: Path) -> None:
    """Write the report.

    Raises:
        EqsatError: If the name ends in none of :data:`SUFFIXES`, or the file cannot be written.
    """
    check_place(path)
    match path.suffix.lower():
        case ".json":
            from eqsat.report.as_json import to_json

            text = to_json(summary)
        case ".svg":
            from eqsat.report.svg import to_svg

            text = to_svg(summary)
        case ".txt":
            from eqsat.report.table import as_text

            text = as_text(summary, details=True)
        case _:
            from eqsat.report.html import to_html

            text = to_html(_dated(summary))
    with replacing(path) as file:
        file.write(text.encode())


def _dated(summary: Summary) -> Summary:
    """With the time of writing, unless a date is given: a page that was sent on says of when it is."""
    if summary.made is None or summary.made.date:
        return summary
    return replace(summary, made=replace(summary.made, date=datetime.now(UTC).isoformat(timespec="seconds")))
