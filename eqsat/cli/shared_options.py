"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from eqsat.cli.streams import InputPath, OutputPath

if TYPE_CHECKING:
    import numpy as np

    from eqsat.model.read.given_sizes import GivenSize
    from eqsat.schema.free_sizes import FreeSize

_Command = TypeVar("_Command", bound=Callable[..., Any])

MODEL = InputPath()

EXECUTION_SECONDS = 60.0
"""Seconds that a model may be executed by default."""


def debug_option(command: _Command) -> _Command:
    """``--debug``; the entry point looks for it itself, since errors end up there."""
    return click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")(command)


def seed_option(what: str) -> Callable[[_Command], _Command]:
    """``--seed``."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help=f"Seed of {what}."
    )


def dims_option(command: _Command) -> _Command:
    """``--dim N=1``, any number of times; arrives as a dictionary."""
    help_text = (
        "Bind a symbolic dimension of the model's inputs to a size, or to an expression of other dimensions such as "
        "P+S. May be repeated."
    )
    return _dim_option("NAME=SIZE", _dims, help_text)(command)


def sizes_option(command: _Command) -> _Command:
    """``--dim`` for sizes or ranges of sizes; arrives as a dictionary of numbers and tuples."""
    help_text = (
        "Bind a symbolic dimension of the model's inputs to a size or to an expression of other dimensions such as "
        "P+S; or give its range and the sizes for which costs are computed, or only these sizes. May be repeated."
    )
    return _dim_option("NAME=SIZE[,SIZE...]|FROM..TO[@SIZE[,SIZE...]]", _sizes, help_text)(command)


def _dim_option(form: str, read: Callable[..., Any], help_text: str) -> Callable[[_Command], _Command]:
    return click.option("--dim", "dims", multiple=True, metavar=form, callback=read, help=help_text)


def values_option(command: _Command) -> _Command:
    """``--set NAME=VALUE``, any number of times; arrives as a dictionary."""
    return click.option(
        "--set",
        "values",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_values,
        help="Make an input of the model a constant: a number, `true`, a list such as [1, 2], or text. May be "
        "repeated.",
    )(command)


def declarations_option(command: _Command) -> _Command:
    """``--declarations``, any number of times: what the files declare is known while the command runs."""

    @wraps(command)
    def knowing(*args: Any, declarations: tuple[Path, ...], **kwargs: Any) -> Any:
        if not declarations:
            return command(*args, **kwargs)
        from eqsat.rules.user_operators import declarations as declaring

        with declaring(*declarations):
            return command(*args, **kwargs)

    return click.option(
        "--declarations",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A rule or target file that declares operators of your own domain, or a Python file that does; eqsat "
        "runs that file. May be repeated.",
    )(cast(_Command, knowing))


def vendors_option(what: str) -> Callable[[_Command], _Command]:
    """``--vendor``, any number of times."""
    return click.option("--vendor", "vendors", multiple=True, metavar="TARGET", help=what)


def check_backends(files: Sequence[str], known: Sequence[str] = ()) -> tuple[str, ...]:
    """The Python files among what ``--backend`` was given."""
    found = tuple(name for name in files if name not in known)
    for name in found:
        if not name.endswith(".py"):
            others = "".join(f"{k} or " for k in known)
            raise click.BadParameter(f"{others}a .py file is required, got {name!r}", param_hint="'--backend'")
    return found


def inputs_option(command: _Command) -> _Command:
    """``--input``, any number of times; arrives as a tuple of texts for :func:`read_inputs`."""
    return click.option(
        "--input",
        "-i",
        "inputs",
        multiple=True,
        metavar="[NAME=]FILE",
        help="An array from a .npy file (NAME may be left out if the model has one input), "
        "or arrays by input name from a .npz file. Inputs not given are drawn at random.",
    )(command)


def output_option(command: _Command) -> _Command:
    """``--output``: the file of a model; nothing is written without it."""
    return click.option(
        "-o", "--output", type=OutputPath(), help="Where to write the result; `-` for standard output."
    )(command)


OPSETS = (7, 26)
"""The opsets that can be written. What says so (``eqsat.model.write.older``) takes long to import; a test compares."""


def opset_option(command: _Command) -> _Command:
    """``--opset``: the newest opset of the file."""
    return click.option(
        "--opset",
        type=click.IntRange(*OPSETS),
        help="The newest ONNX opset that the search may use; by default that of MODEL, or the oldest one that the "
        "result needs.",
    )(command)


def external_data_option(command: _Command) -> _Command:
    """``--external-data``: a file for the weights."""
    return click.option(
        "--external-data",
        is_flag=False,
        flag_value="",
        metavar="[FILE]",
        help="Write the weights to a file beside the result: FILE, a plain name, by default that of the result plus "
        "`.data`. Weights of a gigabyte or more are always written this way.",
    )(command)


def flat_option(command: _Command) -> _Command:
    """``--flat``: a file without functions."""
    return click.option(
        "--flat",
        is_flag=True,
        help="Write regions and composites as plain nodes with metadata, for tools that do not support functions. "
        "eqsat reads them back.",
    )(command)


class FiniteRange(click.FloatRange):
    """Numbers in a range; ``nan`` compares as if it were in any, and infinity is not accepted."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def memory_option(command: _Command) -> _Command:
    """``--memory-limit``, which holds for all that the command does."""

    @wraps(command)
    def limited(*args: Any, memory_limit: str | None, **kwargs: Any) -> Any:
        from eqsat.bounds import bounded

        with bounded(memory=memory_limit):
            return command(*args, **kwargs)

    return cast(
        _Command,
        click.option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory that tensors may take at the same time, such as 8GB.  [default: half of the memory]",
        )(limited),
    )


