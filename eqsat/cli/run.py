"""``eqsat run``: execute a model and show or save its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.cli.backends import quietly, show_coverage
from eqsat.cli.console import echo, echo_json
from eqsat.cli.shared_options import (
    MODEL,
    check_backends,
    debug_option,
    declarations_option,
    execution_options,
    inputs_option,
    json_option,
    quiet_option,
    read_inputs,
    seed_option,
    sizes_option,
    values_option,
    vendors_option,
)
from eqsat.cli.threads import threads_option
from eqsat.text import name_of

if TYPE_CHECKING:
    import numpy as np

    from eqsat.backends.coverage import Coverage
    from eqsat.codegen.profile import Profile
    from eqsat.model.read.given_sizes import GivenSize

    Value = np.ndarray | list["Value"] | None  # a tensor, a sequence, an optional without a value


@click.command(short_help="Execute a model.")
@click.argument("model", type=MODEL)
@inputs_option
@sizes_option
@values_option
@declarations_option
@seed_option("the inputs that are not given")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write the outputs to: .npz, or .npy for a single output.",
)
@click.option(
    "--backend",
    "given_backends",
    multiple=True,
    metavar="numpy|c|FILE.py",
    help="Execute with numpy, or write the model as C, compile and call it; a Python file, which is run, holds a "
    "backend that executes the regions of its target. May be repeated.  [default: numpy]",
)
@vendors_option("Execute the regions of this target with its backend: oneDNN for dnnl, which needs --backend c.")
@threads_option("The number of threads that share large kernels of the C. Needs --backend c if more than 1.")
@click.option(
    "--profile",
    is_flag=True,
    help="Print how long each kernel of the C takes: the median of ten runs. Needs --backend c.",
)
@click.option("--full", is_flag=True, help="Print all elements.")
@json_option("shapes, types and statistics")
@quiet_option()
@execution_options
@debug_option
def run(
    model: Path,
    inputs: tuple[str, ...],
    dims: dict[str, GivenSize],
    values: dict[str, object],
    seed: int,
    output: Path | None,
    given_backends: tuple[str, ...],
    vendors: tuple[str, ...],
    threads: int,
    profile: bool,
    full: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Execute MODEL and print its outputs.

    \b
    eqsat run model.onnx                          # random inputs
    eqsat run model.onnx -i x=image.npy -o y.npz
    eqsat run model.onnx --backend c --profile
    """
    if output is not None and output.suffix not in (".npy", ".npz"):
        raise click.BadParameter(f"{output} ends in neither .npy nor .npz", param_hint="'--output'")
    from eqsat import api
    from eqsat.cli.progress import showing_progress, showing_stage
    from eqsat.execute.inputs import complete_inputs, input_names
    from eqsat.model.read.dims import sizes_of
    from eqsat.model.read.given_sizes import split
    from eqsat.model.symbols import require_symbols

    if full and as_json:
        raise click.UsageError("--json prints no elements: leave --full out, or write them with --output y.npz")
    means = [name for name in given_backends if name in ("numpy", "c")]
    if len(means) > 1:
        raise click.BadParameter("numpy and c exclude each other, and each may be given once", param_hint="'--backend'")
    if profile and means != ["c"]:
        raise click.BadParameter("only C is profiled: add --backend c", param_hint="'--profile'")
    backends = check_backends(given_backends, ("numpy", "c"))
    if threads > 1 and means != ["c"]:
        raise click.BadParameter("only C has threads: add --backend c", param_hint="'--threads'")
    bound, ranges = split(dims)
    if ranges and means != ["c"]:
        raise click.BadParameter(
            f"only C has ranges, as for `{next(iter(ranges))}`: add --backend c", param_hint="'--dim'"
        )
    with showing_stage("load", quiet or as_json):
        loaded = api.load(model, values=values, dims={n: x for n, x in bound.items() if isinstance(x, str)})
    require_symbols(bound, loaded, str(model))
    names = input_names(loaded)
    given = read_inputs(inputs, names)
    arrays = complete_inputs(loaded, given, dims=bound, seed=seed)
    drawn = [name for name in names if name not in given]
    if drawn and not quiet and not as_json:
        echo(f"random    {', '.join(map(name_of, drawn))} (seed {seed})", err=True)

    measured = None
    coverage: dict[str, Coverage] = {}
    if means == ["c"]:
        with quietly(), showing_progress(quiet or as_json) as progress:
            compiled = api.compile(
                loaded,
                threads=threads,
                dims={**ranges, **sizes_of(loaded, arrays)},
                vendors=vendors,
                backends=backends,
                progress=progress,
            )
        results, coverage = compiled.run(arrays), compiled.coverage
        measured = compiled.profile(arrays) if profile else None
    else:
        with quietly(), showing_stage("execute", quiet or as_json):
            results = api.run(loaded, arrays, vendors=vendors, backends=backends, coverage=coverage)
    if output is not None:
        _save(results, output)
    if as_json:
        facts = {name: statistics(array) for name, array in results.items()}
        more: dict[str, object] = {} if measured is None else {"profile": as_dict(measured)}
        if coverage:
            more["libraries"] = {target: one.as_dict() for target, one in coverage.items()}
        echo_json({"outputs": facts, **more} if more else facts)
    elif not quiet:
        show_coverage(coverage, "in portable C" if means == ["c"] else "with numpy", err=True)
        for name, array in results.items():
            echo(f"{name_of(name)}  {describe(array, full=full)}")
        if measured is not None:
            echo(str(measured))
    return 0


