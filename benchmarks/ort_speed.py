"""Models in ONNX Runtime as they are, and as several optimizers write them.

    python -m benchmarks.ort_speed FILE_OR_FOLDER ... [--threads 1 2] [--seconds 4] [--python PYTHON] [--json FILE]

Files are those of `benchmarks.zoo`. Compared are the original, `onnxslim`, `onnxsim` (which are executed by the
interpreter that `--python` names, and left out where it does not have them), ONNX Runtime's own optimizer, whose result
is saved and loaded again, and `eqsat --host ort`. All are run in turn by ONNX Runtime with its default optimizations,
in several rounds with new sessions, whose threads stop spinning when a run ends. The table gives the time of the
original divided by that of each file, both medians over the rounds: above 1 where the model became faster, the models
that lose most first; while the rest is measured, a line tells of each model, and the file of ``--json`` holds the rows
so far. ``again`` is the original a second time, which tells what of a ratio is noise. Runs with one thread are measured
in CPU time, others by the clock on the wall, which needs an idle machine. ``error`` is the greatest difference from the
original, relative to the greatest magnitude of an output.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import eqsat
from benchmarks.executor import table
from benchmarks.output import write_json
from benchmarks.zoo import error_of, feeds, files, name_of, notes_of, read
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.schema.chosen_sizes import samples

Row = dict[str, Any]
PEERS = {
    "onnxslim": "import sys, onnxslim; onnxslim.slim(sys.argv[1], sys.argv[2])",
    "onnxsim": "import sys, onnx, onnxsim; onnx.save(onnxsim.simplify(onnx.load(sys.argv[1]))[0], sys.argv[2])",
}
"""What the other interpreter executes."""
ORIGINAL, RUNTIME, OURS, AGAIN = "original", "onnxruntime", "eqsat", "again"
_ROUNDS, _LEAST_RUNS = 5, 2
_TIME_LIMIT = 300


def optimized(
    path: Path, folder: Path, python: str, peers: Mapping[str, str] = PEERS
) -> tuple[dict[str, Path], list[str]]:
    """The files to compare by name, and what was left out.

    Args:
        peers: Programs for the interpreter, which read one file and write another, by name.
    """
    proto = read(path)
    original = folder / "original.onnx"
    onnx.save(proto, str(original))
    found, skipped = {ORIGINAL: original}, []
    for name, program in peers.items():
        written = folder / f"{name}.onnx"
        command = [python, "-c", program, str(original), str(written)]
        try:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_TIME_LIMIT, check=False)
            reason = (done.stderr.strip() or "no file").splitlines()[-1][:120]
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = str(error)[:120]
        if written.is_file():
            found[name] = written
        else:
            skipped.append(f"{name} is left out: {reason}")
    found[RUNTIME] = folder / "onnxruntime.onnx"
    session(original, 1, save=found[RUNTIME])
    known = free_sizes(load(proto), {})
    dims: dict[str, tuple[int, None, int]] = {n: (1, None, v) for n, v in noted(path).items() if n in known}
    found[OURS] = folder / "eqsat.onnx"
    eqsat.optimize(proto, host="ort", dims=dims).save(found[OURS])
    return found, skipped


def noted(path: Path) -> dict[str, int]:
    """Typical sizes by symbol, as the file beside a model gives them."""
    return notes_of(path).get("dims", {})


def session(path: Path, threads: int, save: Path | None = None) -> Any:
    """A session of ONNX Runtime; with ``save`` it writes what does not depend on the machine."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    # The threads of a session spin after a run, and would take the cores from the session whose turn is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if save is not None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(save)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def operands(path: Path) -> Mapping[str, np.ndarray]:
    """Inputs at the first sizes at which the original runs.

    Raises:
        ValueError: It runs at none.
    """
    proto = read(path)
    model = load(proto)
    known = free_sizes(model, {})
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original.onnx"
        onnx.save(proto, str(original))
        run = session(original, 1)
        typical = {name: noted(path).get(name, size.typical) for name, size in known.items()}
        for sizes in (typical, *samples(known)):
            given = feeds(model, sizes, notes_of(path), 0)
            try:
                run.run(None, given)
            except Exception:  # Its exceptions have no common base; the model does not accept these sizes.
                continue
            return given
    raise ValueError("ONNX Runtime does not run the original at any of the sizes tried")


