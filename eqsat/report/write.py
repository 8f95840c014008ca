"""A report as a file: the suffix of the name gives the form."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from eqsat.errors import EqsatError
from eqsat.files import replacing, require_folder
from eqsat.report.summary import Summary

SUFFIXES = (".html", ".htm", ".json", ".svg", ".txt")


def check_suffix(path: Path) -> None:
    """Say early, before the work is done, that a report cannot have this name.

    Raises:
        EqsatError: If the name ends in none of :data:`SUFFIXES`.
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
