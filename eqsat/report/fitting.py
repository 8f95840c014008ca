"""Tables and lines that stay readable on a narrow terminal: a table that does not fit becomes a list of its rows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LEAST = 16
"""Characters to which a column of text may shrink before the table counts as too wide."""
INDENT = 10
"""Column of the text after a line's first word, such as ``verified  ``."""


class FittingTable(Table):
    """A table without vertical lines; ``>`` in front of a heading aligns its column to the right.

    Args:
        headings: Columns whose headings are ``>`` are never folded, and neither are the first ``rigid`` ones.
    """

    def __init__(self, *headings: str, rigid: int = 0, edge: bool = True) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=edge, pad_edge=False, header_style="bold")
        for i, heading in enumerate(headings):
            right = heading.startswith(">")
            self.add_column(
                heading.removeprefix(">"),
                justify="right" if right else "left",
                no_wrap=right or i < rigid,
                overflow="fold",
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._fits(console, options):
            yield from super().__rich_console__(console, options)
        else:
            yield from self._records(options.max_width)

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        wide = options.update(width=10_000)
        room = options.max_width - 2 * len(self.columns)
        for column in self.columns:
            widths = [Measurement.get(console, wide, cell).maximum for cell in (column.header, *column.cells)]
            room -= max(widths) if column.no_wrap else min(max(widths), LEAST)
        return room >= 0

    def _records(self, width: int) -> RenderResult:
        headings = [str(column.header) for column in self.columns]
        indent = 4 + max(len(heading) for heading in headings[1:])
        yield Text()
        for first, *cells in zip(*(column.cells for column in self.columns), strict=True):
            yield Text(f"{headings[0]} {first}".strip(), style="bold", overflow="fold")
            for heading, cell in zip(headings[1:], cells, strict=True):
                if str(cell):
                    yield Text(hanging(f"  {heading:<{indent - 2}}{cell}", indent, width), overflow="fold")
        yield Text()


class Line:
    """One line: a terminal folds it between words; in a pipe, where programs read it, it stays one."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text = text
        self.style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = hanging(self.text, INDENT, options.max_width) if console.is_terminal else self.text
        yield Text(text, style=self.style, no_wrap=True, overflow="ignore")


def hanging(text: str, indent: int, width: int) -> str:
    """Lines of at most ``width`` characters; all but the first are indented, and words stay whole."""
    space = " " * indent
    first, *more = text.split("\n")
    lines: Sequence[str] = [first, *(space + line for line in more)]
    folded = (
        textwrap.wrap(
            line,
            max(width, indent + LEAST),
            subsequent_indent=space,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=False,
        )
        or [""]
        for line in lines
    )
    return "\n".join(line for part in folded for line in part)