def as_dict(profile: Profile) -> dict[str, object]:
    """A profile for programs: its kernels in order of execution."""
    from dataclasses import asdict

    return {"microseconds": profile.microseconds, "kernels": [asdict(kernel) for kernel in profile.kernels]}


def describe(value: Value, *, full: bool = False) -> str:
    """Type, shape, range and elements of an array, of each in a sequence."""
    import numpy as np

    if value is None:
        return "absent"
    if isinstance(value, list):
        parts = [f"sequence of {len(value)}", *(describe(v, full=full) for v in value)]
        return "\n".join(parts)
    if isinstance(value, dict):
        return "map of " + (", ".join(f"{key!r}: {_number(v)}" for key, v in value.items()) or "nothing")
    array = value
    facts = statistics(array)
    shape = ", ".join(map(str, array.shape))
    parts = [f"{facts['dtype']}[{shape}]"]
    if "min" in facts:
        parts.append(f"min {facts['min']:.6g}, mean {facts['mean']:.6g}, max {facts['max']:.6g}")
    if facts.get("nonfinite"):
        parts.append(f"{facts['nonfinite']:,} not finite")
    if full:
        elements = np.array2string(array, threshold=array.size + 1, max_line_width=110)
    else:
        elements = np.array2string(array.ravel(), threshold=8, edgeitems=3, precision=6, max_line_width=110)
    return "  ".join(parts) + "\n" + elements


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def statistics(value: Value) -> dict[str, object]:
    """Type and shape; of numbers also the range and the mean of what is finite."""
    import numpy as np

    if value is None:
        return {"absent": True}
    if isinstance(value, list):
        return {"sequence": [statistics(v) for v in value]}
    if isinstance(value, dict):
        return {"map": {str(key): v for key, v in value.items()}}
    array = value
    dtype = "string" if array.dtype.kind in "OUS" else str(array.dtype)
    facts: dict[str, object] = {"dtype": dtype, "shape": list(array.shape)}
    if array.dtype.kind in "OUSc":
        return facts
    values = array.astype(np.float64)  # also for ml_dtypes, whose kind is "V"
    finite = values[np.isfinite(values)]
    if finite.size:
        facts |= {"min": float(finite.min()), "mean": float(finite.mean()), "max": float(finite.max())}
    if finite.size < values.size:
        facts["nonfinite"] = int(values.size - finite.size)
    return facts


def _save(results: Mapping[str, Value], path: Path) -> None:
    from eqsat.execute.array_files import storable, write_arrays
    from eqsat.files import replacing

    arrays = storable(results)
    if path.suffix == ".npy" and len(arrays) != 1:
        raise click.BadParameter(f"{path}: a .npy file holds one array, there are {len(arrays)}: use .npz")
    with replacing(path) as file:
        write_arrays(file, next(iter(arrays.values())) if path.suffix == ".npy" else arrays)
