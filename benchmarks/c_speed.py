"""Generated C beside ONNX Runtime and OpenVINO: same process, in turn, medians; one thread and several.

    python -m benchmarks.c_speed [NAME_OR_FILE_OR_FOLDER ...] [--threads 1 2] [--float | --integer] [--winograd]
                                 [--repeat 15] [--json FILE]

Places are light networks by name, and files and folders as for `benchmarks.zoo`. By default the light networks and the
models of the shared folder, float32 and int8 (``*.qop_u8s8``). The peers get the file as it is and all their
optimizations; OpenVINO takes part where it is installed. Inputs are random and seeded; outputs are compared with ONNX
Runtime's. Each model has a process of its own. One thread is measured in CPU time; several by the clock on the wall,
which needs an idle machine, and with a pause before each sample. Columns:

- ``onnxruntime``, ``c``, ``openvino``: milliseconds; ``ratio``: the median of C to ONNX Runtime, ``to openvino`` to
  OpenVINO.
- With several threads ``speed-up``: one thread to these, by the clock on the wall; ``its speed-up``: ONNX Runtime's;
  ``CPU``: the CPU time of C to that of ONNX Runtime; ``same``: whether the bits are those of one thread.
- ``difference``: from ONNX Runtime, relative to the largest magnitude of an output.
- ``build``: generation, C compiler and loading in seconds of the clock, with an empty cache.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from threadpoolctl import threadpool_limits

import eqsat
from benchmarks import openvino, zoo
from benchmarks.executor import table
from benchmarks.fresh_cache import fresh_cache
from benchmarks.models import LIGHT, SHARED, light
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import Run, Times, times_in_turn
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes

FLOATS = ("tiny_ae", "tiny_dscnn", "tiny_mbv1_025", "tiny_resnet8", "mbv2", "bert4x256")
LEAST_SECONDS = 0.002
"""A sample is as many runs as take this long, so that small models are not lost in the clock's grain."""
LEAST_SHARED_SECONDS = 0.01
"""The same for several threads."""
PAUSE = 0.03
"""Seconds before each sample with several threads."""

_INTEGER = frozenset({"QLinearConv", "QLinearMatMul", "QGemm", "MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM"})

Row = dict[str, Any]


def models(floats: bool, integers: bool) -> list[str]:
    """Names of light networks and paths of shared models, as far as these are there."""
    found: list[str] = [*LIGHT] if floats else []
    if floats:
        found += [str(path) for name in FLOATS if (path := SHARED / f"{name}.onnx").exists()]
    if integers:
        found += [str(path) for path in sorted(SHARED.glob("*.qop_u8s8.onnx"))]
    return found


def named(places: Sequence[str]) -> list[str]:
    """Light networks and files; those of folders by name."""
    found: list[str] = []
    for place in places:
        found += [place] if place in LIGHT else [str(path) for path in zoo.files([place])]
    return found


def read(name: str) -> tuple[onnx.ModelProto, dict[str, int], dict[str, np.ndarray]]:
    """A model, the sizes of its free dimensions, and its inputs."""
    model = light(name) if name in LIGHT else zoo.read(Path(name))
    notes = {} if name in LIGHT else zoo.notes_of(Path(name))
    loaded = load(model)
    free = free_sizes(loaded, {})
    sizes = {size: notes.get("dims", {}).get(size, found.typical) for size, found in free.items()}
    return model, sizes, zoo.feeds(loaded, sizes, notes, 0)


def measure(name: str, threads: Sequence[int], repeat: int, winograd: bool = False) -> list[Row]:
    """A row for each number of threads: times in milliseconds, and how far outputs are from ONNX Runtime's."""
    row: Row = {"model": name if name in LIGHT else zoo.name_of(Path(name))}
    try:
        model, sizes, feeds = read(name)
        row["type"] = "int8" if any(node.op_type in _INTEGER for node in model.graph.node) else "float32"
        best = eqsat.optimize(model, host="c", dims=sizes, verify=False)
        start = time.perf_counter()
        programs = {1: best.compile(winograd=winograd)}
        row["build"] = time.perf_counter() - start
    except EqsatError as error:
        return [row | {"problem": " ".join(str(error).split())[:300]}]
    try:
        peers = {n: session(model, threads=n) for n in sorted({1, *threads})}
        wanted = peers[1].run(None, feeds)
    except Exception as error:  # whatever the peer refuses
        return [row | {"problem": f"ONNX Runtime: {' '.join(str(error).split())[:200]}"}]
    names = [y.name for y in peers[1].get_outputs()]
    one = programs[1].run(feeds)
    row["difference"] = zoo.error_of(wanted, [one[y] for y in names])
    rows = []
    for n in threads:
        program = programs.setdefault(n, programs[1] if n == 1 else best.compile(threads=n, winograd=winograd))
        runs: dict[str, Run] = {
            "onnxruntime": lambda n=n: peers[n].run(None, feeds),
            "c": lambda program=program: program.run(feeds),
        }
        other = openvino.run(model, feeds, n)
        runs |= {"openvino": other} if other is not None else {}
        if n > 1:
            runs |= {"onnxruntime, 1": lambda: peers[1].run(None, feeds), "c, 1": lambda: programs[1].run(feeds)}
        least, pause = (LEAST_SECONDS, 0.0) if n == 1 else (LEAST_SHARED_SECONDS, PAUSE)
        found = dict(zip(runs, times_in_turn(list(runs.values()), repeat, least=least, pause=pause), strict=True))
        same = n == 1 or all(program.run(feeds)[y].tobytes() == one[y].tobytes() for y in names)
        rows.append(_row(row, n, found, same))
    return rows


