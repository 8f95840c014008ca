"""``eqsat optimize``: a model in, a cheaper, partitioned and verified model out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from eqsat.cli.console import echo
from eqsat.cli.options import (
    MODEL,
    debug_option,
    declarations_option,
    external_data_option,
    flat_option,
    measure_option,
    memory_option,
    opset_option,
    output_option,
    report_options,
    seed_option,
    sizes_option,
    values_option,
)
from eqsat.cli.progress import showing_progress
from eqsat.cli.search_options import (
    host_option,
    limits_options,
    numerics_option,
    ops_option,
    rules_options,
    targets_option,
)
from eqsat.cli.streams import check_output
from eqsat.cli.summary import measured, print_summary, with_command

if TYPE_CHECKING:
    from eqsat.rules.selection import NumericsClass


@click.command(short_help="Make a model cheaper and place it on accelerators.")
@click.argument("model", type=MODEL)
@output_option
@opset_option
@external_data_option
@flat_option
@targets_option
@host_option
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
    help="Which program to choose; `worst` and `random` serve to test rules.",
)
@limits_options
@seed_option("`--objective random` and of the numbers that verify the result")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Execute the result against the input model."
)
@click.option(
    "--audit", is_flag=True, help="Compute all expressions that the e-graph holds to be equal, not only the result."
)
@click.option("--prove", is_flag=True, help="Prove by rules, from the two models alone, that the result equals MODEL.")
@measure_option
@report_options("every kernel and every rule")
@memory_option
@debug_option
def optimize(
    model: Path,
    output: Path | None,
    opset: int | None,
    external_data: str | None,
    flat: bool,
    targets: tuple[str, ...],
    host: str | None,
    rule_files: tuple[Path, ...],
    default_rules: bool,
    trust: bool,
    dims: dict[str, int | tuple[int, int | None] | tuple[int, int | None, int]],
    values: dict[str, Any],
    numerics: NumericsClass,
    ops: str,
    objective: Literal["best", "worst", "random"],
    time_limit: float,
    iterations: int | None,
    enodes: int | None,
    seed: int,
    verify: bool,
    audit: bool,
    prove: bool,
    measure: bool,
    report: Path | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Optimize MODEL for the targets and print what that changes.

    Without -o nothing is written. The result is executed against MODEL, as a whole and piece by piece, before
    it is written; if the two disagree, it is not.

    \b
    eqsat optimize model.onnx -t dnnl -o out.onnx
    eqsat optimize model.onnx -t ethos_n,dnnl --report report.html
    """
    from eqsat import api
    from eqsat.report.write import check_suffix, write

    if report is not None:
        check_suffix(report)
    quiet = check_output(output, as_json) or quiet
    with showing_progress(quiet) as progress:
        result = api.optimize(
            model,
            targets=targets,
            host=host,
            rules=rule_files,
            default_rules=default_rules,
            trust=trust,
            dims=dims,
            values=values,
            numerics=numerics,
            ops=ops,
            objective=objective,
            time_limit=time_limit,
            iterations=iterations,
            enodes=enodes,
            seed=seed,
            progress=progress,
            audit=audit,
            verify=verify,
            prove=prove,
        )
        summary = with_command(measured(result, seed) if measure else result.summary)
    if report is not None:
        write(summary, report)
    print_summary(summary, as_json=as_json, verbose=verbose, quiet=quiet)
    if output is not None:
        result.save(output, opset=opset, external_data=True if external_data == "" else external_data, flat=flat)
        if not quiet and not as_json:
            echo(f"saved     {output}")
    return 0