def execution_options(command: _Command) -> _Command:
    """``--time-limit``, ``--memory-limit`` and ``--steps`` of a command that executes models."""

    @wraps(command)
    def limited(*args: Any, time_limit: float, memory_limit: str | None, steps: int | None, **kwargs: Any) -> Any:
        from eqsat.bounds import bounded

        with bounded(memory=memory_limit, seconds=time_limit, steps=steps):
            return command(*args, **kwargs)

    return stacked(
        click.option(
            "--time-limit",
            type=float,
            default=EXECUTION_SECONDS,
            show_default=True,
            metavar="SECONDS",
            help="Time limit for loading and executing; longer work ends with a message.",
        ),
        click.option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory that tensors may take at the same time, such as 8GB.  [default: half of the memory]",
        ),
        click.option(
            "--steps",
            type=click.IntRange(min=1),
            metavar="N",
            help="The greatest number of operators to execute, counting each iteration of a loop.  [default: 5 "
            "million]",
        ),
    )(cast(_Command, limited))


def report_options(details: str) -> Callable[[_Command], _Command]:
    """``--report``, and how much of the report is printed: ``--json``, ``--verbose`` and ``--quiet``.

    Args:
        details: What ``--verbose`` adds.
    """
    return stacked(
        click.option(
            "--report",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Where to write the report; the name ends in .html, .json, .txt, or .svg (both graphs).",
        ),
        json_option("the report"),
        click.option("-v", "--verbose", is_flag=True, help=f"Print {details} as well."),
        quiet_option(),
    )


def measure_option(command: _Command) -> _Command:
    """``--measure``."""
    return click.option(
        "--measure",
        is_flag=True,
        help="Compile the result as C, run it on random inputs, and add the time of each kernel to the report.",
    )(command)


def json_option(what: str | None = None) -> Callable[[_Command], _Command]:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {f'{what} ' if what else ''}as JSON.")


def quiet_option(what: str = "Print nothing but errors.") -> Callable[[_Command], _Command]:
    """``--quiet``."""
    return click.option("-q", "--quiet", is_flag=True, help=what)


