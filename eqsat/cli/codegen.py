"""``eqsat codegen``: write a model as a C program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.cli.backends import quietly, show_coverage
from eqsat.cli.console import echo, echo_json
from eqsat.cli.search_options import numerics_option
from eqsat.cli.shared_options import (
    MODEL,
    check_backends,
    debug_option,
    declarations_option,
    inputs_option,
    json_option,
    memory_option,
    quiet_option,
    read_inputs,
    seed_option,
    sizes_option,
    values_option,
    vendors_option,
)
from eqsat.cli.streams import FolderPath
from eqsat.cli.threads import threads_option

if TYPE_CHECKING:
    from eqsat.codegen.emitted import Emitted
    from eqsat.codegen.select import KernelSelection
    from eqsat.codegen.weights import WeightsForm
    from eqsat.model.read.given_sizes import GivenSize
    from eqsat.rules.selection import NumericsClass


@click.command(short_help="Write a model as a C program.")
@click.argument("model", type=MODEL)
@click.option(
    "-o",
    "--output",
    required=True,
    type=FolderPath(),
    help="The folder to write to; it is created if it does not exist.",
)
@click.option("--name", default="model", show_default=True, help="The name of files and functions.")
@click.option(
    "--weights",
    type=click.Choice(["string", "incbin", "blob"]),
    help="Weights as string literals, as a file that the assembler includes, or as one that the program loads.  "
    "[default: string, incbin for more than 16 MB]",
)
@click.option(
    "--isa",
    "isas",
    multiple=True,
    metavar="NAME",
    help="Write kernels for this instruction set (avx512, avx2) in addition to those that run everywhere. May be "
    "repeated; "
    "all by default.",
)
@threads_option("The number of threads that may share large kernels. The function then receives a pool of threads.")
@click.option(
    "--winograd",
    is_flag=True,
    help="Compute convolutions by Winograd's algorithm where it is faster: up to three times as fast, with ten times "
    "the rounding error and four times the weights.",
)
@numerics_option
@click.option(
    "--host",
    metavar="NAME|FILE",
    help="The host whose file gives the costs of kernels, such as one that `eqsat targets calibrate` wrote. "
    "[default: c]",
)
@click.option(
    "--no-select",
    is_flag=True,
    help="Do not search for kernels and layouts: each operator gets the most specialised kernel that accepts it, in "
    "the layout that this kernel prefers.",
)
@vendors_option("Write the calls of this target's backend. May be repeated.  [default: those of all backends found]")
@click.option(
    "--backend",
    "given_backends",
    multiple=True,
    metavar="FILE.py",
    help="Write the calls of the backend in this Python file, which is run. May be repeated.",
)
@click.option(
    "--memory-map", is_flag=True, help="Print the place of each tensor in the arena, and its first and last kernel."
)
@inputs_option
@sizes_option
@values_option
@declarations_option
@seed_option("the stored inputs that are not given")
@json_option("what was written, kernel by kernel,")
@quiet_option()
@memory_option
@debug_option
def codegen(
    model: Path,
    output: Path,
    name: str,
    weights: WeightsForm | None,
    isas: tuple[str, ...],
    threads: int,
    winograd: bool,
    numerics: NumericsClass,
    host: str | None,
    no_select: bool,
    vendors: tuple[str, ...],
    given_backends: tuple[str, ...],
    memory_map: bool,
    inputs: tuple[str, ...],
    dims: dict[str, GivenSize],
    values: dict[str, Any],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    """Write MODEL, optimized or not, as a C program that checks itself.

    \b
    eqsat codegen model.onnx -o out
    cmake -B out/build out && cmake --build out/build && ctest --test-dir out/build
    """
    from eqsat import api
    from eqsat.cli.progress import showing_progress, showing_stage
    from eqsat.codegen.dequantized import dequantized_products
    from eqsat.execute.inputs import input_names
    from eqsat.model.read.given_sizes import split

    bound, ranges = split(dims)
    with showing_stage("load", quiet or as_json):
        loaded = api.load(model, dims=bound, values=values)
    given = read_inputs(inputs, input_names(loaded))
    with quietly(), showing_progress(quiet or as_json) as progress:
        emitted = api.write_c(
            loaded,
            output,
            name=name,
            weights=weights,
            isas=isas or None,
            threads=threads,
            inputs=given,
            dims=ranges,
            seed=seed,
            winograd=winograd,
            numerics=numerics,
            host=host,
            select=not no_select,
            vendors=vendors or None,
            backends=check_backends(given_backends),
            progress=progress,
        )
    if as_json:
        echo_json(as_dict(emitted) | {"quantized_in_floats": dequantized_products(loaded)})
    if quiet or as_json:
        return 0
    if memory_map:
        show_memory_map(emitted)
    bound = emitted.plan.bound
    above = f", {emitted.plan.size / bound - 1:.1%} above the tensors live at once" if emitted.plan.size > bound else ""
    echo(f"wrote     {output} ({name}.h, {name}.c, main.c, CMakeLists.txt)")
    echo(f"kernels   {len(emitted.kernels):,}")
    if emitted.threads > 1:
        echo(f"threads   up to {emitted.threads:,} share {emitted.shared:,} of the kernels")
    if emitted.selection is not None:
        echo(f"chosen    {chosen(emitted.selection)}")
    for size in emitted.sizes:
        echo(f"size      {size.name}, from {size.least:,} to {size.most:,}")
    echo(f"arena     {emitted.arena:,} bytes{above}")
    echo(f"weights   {len(emitted.weights):,} bytes")
    if spelled := dequantized_products(loaded):
        operators = "1 quantized operator is" if spelled == 1 else f"{spelled:,} quantized operators are"
        echo(
            f"hint      {operators} spelled with DequantizeLinear and QuantizeLinear, so computed in floats; "
            f"run `eqsat optimize {model} -o FILE` first to get integer operators"
        )
    show_coverage(emitted.coverage, "in portable C")
    return 0


def as_dict(emitted: Emitted) -> dict[str, Any]:
    """The generated files and statistics; sizes in bytes, times in seconds."""
    from dataclasses import asdict

    from eqsat.schema.size_questions import as_dim

    return {
        "name": emitted.name,
        "model": emitted.model,
        "inputs": [asdict(argument) | {"shape": list(argument.dims)} for argument in emitted.inputs],
        "outputs": [asdict(argument) | {"shape": list(argument.dims)} for argument in emitted.outputs],
        "sizes": [asdict(size) for size in emitted.sizes],
        "threads": emitted.threads,
        "shared_kernels": emitted.shared,
        "arena": emitted.arena,
        "live_bound": emitted.plan.bound,
        "weights": len(emitted.weights),
        "kernels": [
            {"name": k.name, "operators": k.what, "family": k.family, "shape": list(map(as_dim, k.shape))}
            for k in emitted.kernels
        ],
        "selection": None if emitted.selection is None else asdict(emitted.selection),
        "memory_map": [asdict(entry) for entry in emitted.memory_map],
        "libraries": {target: coverage.as_dict() for target, coverage in sorted(emitted.coverage.items())},
    }


def chosen(selection: KernelSelection) -> str:
    """``53 direct_convolution; 1 conversion; 37 ms, optimal``."""
    from eqsat import units

    kernels = ", ".join(f"{count} {name}" for name, count in selection.kernels.items()) or "no choice of kernels"
    conversions = f"{selection.conversions} conversion{'' if selection.conversions == 1 else 's'} of layout"
    least = f"at least {units.seconds(selection.bound)}"
    proof = {"optimal": "optimal", "given": "as chosen in the model"}.get(selection.stop_reason, least)
    return f"{kernels}; {conversions}; {units.seconds(selection.cost)} by the host's file, {proof}"


def show_memory_map(emitted: Emitted) -> None:
    """One line a buffer, by address."""
    from eqsat.cli.tables import print_table

    rows = [
        (f"{entry.offset:,}", f"{entry.size:,}", f"{entry.first}-{entry.last}", entry.name)
        for entry in emitted.memory_map
    ]
    print_table((">offset", ">bytes", ">kernels", "tensor"), rows)
