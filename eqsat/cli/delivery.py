"""Delivers the result of ``eqsat optimize`` and ``eqsat quantize``: prints its report, writes the report and the
model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from eqsat.cli.console import echo
from eqsat.cli.search_options import host_option, targets_option
from eqsat.cli.shared_options import external_data_option, flat_option, opset_option, output_option, stacked
from eqsat.cli.streams import check_output
from eqsat.cli.summary import measured, print_summary, with_command

if TYPE_CHECKING:
    from eqsat.report.summary import Summary
    from eqsat.result import Result

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Delivery:
    """The options of a result, by their names on the command line; ``external_data`` is empty without a file name."""

    output: Path | None
    opset: int | None
    external_data: str | None
    flat: bool
    measure: bool
    report: Path | None
    as_json: bool
    verbose: bool
    quiet: bool

    def check(self) -> bool:
        """Refuses what could not be written; returns whether nothing but the result may be printed.

        Raises:
            ModelError: The model could not be written there.
            click.BadParameter: Standard output cannot hold both the model and JSON, or weights lack their model.
            EqsatError: There is no such kind of report, or it could not be written there.
        """
        from eqsat.report.write import check_place

        if self.report is not None:
            check_place(self.report)
        if self.output is None and self.external_data is not None:
            raise click.BadParameter("a file for the model is required, with --output", param_hint="'--external-data'")
        return check_output(self.output, self.as_json) or self.quiet

    def summary(self, result: Result, seed: int = 0) -> Summary:
        """The report of a result, with measured times if they are asked for, on inputs of that seed."""
        return with_command(measured(result, seed) if self.measure else result.summary)

    def deliver(self, result: Result, summary: Summary, *, quiet: bool) -> None:
        """Prints the report, and writes it and the model where they are to be written.

        Args:
            result: The program that was found.
            summary: Its report.
            quiet: What :meth:`check` says.
        """
        from eqsat.report.write import write

        if self.report is not None:
            write(summary, self.report)
        print_summary(summary, as_json=self.as_json, verbose=self.verbose, quiet=quiet)
        if self.output is not None:
            data = True if self.external_data == "" else self.external_data
            result.save(self.output, opset=self.opset, external_data=data, flat=self.flat)
            if not quiet and not self.as_json:
                echo(f"saved     {self.output}")


def delivering(command: _Command) -> _Command:
    """Gives a command its options of the result as one ``delivery``; stands next to the function."""

    @wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        delivery = Delivery(**{field.name: given.pop(field.name) for field in fields(Delivery)})
        return command(*args, delivery=delivery, **given)

    return cast(_Command, run)


def destination_options(command: _Command) -> _Command:
    """Where the result is written, and what it is for: the first options of both commands."""
    return stacked(output_option, opset_option, external_data_option, flat_option, targets_option, host_option)(command)