def stacked(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        # As decorators written one below the other, so that ``--help`` shows them in this order.
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def read_inputs(given: tuple[str, ...], names: list[str]) -> dict[str, np.ndarray]:
    """The arrays named on the command line.

    Args:
        given: ``NAME=x.npy``, ``x.npy`` or ``all.npz``.
        names: The model's inputs.
    """
    from eqsat.execute.array_files import read_arrays

    arrays: dict[str, np.ndarray] = {}
    for text in given:
        name, file = _split_input(text, names)
        path = Path(file)
        if not path.is_file():
            raise click.BadParameter(f"{file!r} is not a file", param_hint="'--input'")
        try:
            content = read_arrays(path)
        except ValueError as error:
            raise click.BadParameter(f"{file}: not a .npy or .npz file ({error})", param_hint="'--input'") from error
        loaded: dict[str | None, np.ndarray] = {**content} if isinstance(content, dict) else {name: content}
        if isinstance(content, dict) and name is not None:
            raise click.BadParameter(f"{text}: a .npz file names its arrays itself", param_hint="'--input'")
        for key, array in loaded.items():
            if key is None:
                raise click.BadParameter(
                    f"{text}: say which input this is, as NAME={file}; the model has {', '.join(names) or 'none'}",
                    param_hint="'--input'",
                )
            if key not in names:
                raise click.BadParameter(
                    f"{text}: the model has no input {key!r}; it has {', '.join(names) or 'none'}",
                    param_hint="'--input'",
                )
            if key in arrays:
                raise click.BadParameter(f"input {key!r} is given twice", param_hint="'--input'")
            arrays[key] = array
    return arrays


def _split_input(text: str, names: list[str]) -> tuple[str | None, str]:
    # Names of tensors may contain "=", and so may paths: an existing name in front decides.
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    if Path(text).is_file() or "=" not in text:
        return (names[0] if len(names) == 1 and not text.endswith(".npz") else None), text
    name, _, file = text.partition("=")
    return name, file


def _values(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text[:80]!r} is not of the form NAME=VALUE, such as sr=16000")
        if name in found:
            raise click.BadParameter(f"{name} is given twice")
        try:
            found[name] = json.loads(value)  # a text that is not JSON means itself
        except (ValueError, RecursionError):
            found[name] = value
    return found


def _sizes(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, GivenSize]:
    found: dict[str, GivenSize] = {}
    for text in values:
        match = _SIZES.fullmatch(text)
        if match is not None:
            name, listed, least, most, usual = match.groups()
            value = _numbers(listed) if listed else _free_size(least, most, usual)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
        elif (expression := _EXPRESSION.fullmatch(text)) is not None:
            name, value = expression.groups()
        else:
            forms = (
                "NAME=SIZE, NAME=SIZE,SIZE,..., NAME=FROM..TO, NAME=FROM..TO@TYPICAL or NAME=EXPRESSION, such as "
                "N=1, N=1,8,64, seq=1..512@128 or total=past+1"
            )
            raise click.BadParameter(f"{text[:80]!r} is not of the form {forms}")
        if found.setdefault(name, value) != value:
            raise click.BadParameter(f"{name} is given twice")
    return found


def _free_size(least: str | None, most: str | None, usual: str | None) -> FreeSize:
    from eqsat.schema.free_sizes import FreeSize

    return FreeSize(int(least or 1), int(most) if most else None, 0, tuple(_numbers(usual)) if usual else ())


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


_NUMBERS = r"\d{1,18}(?:,\d{1,18})*"
_SIZES = re.compile(rf"(.+)=(?:({_NUMBERS})|(\d{{1,18}})?\.\.(\d{{1,18}})?(?:@({_NUMBERS}))?)", re.ASCII)


_EXPRESSION = re.compile(r"(.+)=(?=[^=]*[^\W\d])(?!.*\.\.)([-(\w\s][-+*/()\w.\s]*)")
"""A dimension and an expression of others; what is wrong with it is said where the dimensions are known."""


def _dims(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, int | str]:
    dims: dict[str, int | str] = {}
    for text in values:
        name, equals, written = text.rpartition("=")
        is_number = written.isdecimal() and len(written) <= 18
        is_expression = _EXPRESSION.fullmatch(text) is not None
        if not equals or not name or not (is_number or is_expression):
            raise click.BadParameter(
                f"{text[:80]!r} is not of the form NAME=SIZE or NAME=EXPRESSION, such as N=1 or total=past+1"
            )
        size = int(written) if is_number else written
        if dims.setdefault(name, size) != size:
            raise click.BadParameter(f"{name} is given twice, as {dims[name]} and as {size}")
    return dims
