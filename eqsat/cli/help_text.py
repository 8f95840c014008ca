"""The text of ``--help``: on a narrow terminal, what an option does stands below it, and examples are folded.

click gives half of a line to the names of options, however short the line is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

NARROW = 72
"""Lines shorter than this have no room for two columns."""


class Formatter(click.HelpFormatter):
    """Fits its text into the width."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        if self.width >= NARROW or all(len(first) + len(second) + 6 <= self.width for first, second in rows):
            super().write_dl(rows, col_max, col_spacing)
            return
        for first, second in rows:
            indent = " " * self.current_indent
            deeper = indent + " " * self.indent_increment
            self.buffer.append(f"{indent}{first}\n{click.wrap_text(second, self.width, deeper, deeper)}\n")

    def getvalue(self) -> str:
        lines = super().getvalue().split("\n")
        return "\n".join(part for line in lines for part in _folded(line, self.width))


class HelpContext(click.Context):
    """Commands print their help with :class:`Formatter`."""

    formatter_class = Formatter


def fit_help(command: click.Command) -> None:
    """Has a command and all below it print their help so."""
    command.context_class = HelpContext
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        fit_help(below)


def _folded(line: str, width: int) -> list[str]:
    """A line in pieces: of a command with the shell's sign that it goes on, of alternatives one below the other."""
    if len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    command = line.lstrip().startswith(("eqsat ", "cmake "))
    # Of a form such as `--dim A|B` the alternatives are words as well.
    words = line.split() if command else re.findall(r"[^\s|]+\|?|\|", line)
    end = " \\" if command else ""
    lines = [" " * indent + words[0]]
    for word in words[1:]:
        joint = "" if lines[-1].endswith("|") else " "
        if len(lines[-1]) + len(joint) + len(word) + len(end) <= width:
            lines[-1] += joint + word
        else:
            lines[-1] += end
            lines.append(" " * (indent + 4) + word)
    return lines
