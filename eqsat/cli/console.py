"""Printing: the one place from which text reaches the terminal.

Names of models, files and rules are part of most lines. Whatever they contain, a terminal that shows them obeys nothing
(escape sequences, directions of writing) and hides nothing; colours are passed separately from the text.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from eqsat.text import json_text, shown_lines

if TYPE_CHECKING:
    from rich.console import Console

    from eqsat.errors import EqsatError


PIPE = 120
"""Characters in a line where there is no terminal."""
UNBOUNDED = 10_000
"""Characters in a line that is not broken."""


def echo(
    text: str = "", *, head: str = "", colour: str | None = None, bold: bool = False, err: bool = False, nl: bool = True
) -> None:
    """Print a line, or lines.

    Args:
        text: What to print.
        head: Printed before it, in the colour.
        colour: As click names it.
        bold: Whether the head is bold.
        err: Whether to print on stderr.
        nl: Whether the line ends.
    """
    styled = click.style(shown_lines(head), fg=colour, bold=bold or None) if head else ""
    # rich knows https://no-color.org by itself, click does not.
    click.echo(styled + shown_lines(text), err=err, nl=nl, color=False if os.environ.get("NO_COLOR") else None)


def no_answer(error: EqsatError) -> int:
    """The exit code for wrong input of a command whose exit code 1 is an answer: that two models differ."""
    echo(f"error: {error}", err=True)
    return 2


def echo_json(value: Any) -> None:
    """Print dictionaries, lists, strings and numbers, or dataclasses of them, as JSON; infinite numbers are null."""
    from eqsat.report.as_json import plain

    click.echo(json_text(plain(value)))


def terminal(*, err: bool = False) -> Console:
    """The console for tables and the line of progress."""
    from rich.console import Console

    return Console(stderr=err)


def page_width(in_pipe: int = PIPE) -> int:
    """Characters in a line: of the terminal, or as COLUMNS says, or ``in_pipe``."""
    screen = terminal()
    given = os.environ.get("COLUMNS", "")
    return screen.width if screen.is_terminal or (given.isdigit() and int(given) > 0) else in_pipe


def fold(text: str, indent: int = 4) -> str:
    """Lines broken between words where they are wider than the terminal, or than COLUMNS says; longer words stay whole.

    Args:
        text: The lines.
        indent: Additional indentation of the continuation of a line.
    """
    from eqsat.report.fitting import hanging

    width = page_width(UNBOUNDED)
    return "\n".join(
        hanging(line, len(line) - len(line.lstrip()) + indent, width) if len(line) > width else line
        for line in text.split("\n")
    )


def never_fail() -> None:
    """Characters outside the terminal's encoding are printed as escapes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
