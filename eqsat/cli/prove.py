"""``eqsat prove``: are two models equal, proven by rules?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.cli.console import echo, echo_json, no_answer
from eqsat.cli.progress import showing_progress
from eqsat.cli.search_options import numerics_option, rules_options
from eqsat.cli.shared_options import (
    MODEL,
    FiniteRange,
    debug_option,
    declarations_option,
    json_option,
    memory_option,
    quiet_option,
    seed_option,
    sizes_option,
    values_option,
)
from eqsat.errors import EqsatError
from eqsat.text import name_of

if TYPE_CHECKING:
    from eqsat.equivalence.verdict import Equivalence

MOST_JOINTS = 20
"""Tensors that are listed without ``--verbose``."""
CODES = {"equal": 0, "different": 1, "not proven": 3}


@click.command(short_help="Prove that two models are equal, or find an input on which they differ.")
@click.argument("first", type=MODEL)
@click.argument("second", type=MODEL)
@sizes_option
@values_option
@declarations_option
@rules_options
@numerics_option
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Inputs on which both models are executed.",
)
@seed_option("these inputs")
@click.option(
    "--save-inputs",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the input on which the models differ; the name ends in .npz.",
)
@click.option(
    "--time-limit",
    type=FiniteRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of the proof.",
)
@click.option("-v", "--verbose", is_flag=True, help="List all tensors that rules joined.")
@json_option("the result")
@quiet_option("Print nothing; the exit code gives the answer.")
@memory_option
@debug_option
def prove(
    first: Path,
    second: Path,
    save_inputs: Path | None,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Prove by rules that FIRST and SECOND compute the same, for all inputs and all free sizes.

    The exit code is 0 if they are proven equal, 1 if an input shows that they differ, 3 if neither is known, and 2 if a
    model or a rule is wrong. --dim names the dimensions of FIRST.

    \b
    eqsat prove model.onnx simplified.onnx
    eqsat prove model.onnx other.onnx --dim batch=1 --save-inputs differ.npz
    """
    from eqsat import api
    from eqsat.execute.array_files import storable, write_arrays
    from eqsat.files import replacing

    if save_inputs is not None and save_inputs.suffix != ".npz":
        raise click.BadParameter(f"{save_inputs} does not end in .npz", param_hint="'--save-inputs'")
    try:
        with showing_progress(quiet or as_json) as progress:
            found = api.prove(first, second, progress=progress, **options)
        if save_inputs is not None and found.counterexample is not None:
            with replacing(save_inputs) as file:
                write_arrays(file, storable(found.counterexample.inputs))
    except EqsatError as error:
        return no_answer(error)
    if as_json:
        echo_json(to_dict(found))
    elif not quiet:
        _print(found, first, second, save_inputs, verbose)
    return CODES[found.verdict]


def to_dict(found: Equivalence) -> dict[str, Any]:
    """The result without arrays."""
    from dataclasses import replace

    from eqsat.report.as_json import plain

    example = found.counterexample
    result = plain(replace(found, counterexample=None))
    shown = None if example is None else {"number": example.number, "difference": plain(example.difference)}
    return {**result, "counterexample": shown}


def _print(found: Equivalence, first: Path, second: Path, saved: Path | None, verbose: bool) -> None:
    from eqsat.report.trust import count_of_rules, weakest_proof

    for note in found.notes:
        echo(f"note      {note}")
    for a, b, proven in found.outputs:
        names = name_of(a) if a == b else f"{name_of(a)} = {name_of(b)}"
        echo(f"  {names}", head="proven" if proven else "open  ", colour="green" if proven else "yellow")
    shown = found.joints if verbose else found.joints[:MOST_JOINTS]
    for joint in shown:
        echo(
            f"joined    {name_of(joint.first)} ({name_of(joint.operators[0])}) = "
            f"{name_of(joint.second)} ({name_of(joint.operators[1])}): "
            f"{', '.join(_with_verdict(r, found) for r in joint.rules)} [{joint.numerics}]"
            + (f" within the {joint.model} model" if joint.model else "")
        )
    if len(shown) < len(found.joints):
        echo(f"          and {len(found.joints) - len(shown):,} more, which --verbose lists")
    if found.trust.rules:
        echo(f"trust     {count_of_rules(found.trust)}; {weakest_proof(found.trust)}")
    for place in found.places:
        echo(f"apart     {place}")
    if found.stop_reason:
        echo(f"stopped   {found.stop_reason}")
    if found.counterexample is not None and saved is not None:
        echo(f"saved     {saved}")
    head, colour = {"equal": ("PROVEN", "green"), "different": ("DIFFERENT", "red")}.get(
        found.verdict, ("NOT PROVEN", "yellow")
    )
    echo(f": {first} and {second} are {found}", head=head, colour=colour)


def _with_verdict(step: str, found: Equivalence) -> str:
    """A step of a chain; a rule with its verdict."""
    verdicts = found.trust.verdicts
    return f"{step} ({verdicts[step] or 'no verdict'})" if step in verdicts else step
