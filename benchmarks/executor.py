"""How fast the numpy executor is, next to ONNX Runtime and onnx.reference, one thread each.

    python -m benchmarks.executor [--models resnet50 FILE.onnx ...] [--repeat 7] [--without-reference]
                                  [--nodes] [--json FILE]

Models are the light networks by name (with seeded random weights) or files. The three run in turn in one process, on
the same input; the table has medians in milliseconds and ratios. The reference runs once a model, as it is slow.
``--nodes`` compares with the reference on every case of ``onnx.backend.test``: the executor is to be slower nowhere.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from threadpoolctl import threadpool_limits

from benchmarks.models import LIGHT, light
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import Run, times_in_turn
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs

Row = dict[str, Any]

SLOWER = 1.1
"""Ratio from which an operator counts as slower: below it is noise."""

OVERHEAD = 20.0
"""Microseconds that a call may cost beyond that: inputs are checked."""


def onnxruntime_run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Run:
    """One inference by ONNX Runtime with one thread."""
    running = session(model)
    return lambda: running.run(None, dict(feeds))


def executor_run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Run:
    """One inference by the numpy executor."""
    executor = Executor(ir.from_proto(model))
    return lambda: executor.run(feeds)


def reference_run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Run:
    """One inference by onnx.reference."""
    evaluator = ReferenceEvaluator(model)
    return lambda: evaluator.run(None, dict(feeds))


def seconds(runs: Mapping[str, Run], repeat: int) -> dict[str, float]:
    """Median seconds of each, run in turn after a round that does not count."""
    samples = [times.wall for times in times_in_turn(list(runs.values()), repeat)]
    return {name: statistics.median(taken) for name, taken in zip(runs, samples, strict=True)}


def load_model(name: str) -> onnx.ModelProto:
    """A light network by name, or a file."""
    return light(name) if name in LIGHT else onnx.load(name)


def model_row(name: str, repeat: int, *, with_reference: bool) -> Row:
    """Times of one model in milliseconds, and the largest difference from ONNX Runtime's outputs."""
    model = load_model(name)
    feeds = complete_inputs(ir.from_proto(model))
    runs = {"onnxruntime": onnxruntime_run(model, feeds), "eqsat": executor_run(model, feeds)}
    found = {key: 1e3 * value for key, value in seconds(runs, repeat).items()}
    row: Row = {"model": Path(name).stem, **found, "ratio": found["eqsat"] / found["onnxruntime"]}
    if with_reference:
        run = reference_run(model, feeds)
        start = time.perf_counter()
        run()
        row["reference"] = 1e3 * (time.perf_counter() - start)
        row["speedup"] = row["reference"] / found["eqsat"]
    return row


def node_rows(repeat: int) -> list[Row]:
    """Times of every node case that both evaluate, in microseconds, the relatively slowest first."""
    from tests.conformance import cases

    rows = []
    for name, case in cases.cases("node").items():
        if cases.skip_reason(case):
            continue
        model = cases.model_of(case)
        inputs, _ = next(iter(cases.data_sets(case, model)))
        feeds = dict(zip((x.name for x in model.graph.input), inputs, strict=False))
        try:
            found = seconds({"eqsat": executor_run(model, feeds), "reference": reference_run(model, feeds)}, repeat)
        except Exception as error:
            # The reference raises whatever numpy does, and a case that either refuses has no times to compare.
            print(f"{name} left out: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
            continue
        micro = {key: 1e6 * value for key, value in found.items()}
        rows.append({"case": name, **micro, "ratio": micro["eqsat"] / micro["reference"]})
    return sorted(rows, key=lambda row: -row["ratio"])


def table(rows: Sequence[Row]) -> str:
    """Columns by key, numbers with three digits."""
    if not rows:
        return ""
    keys = list(rows[0])
    cells = [keys, *([_cell(row.get(key)) for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )


def _cell(value: object) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value < 1000
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(prog="executor", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="*", default=list(LIGHT), help="light networks or files")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each")
    parser.add_argument("--without-reference", action="store_true", help="leave out onnx.reference")
    parser.add_argument("--nodes", action="store_true", help="also every node case, against onnx.reference")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        rows = []
        for name in options.models:
            rows.append(model_row(name, options.repeat, with_reference=not options.without_reference))
            print(f"{name} done", file=sys.stderr)
        print("milliseconds; ratio: eqsat / onnxruntime, speedup: reference / eqsat")
        print(table(rows))
        content: dict[str, Any] = {"models": rows}
        if options.nodes:
            nodes = node_rows(options.repeat)
            slower = [row for row in nodes if row["ratio"] > SLOWER and row["eqsat"] - row["reference"] > OVERHEAD]
            median = statistics.median(row["ratio"] for row in nodes)
            print(f"\n{len(nodes)} node cases: eqsat / reference {median:.2f} in the median, slower in {len(slower)}")
            print(table(slower[:40]))
            content["nodes"] = nodes
    if options.json:
        write_json(options.json, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
