"""``eqsat optimize``: a model in, a cheaper, partitioned and verified model out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from eqsat.cli.console import echo
from eqsat.cli.options import (
    MODEL,
    chosen_rules,
    debug_option,
    dims_option,
    limits_options,
    memory_option,
    output_option,
    report_options,
    rules_options,
    seed_option,
    targets_option,
)
from eqsat.cli.progress import showing_progress
from eqsat.cli.summary import print_summary

if TYPE_CHECKING:
    from eqsat.execute.compare import Comparison
    from eqsat.report.summary import Verification
    from eqsat.rules.select import NumericsClass


@click.command(short_help="Make a model cheaper and place it on accelerators.")
@click.argument("model", type=MODEL)
@output_option
@targets_option
@rules_options
@dims_option
@click.option(
    "--numerics",
    default="real",
    show_default=True,
    type=click.Choice(["exact", "lsb", "real", "approximate"]),
    help="How far rules may change values: not at all, in the last place, by rounding, within a budget.",
)
@click.option(
    "--objective",
    type=click.Choice(["best", "worst", "random"]),
    default="best",
    show_default=True,
    help="Which program to take; `worst` and `random` serve to test rules.",
)
@limits_options
@seed_option("`--objective random` and of the input that verifies the result")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Execute the result against the input model."
)
@click.option(
    "--audit", is_flag=True, help="Compute everything that the e-graph holds for equal, and not only the result."
)
@report_options("every kernel and every rule")
@memory_option
@debug_option
def optimize(
    model: Path,
    output: Path | None,
    targets: tuple[str, ...],
    rule_files: tuple[Path, ...],
    no_default_rules: bool,
    dims: dict[str, int],
    numerics: NumericsClass,
    objective: Literal["best", "worst", "random"],
    time_limit: float,
    iterations: int | None,
    enodes: int | None,
    seed: int,
    verify: bool,
    audit: bool,
    report: Path | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Optimize MODEL for the targets and print what that changes.

    Without -o nothing is written. The result is executed against MODEL on a random input before it is
    written; if the two disagree, it is not.

    \b
    eqsat optimize model.onnx -t dnnl -o out.onnx
    eqsat optimize model.onnx -t ethos_n,dnnl --report report.html
    """
    from eqsat import api
    from eqsat.errors import OptimizationError
    from eqsat.report.event import Event
    from eqsat.report.write import check_suffix, write

    if report is not None:
        check_suffix(report)
    with showing_progress(quiet) as progress:
        result = api.optimize(
            model,
            targets=targets,
            rules=chosen_rules(rule_files, no_default_rules),
            dims=dims,
            numerics=numerics,
            objective=objective,
            time_limit=time_limit,
            iterations=iterations,
            enodes=enodes,
            seed=seed,
            progress=progress,
            audit=audit,
        )
        summary, comparison = result.summary, None
        if verify:
            if progress is not None:
                progress(Event("verify"))
            comparison = api.compare(model, result.model, dims=dims, seed=seed, numerics=numerics)
            summary = dataclasses.replace(summary, verification=_verification(comparison))

    if report is not None:
        write(summary, report)
    print_summary(summary, as_json=as_json, verbose=verbose, quiet=quiet)
    if comparison is not None and not comparison.agrees:
        raise OptimizationError(
            "the optimized model computes what the input model computes",
            place=str(model),
            actual=_difference(comparison),
            hint="Nothing was written. One of the rules is wrong or too coarse for this model: try --numerics exact, "
            "and look for the rule with `eqsat rules check`. --no-verify writes the result as it is.",
        )
    if output is not None:
        result.save(output)
        if not quiet and not as_json:
            echo(f"saved     {output}")
    return 0


def _verification(comparison: Comparison) -> Verification:
    from eqsat.report.summary import Verification

    return Verification(
        agrees=comparison.agrees,
        outputs=len(comparison.outputs),
        max_abs_error=comparison.max_abs_error,
        max_rel_error=comparison.max_rel_error,
        seed=comparison.seed,
    )


def _difference(comparison: Comparison) -> str:
    worst = next(d for d in comparison.outputs if not d.agrees)
    first = comparison.first
    where = f"; they first differ at {first.name!r}" if first is not None and first.name != worst.name else ""
    return f"output {worst.name!r}: {worst}{where}"
