"""Plain tables, as wide as the terminal or as COLUMNS says; in a pipe without it, each row is one line."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from eqsat.cli.console import PIPE, UNBOUNDED, echo, page_width, terminal
from eqsat.text import name_of


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under headings; ``>`` in front of a heading aligns its column to the right, the last one folds."""
    from rich.console import Console
    from rich.text import Text

    from eqsat.report.fitting import FittingTable

    table = FittingTable(*headings, rigid=len(headings) - 1, edge=False)
    for row in rows:
        table.add_row(*(Text(name_of(cell)) for cell in row))
    screen = terminal()
    if screen.is_terminal:
        screen.print(table)
        return
    text = io.StringIO()
    Console(file=text, width=page_width(UNBOUNDED)).print(table)
    lines = (line.rstrip() for line in text.getvalue().rstrip().splitlines())
    # The rule below the headings is as long as the longest cell.
    echo("\n".join(line[:PIPE] if set(line) == {"─"} else line for line in lines))
