"""Models in float16: generated C beside ONNX Runtime, and beside the same model in float32, one thread.

    python -m benchmarks.c_half FILE_OR_FOLDER ... [--repeat 9] [--json FILE]

Files are as for `benchmarks.zoo`, in float32; `half_models.py` makes them float16. ONNX Runtime gets the same file,
with all its optimizations. All run in turn in one process. Columns:

- ``C``, ``ORT``, ``C float32``, ``ORT float32``: milliseconds of CPU time, in float16 and in float32.
- ``ratio``: C to ONNX Runtime, both in float16; ``to float32``: C in float16 to C in float32.
- ``difference``, ``ORT's``: how far C and ONNX Runtime in float16 are from ONNX Runtime in float32, relative to the
  greatest magnitude.
- ``loops``: the predicted share of kernels that are plain loops.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import eqsat
from benchmarks import zoo
from benchmarks.c_speed import LEAST_SECONDS, geometric_mean
from benchmarks.executor import table
from benchmarks.fresh_cache import fresh_cache
from benchmarks.half_models import half
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import Run, in_turn
from eqsat.codegen.predict import predict
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.targets.find_targets import load_host

Row = dict[str, Any]


def _call(program: CModel, feeds: Mapping[str, np.ndarray]) -> Run:
    """A call into the same arrays each time, as far as their sizes are known."""
    out = {name: np.array(y) for name, y in program.run(feeds).items()}
    found = any(argument.found for argument in program.emitted.outputs)
    return lambda: program.run(feeds, None if found else out)


def measure(path: Path, repeat: int) -> Row:
    """One row."""
    row: Row = {"model": zoo.name_of(path)}
    single, notes = zoo.read(path), zoo.notes_of(path)
    known = free_sizes(load(single), {})
    dims = {name: size for name, size in notes.get("dims", {}).items() if name in known}
    feeds = zoo.feeds(load(single), dims, notes, 0)
    halves = {n: x.astype(np.float16) if x.dtype == np.float32 else x for n, x in feeds.items()}
    low = half(single)
    try:
        theirs, reference = session(low), session(single)
        wanted, expected = reference.run(None, feeds), theirs.run(None, halves)
    except Exception as error:  # whatever the peer refuses
        return row | {"problem": " ".join(str(error).split())[:200]}
    programs = [CModel(eqsat.optimize(model, host="c", dims=dims).model) for model in (low, single)]
    actual = list(programs[0].run(halves).values())
    runs = [_call(programs[0], halves), lambda: theirs.run(None, halves)]
    runs += [_call(programs[1], feeds), lambda: reference.run(None, feeds)]
    c, ort, c32, ort32 = in_turn(runs, repeat, least=LEAST_SECONDS)
    host = load_host("c")
    costs = [(k.family, predict(k, host)) for k in programs[0].emitted.kernels]
    return row | {
        "C": 1e3 * statistics.median(c),
        "ORT": 1e3 * statistics.median(ort),
        "C float32": 1e3 * statistics.median(c32),
        "ORT float32": 1e3 * statistics.median(ort32),
        "ratio": statistics.median(a / b for a, b in zip(c, ort, strict=True)),
        "to float32": statistics.median(a / b for a, b in zip(c, c32, strict=True)),
        "difference": zoo.error_of(wanted, actual),
        "ORT's": zoo.error_of(wanted, expected),
        "loops": sum(s for family, s in costs if "loops" in family) / sum(s for _, s in costs),
    }


def _row(path: Path, repeat: int) -> Row:
    """A row, in a process of its own."""
    warnings.simplefilter("ignore")
    with threadpool_limits(1), fresh_cache():
        return measure(path, repeat)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(prog="c_half", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("places", nargs="+", help="models and folders")
    parser.add_argument("--repeat", type=int, default=9, help="samples of each")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    fresh = multiprocessing.get_context("spawn")
    for path in zoo.files(options.places):
        with ProcessPoolExecutor(1, mp_context=fresh) as pool:
            try:
                rows.append(pool.submit(_row, path, options.repeat).result())
            except BrokenProcessPool:
                rows.append({"model": zoo.name_of(path), "problem": "its process has ended, perhaps in ONNX Runtime"})
        print(f"{rows[-1]['model']}: {rows[-1].get('problem', 'ok')}", file=sys.stderr, flush=True)
    good = sorted((row for row in rows if "ratio" in row), key=lambda row: -row["ratio"])
    print("milliseconds of CPU time")
    print(table(good))
    for row in rows:
        if "problem" in row:
            print(f"{row['model']}: {row['problem']}")
    if good:
        means = {column: geometric_mean([row[column] for row in good]) for column in ("ratio", "to float32")}
        print(", ".join(f"{column}: geometric mean {value:.3f}" for column, value in means.items()))
    if options.json:
        write_json(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
