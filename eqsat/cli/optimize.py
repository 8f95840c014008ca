"""``eqsat optimize``: a model in, a cheaper, partitioned and verified model out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eqsat.cli.delivery import Delivery, delivering, destination_options
from eqsat.cli.progress import showing_progress
from eqsat.cli.search_options import (
    limits_options,
    numerics_option,
    ops_option,
    rules_options,
)
from eqsat.cli.shared_options import (
    MODEL,
    debug_option,
    declarations_option,
    measure_option,
    memory_option,
    report_options,
    seed_option,
    sizes_option,
    values_option,
)


@click.command(short_help="Make a model cheaper and place it on accelerators.")
@click.argument("model", type=MODEL)
@destination_options
@rules_options
@sizes_option
@values_option
@declarations_option
@numerics_option
@ops_option
@click.option(
    "--objective",
    type=click.Choice(["best", "worst", "random"]),
    default="best",
    show_default=True,
    help="Which program to choose; `worst` and `random` are for testing rules.",
)
@limits_options
@seed_option("`--objective random` and of the numbers that verify the result")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Execute the result and compare it with MODEL."
)
@click.option(
    "--audit",
    is_flag=True,
    help="Compute and compare all expressions that the e-graph holds to be equal, not only the result.",
)
@click.option("--prove", is_flag=True, help="Prove by rules, from the two models alone, that the result equals MODEL.")
@measure_option
@report_options("every kernel and every rule")
@memory_option
@debug_option
@delivering
def optimize(model: Path, seed: int, delivery: Delivery, **options: Any) -> int:
    """Optimize MODEL for the targets and print what changed.

    Without -o nothing is written. Before the result is written, it is executed and compared with MODEL, as a whole and
    piece by piece. If the two differ, nothing is written.

    \b
    eqsat optimize model.onnx -t dnnl -o out.onnx
    eqsat optimize model.onnx -t ethos_n,dnnl --report report.html
    """
    from eqsat import api

    quiet = delivery.check()
    with showing_progress(quiet) as progress:
        result = api.optimize(model, opset=delivery.opset, seed=seed, progress=progress, **options)
        summary = delivery.summary(result, seed)
    delivery.deliver(result, summary, quiet=quiet)
    return 0
