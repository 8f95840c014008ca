"""``eqsat targets why``: why does an operator of a model not run on an accelerator?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eqsat.cli.console import echo, echo_json, fold
from eqsat.cli.progress import showing_progress
from eqsat.cli.search_options import question_options
from eqsat.cli.shared_options import MODEL


@click.command(short_help="Show why operators of a model do not run on a target.")
@click.argument("targets", metavar="TARGET")
@click.argument("model", type=MODEL)
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option(
    "--places",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Without NODE: how many of the most expensive operators on the host to explain.",
)
@question_options
def why(targets: str, model: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Show for each NODE of MODEL the cheapest equal program in which TARGET runs it, and how much more it costs.

    If there is no such program, the condition that fails is shown, or the composite that comes nearest to a match.

    \b
    eqsat targets why dnnl model.onnx
    eqsat targets why dnnl model.onnx conv1 --json
    """
    from eqsat.reasons import explain_placement
    from eqsat.report.as_json import plain

    with showing_progress(quiet or as_json) as progress:
        found = explain_placement(model, targets, progress=progress, **options)
    if as_json:
        echo_json([plain(placement) for placement in found])
        return
    for placement in found:
        echo(fold(str(placement)))
    if not found:
        echo("no operator runs on the host")