def _row(row: Row, threads: int, found: Mapping[str, Times], same: bool) -> Row:
    seconds = {who: times.cpu if threads == 1 else times.wall for who, times in found.items()}
    made: Row = {"model": row["model"], "type": row["type"], "threads": threads}
    made |= {who: 1e3 * statistics.median(seconds[who]) for who in ("onnxruntime", "c")}
    made["ratio"] = _ratio(seconds["c"], seconds["onnxruntime"])
    if "openvino" in seconds:
        made["openvino"] = 1e3 * statistics.median(seconds["openvino"])
        made["to openvino"] = _ratio(seconds["c"], seconds["openvino"])
    if threads > 1:
        made["speed-up"] = _ratio(seconds["c, 1"], seconds["c"])
        made["its speed-up"] = _ratio(seconds["onnxruntime, 1"], seconds["onnxruntime"])
        made["CPU"] = _ratio(found["c"].cpu, found["onnxruntime"].cpu)
        made["same"] = same
    return made | {key: row[key] for key in ("difference", "build")}


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def geometric_mean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def _measured(name: str, threads: Sequence[int], repeat: int, winograd: bool) -> list[Row]:
    """The rows of a model, in a process of its own."""
    warnings.simplefilter("ignore")
    with threadpool_limits(1), fresh_cache():
        return measure(name, threads, repeat, winograd)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print a table for each number of threads."""
    parser = argparse.ArgumentParser(prog="c_speed", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("places", nargs="*", help="light networks, files and folders")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="numbers of threads")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--float", action="store_true", help="float32 models only")
    kinds.add_argument("--integer", action="store_true", help="int8 models only")
    parser.add_argument("--winograd", action="store_true", help="C may compute convolutions by Winograd's algorithm")
    parser.add_argument("--repeat", type=int, default=15, help="samples of each")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    fresh = multiprocessing.get_context("spawn")
    for name in named(options.places) or models(not options.integer, not options.float):
        with ProcessPoolExecutor(1, mp_context=fresh) as pool:
            try:
                found = pool.submit(_measured, name, options.threads, options.repeat, options.winograd).result()
            except BrokenProcessPool:
                found = [{"model": name, "problem": "its process has ended, perhaps in a peer"}]
        rows += found
        print(f"{name}: {found[0].get('problem', 'ok')}", file=sys.stderr, flush=True)
    kind = "int8" if options.integer else "float32" if options.float else ""
    good = [row for row in rows if "problem" not in row and kind in ("", row["type"])]
    summary = {}
    for threads in options.threads:
        clock = "of CPU time" if threads == 1 else "by the clock on the wall"
        print(f"{threads} thread{'s' if threads > 1 else ''}, milliseconds {clock}")
        of_threads = [row for row in good if row["threads"] == threads]
        print(table(of_threads))
        summary[threads] = _summary(of_threads)
        for what, figures in summary[threads].items():
            print(f"{what}: " + ", ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    for row in rows:
        if "problem" in row:
            print(f"{row['model']}: {row['problem']}")
    if options.json:
        write_json(options.json, {"models": rows, "summary": summary})
    return int(any("problem" in row for row in rows))


def _summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """By element type the mean and the worst ratio, and the means of speed-ups."""
    found: dict[str, dict[str, float]] = {}
    for kind in sorted({row["type"] for row in rows}):
        of_kind = [row for row in rows if row["type"] == kind]
        ratios = [row["ratio"] for row in of_kind]
        found[kind] = {"geometric mean": geometric_mean(ratios), "worst": max(ratios)}
        for column in ("to openvino", "speed-up", "its speed-up", "CPU"):
            values = [row[column] for row in of_kind if column in row]
            found[kind] |= {column: geometric_mean(values)} if values else {}
    return found


if __name__ == "__main__":
    sys.exit(main())
