"""Options of the commands that search programs: targets, rules, and how far and how long to search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from eqsat.cli.shared_options import (
    FiniteRange,
    debug_option,
    declarations_option,
    json_option,
    memory_option,
    quiet_option,
    sizes_option,
    stacked,
    values_option,
)
from eqsat.cli.streams import InputPath

_Command = TypeVar("_Command", bound=Callable[..., Any])


def targets_option(command: _Command) -> _Command:
    """``--target``, any number of times; arrives as a tuple of texts."""
    return click.option(
        "-t",
        "--target",
        "targets",
        multiple=True,
        metavar="NAME[,NAME]",
        help='Accelerators: names from `eqsat targets list`, or paths of target files; "dnnl -launch=5e-6" changes a '
        "number. The host runs the rest.",
    )(command)


def host_option(command: _Command) -> _Command:
    """``--host``; arrives as text, None where it is not given."""
    return click.option(
        "--host",
        metavar="NAME|FILE",
        help="The target that runs everything that no accelerator takes: `cpu`, a runtime with one kernel per "
        "operator; `c`, the C that "
        "`eqsat codegen` writes; `ort`, ONNX Runtime with its fused kernels; or a target file. [default: cpu]",
    )(command)


def ops_option(command: _Command) -> _Command:
    """``--ops``; arrives as text, empty where it is not given."""
    return click.option(
        "--ops",
        metavar="DOMAINS",
        default="",
        help="Domains of the operators that rules and targets may bring into the result, separated by commas: `onnx` "
        "for the standard only, `onnx,com.microsoft` to allow those of ONNX Runtime. [default: all]",
    )(command)


def numerics_option(command: _Command) -> _Command:
    """``--numerics``."""
    return click.option(
        "--numerics",
        default="real",
        show_default=True,
        type=click.Choice(["exact", "lsb", "real", "approximate"]),
        help="How far rules may change values: not at all, in the last places, by rounding, or within an error budget.",
    )(command)


def rules_options(command: _Command) -> _Command:
    """``--rules``, ``--no-default-rules`` and ``--trust``."""
    return stacked(
        click.option(
            "-r",
            "--rules",
            multiple=True,
            type=InputPath(),
            help="A file of rules to use in addition to the shipped ones. May be repeated.",
        ),
        click.option(
            "--no-default-rules", "default_rules", flag_value=False, default=True, help="Leave out the shipped rules."
        ),
        click.option(
            "--trust", is_flag=True, help="Do not execute your own rules on random operands before they are used."
        ),
    )(command)


def limits_options(command: _Command) -> _Command:
    """``--time-limit``, ``--iterations`` and ``--enodes``: the limits of the search."""
    return stacked(
        click.option(
            "--time-limit",
            type=FiniteRange(min=0, min_open=True),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="Limit on the work of the search, in seconds of a machine of 2024; the result is the best program "
            "found so far.",
        ),
        click.option("--iterations", type=click.IntRange(min=0), metavar="N", help="Limit on the rounds of rewriting."),
        click.option("--enodes", type=click.IntRange(min=1), metavar="N", help="Limit on the size of the e-graph."),
    )(command)


def question_options(command: _Command) -> _Command:
    """All options of a search, without targets, for a command that answers a question about it."""
    return stacked(
        host_option,
        rules_options,
        sizes_option,
        values_option,
        declarations_option,
        numerics_option,
        ops_option,
        limits_options,
        json_option("the answer"),
        quiet_option(),
        memory_option,
        debug_option,
    )(command)
