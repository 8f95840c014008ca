"""``eqsat rules discover``: finds rules over some operators that no rule implies yet."""

from __future__ import annotations

from pathlib import Path

import click

from eqsat.cli.console import echo, echo_json
from eqsat.cli.progress import showing_progress
from eqsat.cli.shared_options import MODEL, debug_option, dims_option, json_option, quiet_option, seed_option
from eqsat.cli.streams import InputPath

_FILES = InputPath()


@click.command(short_help="Find new rules.")
@click.option("--ops", "operators", metavar="NAMES", help="Elementwise operators, as in `Relu,Min,Max`.")
@click.option("--model", type=MODEL, metavar="MODEL", help="Take the model's operators, and search its e-graph.")
@dims_option
@click.option("--type", "dtype", default="float32", show_default=True, help="float32, int32, int64 or bool.")
@click.option(
    "--size",
    type=click.IntRange(1, 5),
    default=2,
    show_default=True,
    help="The greatest number of operators on a side.",
)
@click.option(
    "--variables", type=click.IntRange(1, 4), default=2, show_default=True, help="The greatest number of variables."
)
@click.option("--constants", default="0,1", show_default=True, metavar="NUMBERS", help="Numbers that may occur.")
@click.option(
    "--rules", "rules", multiple=True, type=_FILES, metavar="FILE", help="A file of further rules that are known."
)
@click.option("--no-default-rules", is_flag=True, help="Do not count the shipped rules as known.")
@seed_option("the samples")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to write the rules.")
@json_option()
@quiet_option()
@debug_option
def discover(
    operators: str | None,
    model: Path | None,
    dims: dict[str, int | str],
    dtype: str,
    size: int,
    variables: int,
    constants: str,
    rules: tuple[Path, ...],
    no_default_rules: bool,
    seed: int,
    output: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Compare all small terms of some elementwise operators by value, and print equal pairs as rules.

    Each rule was executed on random instances. Rules that known rules imply are left out.

    With --model, the model's e-graph is searched as well: classes with equal values that no rule joins become a rule
    over any operators, with the nodes at which it was found. Rules that match most often come first.

    \b
    eqsat rules discover --ops Relu,Min,Max,Neg
    eqsat rules discover --model model.onnx --size 3 -o found.rules
    """
    from eqsat.discover.find_rules import discover_rules

    numbers = _numbers(constants)
    names = [name.strip() for name in (operators or "").split(",") if name.strip()]
    if not names and model is None:
        raise click.UsageError("operators are required: give --ops Relu,Min,Max or --model MODEL")
    with showing_progress(quiet or as_json) as progress:
        found = discover_rules(
            names,
            model=model,
            dims=dims,
            dtype=dtype,
            size=size,
            variables=variables,
            constants=numbers,
            rules=rules,
            default_rules=not no_default_rules,
            seed=seed,
            progress=progress,
        )
    if output is not None:
        from eqsat.files import replacing

        with replacing(output) as file:
            file.write(found.text.encode())
    if as_json:
        echo_json(found.as_dict())
        return 0
    if output is None and found.text:
        echo(found.text)
    if not quiet:
        for line in found.notes:
            echo(line, err=True)
    return 0


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(
            f"numbers between commas are required, as in `0,1`, not {text!r}", param_hint="'--constants'"
        ) from None
