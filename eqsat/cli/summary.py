"""A report on the terminal, for the commands that search."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from eqsat.cli.console import UNBOUNDED, echo, page_width, terminal

if TYPE_CHECKING:
    from eqsat.report.summary import Summary
    from eqsat.result import Result


def print_summary(summary: Summary, *, as_json: bool, verbose: bool, quiet: bool) -> None:
    """The report as a table or as JSON."""
    if as_json:
        from eqsat.report.as_json import to_json

        echo(to_json(summary), nl=False)
    elif not quiet:
        from eqsat.report.fitting import INDENT, hanging
        from eqsat.report.table import as_text, render

        screen = terminal()
        if screen.is_terminal:
            screen.print(render(summary, details=verbose), crop=False)
        else:
            lines, width = as_text(summary, details=verbose, width=page_width()).split("\n"), page_width(UNBOUNDED)
            echo("\n".join(hanging(line, INDENT, width) if len(line) > width else line for line in lines), nl=False)


def with_command(summary: Summary) -> Summary:
    """The summary with the command line that led to it."""
    if summary.made is None:
        return summary
    arguments: tuple[str, ...] = click.get_current_context().find_root().obj or ()
    return replace(summary, made=replace(summary.made, command=shlex.join(("eqsat", *arguments))))


def measured(result: Result, seed: int = 0) -> Summary:
    """The summary with the times of the compiled result on random inputs of typical sizes."""
    from eqsat.execute.inputs import complete_inputs
    from eqsat.report.measured import with_times
    from eqsat.schema.chosen_sizes import typical_sizes

    inputs = complete_inputs(result.model, dims=typical_sizes(result.sizes), seed=seed)
    with result.compile() as program:
        return with_times(result.summary, program.profile(inputs))
