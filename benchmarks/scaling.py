"""How the time grows with the model: CPU seconds a node, by stage, on chains of residual blocks.

    python -m benchmarks.scaling [--blocks 4 20 50 100 200] [--target dnnl] [--repeat 3] [--without-eqsat] [--json FILE]

A block is 25 nodes as exporters write them (:func:`benchmarks.graphs.residual_chain`), so the default is 101 to 5,001
nodes. If nothing is worse than linear, each line of the table is about the same. TVM's two greedy partitioners, as
reproduced in :mod:`benchmarks.baseline`, run beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks.baseline import FLOWS, partition
from benchmarks.graphs import residual_chain
from benchmarks.output import write_json
from eqsat.model.load import load
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel

BLOCKS = (4, 20, 50, 100, 200)


def measure(model: onnx.ModelProto, targets: Sequence[str], *, with_eqsat: bool = True) -> dict[str, float]:
    """CPU seconds of one run: ``load``, each flow of the baseline after it, eqsat and its stages as ``eqsat.STAGE``."""
    costs = CostModel(load_targets(list(targets)))
    seconds: dict[str, float] = {}
    for flow in FLOWS:
        start = time.process_time()
        loaded = load(model)
        seconds["load"] = time.process_time() - start
        start = time.process_time()
        partition(loaded, costs, flow)
        seconds[flow] = time.process_time() - start
    if with_eqsat:
        import eqsat

        start = time.process_time()
        result = eqsat.optimize(model, list(targets))
        seconds["eqsat"] = time.process_time() - start
        seconds |= {f"eqsat.{stage}": value for stage, value in result.seconds.items()}
    return seconds


def medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Per stage the median over several runs."""
    return {stage: statistics.median(run[stage] for run in runs) for stage in runs[0]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints the table."""
    parser = argparse.ArgumentParser(prog="scaling", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--blocks", nargs="+", type=_positive, default=list(BLOCKS), metavar="N", help="sizes")
    parser.add_argument("--target", nargs="+", default=["dnnl"], metavar="NAME", help="accelerators")
    parser.add_argument("--repeat", type=_positive, default=3, metavar="N", help="runs of each size; medians are shown")
    parser.add_argument("--without-eqsat", action="store_true", help="the baselines alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds here")
    options = parser.parse_args(arguments)

    rows: list[dict[str, Any]] = []
    for blocks in options.blocks:
        model = residual_chain(blocks)
        runs = [measure(model, options.target, with_eqsat=not options.without_eqsat) for _ in range(options.repeat)]
        row = {"blocks": blocks, "nodes": len(model.graph.node), "cpu_seconds": medians(runs)}
        print(_line(row, header=not rows), flush=True)
        rows.append(row)
    if len(rows) > 1:
        print(_growth(rows))
    if options.json:
        write_json(
            options.json, {"benchmark": "scaling", "targets": options.target, "repeat": options.repeat, "rows": rows}
        )
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"a number of at least 1 is required, got {text}")
    return number


def _line(row: dict[str, Any], *, header: bool) -> str:
    stages = row["cpu_seconds"]
    width = max(10, *(len(stage) + 2 for stage in stages))
    cells = "".join(f"{1e3 * seconds / row['nodes']:>{width}.4f}" for seconds in stages.values())
    head = "CPU milliseconds a node\n{:>8}{:>8}".format("blocks", "nodes") + "".join(f"{s:>{width}}" for s in stages)
    line = f"{row['blocks']:>8}{row['nodes']:>8}{cells}"
    return f"{head}\n{line}" if header else line


def _growth(rows: Sequence[dict[str, Any]]) -> str:
    """Time a node at the largest size over that at the smallest, by stage: 1 is linear."""
    first, last = rows[0], rows[-1]
    ratios = []
    for stage, seconds in last["cpu_seconds"].items():
        before = first["cpu_seconds"].get(stage, 0.0) / first["nodes"]
        ratios.append(f"{stage} {seconds / last['nodes'] / before:.2f}" if before > 0 else f"{stage} -")
    return f"a node at {last['nodes']} over a node at {first['nodes']} nodes: {', '.join(ratios)}"


if __name__ == "__main__":
    sys.exit(main())