def ratios(paths: Mapping[str, Path], given: Mapping[str, np.ndarray], threads: int, seconds: float) -> Row:
    """Milliseconds of the original, and by how much each of the others is faster."""
    clock: Callable[[], float] = time.thread_time if threads == 1 else time.perf_counter
    files_of = {**paths, AGAIN: paths[ORIGINAL]}
    names = list(files_of)
    outputs: dict[str, Any] = {}
    rounds: dict[str, list[float]] = {name: [] for name in names}
    for done in range(_ROUNDS):
        # Where the memory of a session lies is worth up to a fifth, so each round has sessions of its own.
        order = (*names[done % len(names) :], *names[: done % len(names)])
        sessions = {name: session(files_of[name], threads) for name in order}
        outputs = {name: s.run(None, given) for name, s in sessions.items()}
        taken: dict[str, list[float]] = {name: [] for name in names}
        end = time.perf_counter() + seconds * len(names) / _ROUNDS
        while len(taken[names[0]]) < _LEAST_RUNS or time.perf_counter() < end:
            for name in order:
                start = clock()
                sessions[name].run(None, given)
                taken[name].append(clock() - start)
        for name in names:
            rounds[name].append(statistics.median(taken[name]))
    middle = {name: statistics.median(found) for name, found in rounds.items()}
    row: Row = {"threads": threads, "ms": 1e3 * middle[ORIGINAL]}
    row |= {name: round(middle[ORIGINAL] / middle[name], 3) for name in names[1:]}
    return row | {"error": error_of(outputs[ORIGINAL], outputs[OURS])}


def rows_of(path: Path, threads: Sequence[int], seconds: float, python: str) -> list[Row]:
    """What becomes of one model."""
    warnings.simplefilter("ignore")
    try:
        given = operands(path)
        with tempfile.TemporaryDirectory() as folder:
            paths, skipped = optimized(path, Path(folder), python)
            rows = [{"model": name_of(path), **ratios(paths, given, n, seconds)} for n in threads]
    except Exception as error:  # whatever an optimizer or ONNX Runtime raises is a finding
        return [{"model": name_of(path), "problem": " ".join(str(error).split())[:200]}]
    rows[0]["skipped"] = skipped
    return rows


def means(rows: Sequence[Row]) -> list[Row]:
    """Geometric means of the ratios by number of threads."""
    found = []
    for threads in dict.fromkeys(row["threads"] for row in rows if "threads" in row):
        some = [row for row in rows if row.get("threads") == threads]
        row: Row = {"model": "geometric mean", "threads": threads}
        for name in (*PEERS, RUNTIME, OURS, AGAIN):
            known = [r[name] for r in some if name in r]
            if known:
                row[name] = round(math.exp(statistics.fmean(map(math.log, known))), 3)
        found.append(row)
    return found


def _brief(row: Row) -> str:
    """What is known of a model long before the table of all is complete."""
    ratios = ", ".join(f"{name} {row[name]}" for name in (*PEERS, RUNTIME, OURS, AGAIN) if name in row)
    return f"{row['threads']} thread{'s' * (row['threads'] > 1)}, {row['ms']:.2f} ms, {ratios}"


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; the exit code is 1 if a model has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    # What one model leaves in memory must not slow the next one.
    context = multiprocessing.get_context("spawn")
    said: set[str] = set()
    for path in files(given.places):
        with context.Pool(1) as pool:
            found = pool.apply(rows_of, (path, given.threads, given.seconds, given.python))
        for line in found[0].pop("skipped", []):
            if line not in said:
                said.add(line)
                print(line, file=sys.stderr, flush=True)
        rows += found
        for row in found:
            print(f"{name_of(path)}: {row.get('problem') or _brief(row)}", file=sys.stderr, flush=True)
        if given.json is not None:
            write_json(given.json, rows)
    columns = ["model", "threads", "ms", *PEERS, RUNTIME, OURS, AGAIN, "error"]
    rows.sort(key=lambda row: row.get(OURS, 0.0))
    shown = [row for row in (*rows, *means(rows)) if "problem" not in row]
    print(table([{column: row.get(column) for column in columns} for row in shown]))
    for row in rows:
        if "problem" in row:
            print(f"{row['model']}: {row['problem']}")
    return int(any("problem" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
