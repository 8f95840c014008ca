"""The command line, and the only place that prints.

Each command is a file of its own and imports what it needs when it runs, so that ``eqsat --help`` is instant.
Exit codes: 0 done, 1 the input is wrong (one message on stderr) or a comparison failed, 2 wrong usage
(``eqsat prove`` has codes of its own), 130 interrupted
(143 and 129 by the signals TERM and HUP).
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from eqsat.cli.codegen import codegen
from eqsat.cli.compare import compare
from eqsat.cli.console import echo, never_fail
from eqsat.cli.doctor import doctor
from eqsat.cli.explain import explain
from eqsat.cli.help_text import fit_help
from eqsat.cli.optimize import optimize
from eqsat.cli.prove import prove
from eqsat.cli.quantize import quantize
from eqsat.cli.rules import rules
from eqsat.cli.run import run
from eqsat.cli.shared_options import debug_option
from eqsat.cli.targets import targets
from eqsat.errors import EqsatError, Note
from eqsat.version import __version__


class _Interrupted(Exception):
    """A command was interrupted; click, which prints an empty line for that also into files, does not see it."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added; click would sort them by name."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted(error.code if isinstance(error, _Stopped) else 130) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="eqsat", message="%(prog)s %(version)s")
@debug_option
def cli() -> None:
    """Optimize ONNX models by equality saturation and place them on accelerators."""


for _command in (optimize, quantize, run, codegen, compare, explain, prove, rules, targets, doctor):
    cli.add_command(_command)
fit_help(cli)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the console script exits with what this returns."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    never_fail()
    try:
        with _ending_well(), _saying_notes({"-q", "--quiet"}.isdisjoint(arguments)):
            return cli.main(arguments, prog_name="eqsat", standalone_mode=False, obj=tuple(arguments)) or 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:  # wrong usage: click shows the command's usage with it
        text = io.StringIO()
        error.show(text)
        echo(text.getvalue(), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt, _Interrupted) as error:
        if isinstance(error, _Interrupted) and sys.stderr.isatty():
            echo(err=True)  # ends the line on which the terminal shows ^C
        _say("interrupted", "yellow")
        return error.code if isinstance(error, _Interrupted | _Stopped) else 130
    except EqsatError as error:
        if "--debug" in arguments:
            echo(traceback.format_exc(), err=True)
        _say(f"error: {error}", "red")
        return 1
    except BrokenPipeError:
        # The reader of our output has left (`eqsat ... | head`): end quietly, also at the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RecursionError) as error:
        from eqsat import bounds

        _say(f"error: {bounds.out_of_memory() if isinstance(error, MemoryError) else bounds.too_deep()}", "red")
        return 1
    except OSError as error:
        if "--debug" in arguments:
            echo(traceback.format_exc(), err=True)
        place = f"{error.filename}: " if error.filename else ""
        _say(f"error: {place}{error.strerror or error}", "red")
        return 1
    except Exception as error:
        if "--debug" in arguments:
            echo(traceback.format_exc(), err=True)
            return 1
        _say(f"internal error: {type(error).__name__}: {_first_line(error)}", "red")
        _say(
            f"  This is a defect of eqsat {__version__}, not of your input. "
            "Please report it with the output of the same command with --debug."
        )
        return 1


class _Stopped(KeyboardInterrupt):
    """Another signal that asks a process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


@contextmanager
def _ending_well() -> Iterator[None]:
    """Signals that ask a process to end act like Ctrl-C: no half-written files are left."""

    def stop(number: int, _frame: object) -> None:
        raise _Stopped(number)

    changed: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # A parent such as nohup may have decided otherwise.
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, stop)
                changed.append(number)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _saying_notes(wanted: bool) -> Iterator[None]:
    """Warnings that are meant for users are lines on stderr, each once; all others stay as Python prints them."""
    shown = warnings.showwarning
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not issubclass(category, Note):
            shown(message, category, *where)
        elif wanted and str(message) not in said:
            said.add(str(message))
            _say(f"note: {message}", "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("always", Note)
        warnings.showwarning = show
        yield


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


def _say(message: str, colour: str | None = None) -> None:
    head, colon, rest = message.partition(":") if colour else ("", "", message)
    echo(rest, head=head + colon, colour=colour, bold=True, err=True)
