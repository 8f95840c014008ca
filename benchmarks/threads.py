"""Generated C with one thread and with several beside ONNX Runtime with as many: medians by the clock on the wall.

    python -m benchmarks.threads [--models resnet50 FILE.onnx ...] [--threads 2] [--repeat 15] [--json FILE]

By default the float models of `benchmarks.c_speed`. The four are measured in turn, with a pause before each, because
the threads of a library may go on spinning for a while. The machine must be idle. Columns: milliseconds with one
thread and with several, the speed-ups, the median of the ratios of generated C to ONNX Runtime with several threads,
how many kernels are shared, and whether the bits are the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from benchmarks.c_speed import geometric_mean, models
from benchmarks.executor import load_model, table
from benchmarks.output import write_json
from benchmarks.peer import session
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.search import Search

Row = dict[str, Any]
PAUSE = 0.03
"""Seconds before each sample."""
LEAST_SECONDS = 0.01
"""A sample is as many runs as take this long."""


def samples(runs: Sequence[Callable[[], object]], repeat: int) -> list[list[float]]:
    """Milliseconds of each run, in turn."""
    counts = []
    for run in runs:
        run()
        start = time.perf_counter()
        run()
        counts.append(max(1, round(LEAST_SECONDS / max(time.perf_counter() - start, 1e-6))))
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, count, times in zip(runs, counts, found, strict=True):
            time.sleep(PAUSE)
            run()
            start = time.perf_counter()
            for _ in range(count):
                run()
            times.append(1e3 * (time.perf_counter() - start) / count)
    return found


def measure(name: str, threads: int, repeat: int) -> Row:
    """A row of the table."""
    model = load_model(name)
    feeds = complete_inputs(ir.from_proto(model))
    best = Search.of(model).extract().model
    programs = [CModel(best), CModel(best, threads=threads)]
    peers = [session(model, threads=n) for n in (1, threads)]
    outputs = [program.run(feeds) for program in programs]
    runs: list[Callable[[], object]] = [lambda p=p: p.run(feeds) for p in programs]
    runs += [lambda p=p: p.run(None, feeds) for p in peers]
    one, several, their_one, their_several = samples(runs, repeat)
    return {
        "model": Path(name).stem if name.endswith(".onnx") else name,
        "c, 1": statistics.median(one),
        f"c, {threads}": statistics.median(several),
        "speed-up": statistics.median(a / b for a, b in zip(one, several, strict=True)),
        "onnxruntime, 1": statistics.median(their_one),
        f"onnxruntime, {threads}": statistics.median(their_several),
        "its speed-up": statistics.median(a / b for a, b in zip(their_one, their_several, strict=True)),
        "ratio": statistics.median(a / b for a, b in zip(several, their_several, strict=True)),
        "shared": f"{programs[1].emitted.shared} of {len(programs[1].emitted.kernels)}",
        "same": all(outputs[1][key].tobytes() == y.tobytes() for key, y in outputs[0].items()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(prog="threads", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="*", help="light networks or files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=15, help="samples of each")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.models or models(floats=True, integers=False):
        rows.append(measure(name, options.threads, options.repeat))
        print(f"{name} done", file=sys.stderr)
    print(table(rows))
    summary = {key: geometric_mean([row[key] for row in rows]) for key in ("speed-up", "its speed-up", "ratio")}
    print(", ".join(f"{key} {value:.3f}" for key, value in summary.items()), "(geometric means)")
    if options.json:
        write_json(options.json, {"models": rows, "summary": summary})
    return 0


if __name__ == "__main__":
    sys.exit(main())
