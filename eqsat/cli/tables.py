"""Plain tables: the last column folds on a terminal, and nothing is cut or padded in a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from eqsat.cli.console import echo, terminal
from eqsat.text import name_of


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under headings; ``>`` in front of a heading aligns its column to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for i, heading in enumerate(headings):
        last = i == len(headings) - 1
        justify = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*(Text(name_of(cell)) for cell in row))
    screen = terminal()
    if screen.is_terminal:
        screen.print(table)
        return
    text = io.StringIO()
    Console(file=text, width=1000).print(table)
    echo("\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines()))
