"""``eqsat targets calibrate``: measure this machine, and write its numbers into a host's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.cli.console import echo, echo_json
from eqsat.cli.shared_options import MODEL, debug_option, json_option, quiet_option

if TYPE_CHECKING:
    from eqsat.codegen.calibration.measure_host import MeasuredHost


@click.command(short_help="Measure this machine.")
@click.argument("name", metavar="[NAME|FILE]", default="c")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write the measured host to; its name ends in .target.",
)
@click.option(
    "--on",
    type=MODEL,
    help="Measure the kernels of this model, at their sizes, instead of those of small networks. For hosts that are "
    "runtimes, such as `ort`.",
)
@click.option("--quick", is_flag=True, help="Measure for a tenth of the time; the numbers vary more.")
@json_option()
@quiet_option()
@debug_option
def calibrate(name: str, output: Path | None, on: Path | None, quick: bool, as_json: bool, quiet: bool) -> None:
    """Measure this machine, and replace the numbers in the target file of a host: `c` or your own. Everything else in
    the file stays unchanged. This takes some minutes, on a machine that should be idle.

    Hosts whose composites are written as operators, such as `ort`, are measured with ONNX Runtime, the others with
    generated C.

    \b
    eqsat targets calibrate c -o my_c.target
    eqsat optimize model.onnx --host my_c.target -t dnnl -o out.onnx
    eqsat targets calibrate ort --on model.onnx -o my_ort.target
    """
    from eqsat.cli.progress import showing_progress
    from eqsat.codegen.calibration.measure_host import QUICK_SECONDS, SECONDS, calibrate
    from eqsat.codegen.calibration.measure_runtime import calibrate_runtime, is_runtime
    from eqsat.errors import TargetError
    from eqsat.files import replacing
    from eqsat.stages.event import Event
    from eqsat.targets.find_targets import load_host

    host = load_host(name)
    if on is not None and not is_runtime(host):
        raise TargetError(
            "a host that is a runtime is required with --on",
            place=name,
            actual=f"`{host.name}`, none of whose composites is written as an operator",
            hint="for example `eqsat targets calibrate ort --on model.onnx`",
        )
    if output is not None:
        _check_output(output)
    with showing_progress(quiet or as_json) as receive:

        def progress(what: str, done: int, probes: int) -> None:
            if receive is not None:
                receive(Event(f"measuring {what}", step=done, steps=probes))

        seconds = QUICK_SECONDS if quick else SECONDS
        if is_runtime(host):
            found = calibrate_runtime(name, seconds=seconds, progress=progress, on=on)
        else:
            found = calibrate(name, seconds=seconds, progress=progress)
    if output is not None:
        with replacing(output) as file:
            file.write(found.text.encode())
    if as_json:
        echo_json(_as_dict(found, output))
    elif not quiet:
        _print(found, name, output)


def _check_output(path: Path) -> None:
    """Refuse early what could not be used, and to replace anything but a host.

    Raises:
        TargetError: The name or what lies there.
    """
    from eqsat.errors import EqsatError, TargetError
    from eqsat.targets.find_targets import SUFFIX, read_target_file

    if path.suffix != SUFFIX:
        raise TargetError(
            f"a file name that ends in {SUFFIX} is required",
            place=str(path),
            actual=f"`{path.suffix}`" if path.suffix else "no suffix",
            hint=f"write `-o {path.with_suffix(SUFFIX)}`" if path.name else "",
        )
    if not path.exists():
        return
    try:
        declared = read_target_file(path)
    except EqsatError:
        declared = ()
    if not any(target.is_host for target in declared):
        raise TargetError(
            "a new file or the file of a host is required as output",
            place=str(path),
            actual=f"the file of {', '.join(t.name for t in declared)}" if declared else "a file without targets",
            hint="give another name with -o; nothing was overwritten",
        )


def _print(found: MeasuredHost, name: str, output: Path | None) -> None:
    from eqsat.cli.tables import print_table
    from eqsat.targets.numbers import written

    rows = [(n.name, n.text, written(v), _change(v / n.value)) for n, v in found.changes.items()]
    print_table(("number", ">old", ">new", ">new / old"), rows)
    echo()
    echo(
        f"{len(found.measured)} kernels measured; half of them are predicted within a factor of "
        f"{found.after:.2f} ({found.before:.2f} before)"
    )
    if output is not None:
        echo(f"{'saved':<10}{output}")
    else:
        echo(f"nothing is written without -o: `eqsat targets calibrate {name} -o my_{Path(name).stem}.target`")


def _change(ratio: float) -> str:
    return f"{ratio:.2f}"


def _as_dict(found: MeasuredHost, output: Path | None) -> dict[str, object]:
    from eqsat.targets.numbers import written

    return {
        "target": found.target.name,
        "numbers": [
            {"name": n.name, "line": n.place.line, "old": n.value, "new": float(written(v))}
            for n, v in found.changes.items()
        ],
        "kernels": len(found.measured),
        "spread_before": found.before,
        "spread": found.after,
        "output": None if output is None else str(output),
    }
