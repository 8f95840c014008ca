"""What it takes to make a program of a model: CPU seconds and peak memory of each stage, with every instruction set.

    python -m benchmarks.c_build [--models resnet50 FILE.onnx ...] [--weights default string blob] [--isa NAME ...]
                                 [--compiler gcc] [--json FILE]

``load`` is the start of Python and reading the model, ``optimize`` the search, ``generate`` the C of all kernels,
``write`` the folder with its stored run; then the compiler for each file, as ``CMakeLists.txt`` calls it. ``make`` is
``generate`` and the compiler for the model and its weights. Each stage runs in a process of its own kind, so that peaks
(megabytes) are its own: that of the first four is one, as they are one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FORMS_OF_WEIGHTS = ("default", "string", "incbin", "blob")


def stages(name: str, folder: Path, weights: str, isas: Sequence[str]) -> Row:
    """Loads, optimizes, generates and writes; CPU seconds, and this process's peak."""
    import resource
    import time

    from benchmarks.executor import load_model
    from eqsat.codegen.folder import write_folder
    from eqsat.codegen.generate import generate
    from eqsat.codegen.isa import ALL, find
    from eqsat.codegen.weights import FORMS, WeightsForm
    from eqsat.search import Search

    row: Row = {}
    forms: dict[str, WeightsForm] = {form: form for form in FORMS}

    def lap(stage: str) -> None:
        row[stage] = time.process_time() - sum(row.values())

    model = load_model(name)
    lap("load")
    optimized = Search.of(model).extract().model
    lap("optimize")
    emitted = generate(optimized, isas=find(isas) if isas else ALL, embedded=weights != "blob")
    lap("generate")
    write_folder(emitted, optimized, folder, weights=forms.get(weights))
    lap("write")
    row["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def compiled(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and peak in megabytes of a compiler and what it starts."""
    process = subprocess.Popen(command, cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(name: str, weights: str, isas: Sequence[str], compiler: str) -> Row:
    """The figures of one model."""
    row: Row = {"model": Path(name).stem if name.endswith(".onnx") else name, "weights": weights}
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        command = [sys.executable, "-m", "benchmarks.c_build", "--stages", name, work, weights, *isas]
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True)
        row |= json.loads(done.stdout.splitlines()[-1])
        row["MB of C"] = (folder / "model.c").stat().st_size / 2**20
        flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
        peak = 0.0
        for label, file in (("compile", "model.c"), ("compile weights", "model_weights.c")):
            row[label] = 0.0
            if (folder / file).exists():
                row[label], used = compiled([compiler, *flags, "-c", file], folder)
                peak = max(peak, used)
        row["compiler's peak"] = peak
    row["make"] = row["generate"] + row["compile"] + row["compile weights"]
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the table."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--stages"]:
        print(json.dumps(stages(given[1], Path(given[2]), given[3], given[4:])))
        return 0
    parser = argparse.ArgumentParser(prog="c_build", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="*", default=["resnet50"], help="light networks or files")
    parser.add_argument("--weights", nargs="*", choices=FORMS_OF_WEIGHTS, default=["default"])
    parser.add_argument(
        "--isa", nargs="*", default=[], help="instruction sets besides the portable ones; all by default"
    )
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(given)
    rows = [measure(name, form, options.isa, options.compiler) for name in options.models for form in options.weights]
    # What this loads would be counted to the processes that are started from here.
    from benchmarks.executor import table
    from benchmarks.output import write_json

    print("seconds of CPU time, megabytes")
    print(table(rows))
    if options.json:
        write_json(options.json, {"models": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
