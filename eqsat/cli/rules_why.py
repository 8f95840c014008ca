"""``eqsat rules why``: why does a rule, or a composite of a target, not apply to a model?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eqsat.cli.console import echo, echo_json, fold
from eqsat.cli.progress import showing_progress
from eqsat.cli.search_options import question_options, targets_option
from eqsat.cli.shared_options import MODEL


@click.command(short_help="Show why a rule does not apply to a model.")
@click.argument("name")
@click.argument("model", type=MODEL)
@click.option("--node", metavar="N", help="Only at this node, given by its name or that of a result.")
@click.option(
    "--places", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="Places that are listed."
)
@targets_option
@question_options
def why(name: str, model: Path, as_json: bool, quiet: bool, **options: Any) -> None:
    """Show where the rule NAME applies to MODEL or nearly does, and the first thing that is missing.

    The pattern is matched against all spellings of MODEL that the rules derive. NAME is a rule, or a composite with its
    target.

    \b
    eqsat rules why fold_batchnorm_into_conv model.onnx
    eqsat rules why my_rule model.onnx --rules my.rules --node conv1
    eqsat rules why dnnl.conv_sum model.onnx
    """
    from eqsat.reasons import explain_rule
    from eqsat.report.as_json import plain

    with showing_progress(quiet or as_json) as progress:
        found = explain_rule(model, name, progress=progress, **options)
    if as_json:
        echo_json(plain(found))
    else:
        echo(fold(str(found)))
