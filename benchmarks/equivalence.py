"""Whether rules prove that optimizers keep the meaning of models.

    python -m benchmarks.equivalence FILE_OR_FOLDER ... [--python PYTHON] [--own] [--time-limit 60] [--json FILE]

Files are those of `benchmarks.zoo`. Each model is compared with what `benchmarks.ort_speed` compares it with: the
results of `onnxslim`, `onnxsim` (executed by the interpreter that `--python` names, left out where it does not have
them), ONNX Runtime's own optimizer and `eqsat --host ort`; also with eqsat's programs for the target `dnnl` and the
hosts `cpu` and `c`. `--own` leaves out the other optimizers. Free sizes stay free. Columns:

- ``verdict``: ``exact``, ``lsb`` or ``real`` if the two are proven equal to that degree; ``open`` if no input shows a
  difference and no proof was found; ``different`` if an input shows one.
- ``joints``: tensors that rules joined; ``rules``: number of rules that the proof needs; ``seconds``: CPU time.
- ``apart``: the first tensors that no rule joins.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

import eqsat
from benchmarks.executor import table
from benchmarks.ort_speed import ORIGINAL, OURS, PEERS, RUNTIME, Row, optimized
from benchmarks.output import write_json
from benchmarks.zoo import files, name_of, notes_of, read
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes

OWN: dict[str, dict[str, Any]] = {
    OURS: {"host": "ort"},
    "eqsat dnnl": {"targets": ["dnnl"]},
    "eqsat cpu": {"host": "cpu"},
    "eqsat c": {"host": "c"},
}
"""Results of eqsat: the settings of each."""


def rows_of(path: Path, python: str, time_limit: float, own: bool) -> list[Row]:
    """A row for each optimizer, or only for eqsat's settings."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        try:
            proto = read(path)
            dims = {
                name: (1, None, size)
                for name, size in notes_of(path).get("dims", {}).items()
                if name in free_sizes(load(proto), {})
            }
            paths, skipped = ({}, []) if own else optimized(path, Path(folder), python)
            paths.pop(ORIGINAL, None)
            for name in [name for name in OWN if name not in paths]:
                paths[name] = Path(folder) / f"{name}.onnx"
                eqsat.optimize(proto, dims=dims, **OWN[name]).save(paths[name])
        except Exception as error:  # whatever an optimizer raises is a finding
            return [{"model": name_of(path), "problem": " ".join(str(error).split())[:200]}]
        rows: list[Row] = [{"model": name_of(path), "optimizer": name} for name in paths]
        for row, other in zip(rows, paths.values(), strict=True):
            row |= compared(proto, other, time_limit)
    rows[0]["skipped"] = skipped
    return rows


def compared(first: onnx.ModelProto, second: Path, time_limit: float) -> Row:
    """What is known of two models."""
    start = time.process_time()
    try:
        found = eqsat.prove(first, second, time_limit=time_limit)
    except EqsatError as error:
        return {"verdict": "error", "apart": str(error), "seconds": round(time.process_time() - start, 2)}
    verdict = {"equal": found.numerics, "not proven": "open"}.get(found.verdict, found.verdict)
    apart = found.stop_reason or next(map(str, found.places), "")
    if found.counterexample is not None:
        apart = f"{found.counterexample.difference}; {apart}"
    return {
        "verdict": verdict,
        "joints": len(found.joints),
        "rules": len(found.used),
        "seconds": round(time.process_time() - start, 2),
        "apart": apart,
    }


def shares(rows: Sequence[Row]) -> list[Row]:
    """By optimizer how many of its results are proven."""
    found = []
    for name in (*PEERS, RUNTIME, *OWN):
        verdicts = [row["verdict"] for row in rows if row.get("optimizer") == name]
        proven = sum(verdict in ("exact", "lsb", "real") for verdict in verdicts)
        if verdicts:
            found.append({"optimizer": name, "models": len(verdicts), "proven": proven})
            found[-1]["different"] = verdicts.count("different")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables; the exit code is 1 if a model has a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    said: set[str] = set()
    for path in files(given.places):
        with context.Pool(1) as pool:
            found = pool.apply(rows_of, (path, given.python, given.time_limit, given.own))
        for line in found[0].pop("skipped", []):
            if line not in said:
                said.add(line)
                print(line, file=sys.stderr, flush=True)
        rows += found
        said_of = ", ".join(f"{row['optimizer']} {row['verdict']}" for row in found if "verdict" in row)
        print(f"{name_of(path)}: {found[0].get('problem') or said_of}", file=sys.stderr, flush=True)
    shown = [{**row, "apart": row["apart"][:80]} for row in rows if "problem" not in row]
    print(table(shown))
    print(table(shares(rows)))
    for row in rows:
        if "problem" in row:
            print(f"{row['model']}: {row['problem']}")
    if given.json is not None:
        write_json(given.json, rows)
    return int(any("problem" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
