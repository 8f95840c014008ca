"""``eqsat quantize``: a float model and samples in, the cheapest program within an error budget out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.cli.delivery import Delivery, delivering, destination_options
from eqsat.cli.progress import showing_progress
from eqsat.cli.search_options import (
    limits_options,
    rules_options,
)
from eqsat.cli.shared_options import (
    MODEL,
    FiniteRange,
    debug_option,
    declarations_option,
    measure_option,
    memory_option,
    report_options,
    sizes_option,
    values_option,
)
from eqsat.quantization.methods import ANY_METHOD, METHODS

if TYPE_CHECKING:
    from eqsat.quantization.options import Conversions

_METHODS = "; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())


@click.command(short_help="Compute with integers, within an error budget.")
@click.argument("model", type=MODEL)
@click.option(
    "-c",
    "--calibration",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DATA",
    help="Samples of the inputs: a .npz file with an array for each input, a .npy file, or a folder of them.",
)
@destination_options
@click.option(
    "-b",
    "--budget",
    "budgets",
    multiple=True,
    metavar="[OUTPUT=]DB",
    help="The lowest acceptable signal-to-quantization-noise ratio, such as 30dB, for all outputs or for one. "
    "Without it, the result is the cheapest program.",
)
@click.option(
    "--method",
    type=click.Choice(ANY_METHOD),
    default="minmax",
    show_default=True,
    help=f"How a tensor's range follows from the values seen: {_METHODS}; auto: the most accurate of these methods on "
    "the samples.",
)
@click.option(
    "--percentile",
    type=FiniteRange(50, 100, min_open=True),
    default=99.99,
    show_default=True,
    metavar="PERCENT",
    help="Percentage of the values inside the range, for the method percentile.",
)
@click.option(
    "--activation",
    type=click.Choice(["uint8", "int8"]),
    default="uint8",
    show_default=True,
    help="Element type of activations; weights are int8, biases int32.",
)
@click.option("--symmetric", is_flag=True, help="Use ranges that are symmetric around zero.")
@click.option("--per-tensor", is_flag=True, help="Use one scale per weight instead of one per output channel.")
@click.option("--nearest", is_flag=True, help="Round each weight to its nearest integer, even if errors add up.")
@click.option("--skip", multiple=True, metavar="NAME", help="A node that stays in floats. May be repeated.")
@click.option("--operators", metavar="OP[,OP]", help="Operators to quantize, such as Conv,Gemm,Relu.")
@click.option("--simulate", is_flag=True, help="Compute in floats what integers would give.")
@click.option(
    "--conversions",
    type=click.Choice(["disabled", "enabled", "fully_integral"]),
    default="disabled",
    show_default=True,
    help="Cut the result into prefix, integer core and suffix; `fully_integral` puts the whole model into the core.",
)
@click.option("--fully-integral", is_flag=True, help="The same as --conversions fully_integral.")
@rules_options
@sizes_option
@values_option
@declarations_option
@click.option(
    "--samples", type=click.IntRange(min=1), metavar="N", help="The greatest number of calibration samples to use."
)
@click.option(
    "--noise-samples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Samples on which the noise of each tensor is measured; by default 1 to 8, by the size of the model.",
)
@click.option(
    "--check-samples",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    metavar="N",
    help="Samples on which the result is measured.",
)
@click.option(
    "--sweep",
    type=click.IntRange(min=2),
    metavar="N",
    help="Compare the result with N programs from the cheapest to the most accurate.",
)
@limits_options
@measure_option
@report_options("every tensor, kernel and rule")
@memory_option
@debug_option
@delivering
def quantize(
    model: Path,
    calibration: Path,
    budgets: tuple[str, ...],
    per_tensor: bool,
    nearest: bool,
    operators: str | None,
    conversions: Conversions,
    fully_integral: bool,
    sweep: int | None,
    delivery: Delivery,
    **options: Any,
) -> int:
    """Find the cheapest program for MODEL whose error stays within the budget, with integers where they are cheaper.

    Without -o nothing is written. The error is measured on calibration samples; the result never exceeds the budget.

    \b
    eqsat quantize model.onnx -c samples.npz -o q.onnx
    eqsat quantize model.onnx -c samples/ -b 30dB -t ethos_n --report report.html -o q.onnx
    """
    from eqsat import api

    quiet = delivery.check()
    with showing_progress(quiet) as progress:
        result = api.quantize(
            model,
            calibration,
            budget=_budget(budgets),
            per_channel=not per_tensor,
            balance=not nearest,
            operators=None if operators is None else [name.strip() for name in operators.split(",") if name.strip()],
            conversions="fully_integral" if fully_integral else conversions,
            opset=delivery.opset,
            sweep=sweep or 0,
            progress=progress,
            **options,
        )
        summary = delivery.summary(result)
    delivery.deliver(result, summary, quiet=quiet)
    return 0


def _budget(texts: tuple[str, ...]) -> dict[str, str | float | None] | str | None:
    """The form that ``api.quantize`` takes: one for all outputs, or one by output name."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    budgets: dict[str, str | float | None] = {}
    for text in texts:
        # Names may contain "=", numbers do not.
        name, equals, value = text.rpartition("=")
        if not equals:
            raise click.BadParameter(f"{text!r}: several budgets are given as OUTPUT=DB each", param_hint="'--budget'")
        if name in budgets:
            raise click.BadParameter(f"output {name!r} is given twice", param_hint="'--budget'")
        budgets[name] = value
    return budgets
