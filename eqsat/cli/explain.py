"""``eqsat explain``: where does a node of an optimized model come from?"""

from __future__ import annotations

from pathlib import Path

import click

from eqsat.cli.console import echo, echo_json, fold
from eqsat.cli.shared_options import MODEL, debug_option, json_option


@click.command(short_help="Show where the nodes of an optimized model come from.")
@click.argument("model", type=MODEL)
@click.argument("node", required=False)
@click.option("--all", "every", is_flag=True, help="Show all nodes, also those that the input contains.")
@json_option("the origins")
@debug_option
def explain(model: Path, node: str | None, every: bool, as_json: bool) -> None:
    """Show from which nodes of the input NODE was made, and by which rules.

    MODEL is a file that `eqsat optimize -o` wrote. NODE is the name of a node or of its first result; for a node of the
    input, everything that was made from it is shown. Without NODE, all nodes are shown that the input does not contain.

    \b
    eqsat explain out.onnx
    eqsat explain out.onnx conv1 --json
    """
    if node is not None and every:
        raise click.UsageError("--all shows all nodes: give either NODE or --all")
    from eqsat import api
    from eqsat.explain.origin import find
    from eqsat.explain.saved_origins import read_origins
    from eqsat.report.as_json import plain

    origins = read_origins(api.load(model), str(model))
    if node is not None:
        shown = find(origins, node, str(model))
    else:
        shown = tuple(origin for origin in origins.values() if every or not origin.is_kept)
    if as_json:
        echo_json([plain(origin) for origin in shown])
        return
    for origin in shown:
        echo(fold(str(origin)))
    if not shown:
        echo("all nodes are those of the input")
