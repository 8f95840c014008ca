"""A report on the terminal, for the commands that search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.cli.console import echo, page_width, terminal

if TYPE_CHECKING:
    from eqsat.report.summary import Summary


def print_summary(summary: Summary, *, as_json: bool, verbose: bool, quiet: bool) -> None:
    """The report as a table or as JSON."""
    if as_json:
        from eqsat.report.as_json import to_json

        echo(to_json(summary), nl=False)
    elif not quiet:
        from eqsat.report.table import as_text, render

        screen = terminal()
        if screen.is_terminal:
            screen.print(render(summary, details=verbose), crop=False)
        else:
            echo(as_text(summary, details=verbose, width=page_width()), nl=False)
