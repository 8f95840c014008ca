"""``eqsat compare``: do two models compute the same, and where do they first differ?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.cli.console import echo, echo_json, fold, no_answer
from eqsat.cli.shared_options import (
    MODEL,
    FiniteRange,
    debug_option,
    declarations_option,
    dims_option,
    execution_options,
    inputs_option,
    json_option,
    quiet_option,
    read_inputs,
    seed_option,
    values_option,
)
from eqsat.text import name_of

if TYPE_CHECKING:
    from eqsat.execute.compare import Comparison


@click.command(short_help="Check whether two models compute the same, and report where they first differ.")
@click.argument("first", type=MODEL)
@click.argument("second", type=MODEL)
@inputs_option
@dims_option
@values_option
@declarations_option
@seed_option("the inputs that are not given")
@click.option(
    "--rtol",
    type=FiniteRange(min=0),
    metavar="X",
    help="Allowed difference, relative to the largest magnitude in the tensor.  [default: by element type]",
)
@click.option("--atol", type=FiniteRange(min=0), metavar="X", help="Allowed absolute difference.  [default: 0]")
@click.option("--exact", is_flag=True, help="Equal to the bit; the same as --rtol 0 --atol 0.")
@json_option("the comparison")
@quiet_option("Print nothing; the exit code gives the answer.")
@execution_options
@debug_option
def compare(
    first: Path,
    second: Path,
    inputs: tuple[str, ...],
    dims: dict[str, int | str],
    values: dict[str, Any],
    seed: int,
    rtol: float | None,
    atol: float | None,
    exact: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Execute FIRST and SECOND on the same input and compare their outputs.

    If they differ, inner tensors with the same name are compared as well, and the first in execution order that differs
    is named. The exit code is 0 if all outputs agree, 1 if one differs, and 2 if a model or an input is wrong. Integers
    of up to 16 bits may differ by one, also if they are dequantized, as rounding does, unless --exact is given.
    """
    if exact and (rtol or atol):
        raise click.UsageError("--exact leaves no tolerance: give either --exact or --rtol and --atol")
    from eqsat import api
    from eqsat.cli.progress import showing_stage
    from eqsat.errors import EqsatError
    from eqsat.execute.inputs import input_names

    try:
        with showing_stage("load", quiet or as_json):
            a, b = api.load(first), api.load(second)
        given = read_inputs(inputs, input_names(a))
        numerics = "exact" if exact else "real"
        with showing_stage("verify", quiet or as_json):
            comparison = api.compare(
                a, b, given, dims=dims, values=values, seed=seed, numerics=numerics, rtol=rtol, atol=atol
            )
    except EqsatError as error:
        return no_answer(error)
    if as_json:
        echo_json(_to_dict(comparison))
    elif not quiet:
        _print(comparison, first, second)
    return 0 if comparison.agrees else 1


def _to_dict(comparison: Comparison) -> dict[str, Any]:
    from eqsat.report.as_json import plain

    return {"agrees": comparison.agrees, **plain(comparison)}


def _print(comparison: Comparison, first: Path, second: Path) -> None:
    for difference in comparison.outputs:
        verdict, colour = ("same", "green") if difference.agrees else ("DIFFERENT", "red")
        # The rest of a long line is printed below the name.
        line = fold(f"{' ' * len(verdict)}  {name_of(difference.name)}  {difference}", indent=2)
        echo(line[len(verdict) :], head=verdict, colour=colour)
    if comparison.agrees:
        echo(f"PASSED: {first} and {second} compute the same")
        return
    if comparison.first is not None:
        echo(fold(f"first     {name_of(comparison.first.name)}  {comparison.first}", indent=10))
        echo(
            fold(f"          of {comparison.shared:,} tensors with the same name in both models, in execution order", 0)
        )
    echo(f"FAILED: {first} and {second} differ")
