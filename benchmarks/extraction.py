"""Extraction alone, on the e-graphs of the extraction-gym collection: cost, bound and time next to published ones.

    python -m benchmarks.extraction [DIRECTORY] [--only NAME ...] [--time-limit SECONDS] [--json FILE]

DIRECTORY holds ``*/*.json.gz`` (or ``.json``) files in the format of egraph-serialize, where a child is the name of an
e-node that stands for its class, and ``best_known.csv`` with what others reach: greedy extraction, an integer program
without the rows of :mod:`eqsat.extract.milp.formulation`, SmoothE on a GPU, SCIP, CPLEX. One target, no copies; the
cost of a program counts each e-node once. Roots without e-nodes, as some collections have, are left out, and so are
e-graphs with negative costs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.output import write_json
from eqsat.extract.problem import Problem
from eqsat.extract.solve import solve

DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "egraphs"
PUBLISHED = ("bottom_up", "faster_greedy_dag", "highs_ilp", "best_known")


def read_egraph(path: Path) -> Problem:
    """An e-graph file as an extraction problem with one target; roots without e-nodes are left out.

    Raises:
        ValueError: No root has an e-node.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    nodes: dict[str, dict[str, Any]] = content["nodes"]
    number: dict[str, int] = {}
    for node in nodes.values():
        number.setdefault(str(node["eclass"]), len(number))
    children = tuple(
        tuple(sorted({number[str(nodes[child]["eclass"])] for child in node["children"]})) for node in nodes.values()
    )
    roots = sorted({number[str(root)] for root in content["root_eclasses"] if str(root) in number})
    if not roots:
        raise ValueError("no root has e-nodes")
    nothing = np.zeros((len(number), 1))
    return Problem(
        targets=("cpu",),
        classes=len(number),
        node_class=np.array([number[str(node["eclass"])] for node in nodes.values()]),
        children=children,
        cost=np.array([[float(node["cost"])] for node in nodes.values()]),
        copy_in=nothing,
        copy_out=nothing,
        dispatch=np.zeros(1),
        roots=tuple(roots),
    )


def read_published(directory: Path) -> dict[str, dict[str, str]]:
    """The rows of ``best_known.csv`` by e-graph, ``folder/name``."""
    path = directory / "best_known.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["egraph"].removesuffix(".json"): row for row in csv.DictReader(file)}


def name_of(path: Path, directory: Path) -> str:
    """``folder/name`` without suffixes."""
    return str(path.relative_to(directory)).removesuffix(".gz").removesuffix(".json")


def measure(problem: Problem, time_limit: float) -> dict[str, Any]:
    """One run: cost, bound, gap, stop reason, CPU seconds in all, seconds by step."""
    start = time.process_time()
    solution = solve(problem, time_limit=time_limit)
    return {
        "nodes": problem.nodes,
        "classes": problem.classes,
        "cost": solution.cost,
        "bound": solution.bound,
        "gap": solution.gap,
        "stop_reason": solution.stop_reason,
        "cpu": time.process_time() - start,
        "seconds": {step: round(seconds, 4) for step, seconds in solution.seconds.items()},
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--only", nargs="+", default=[], help="parts of names")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each e-graph")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    paths = sorted([*options.directory.glob("*/*.json.gz"), *options.directory.glob("*/*.json")])
    if not paths:
        print(f"no e-graphs in {options.directory}", file=sys.stderr)
        return 1
    published = read_published(options.directory)
    results: dict[str, Any] = {}
    print(
        f"{'e-graph':<44}{'cost':>12}{'bound':>12}{'gap':>8}{'CPU s':>8}  "
        f"{'bottom-up':>10}{'greedy':>10}{'ILP':>10}{'best':>10}  against best"
    )
    for path in paths:
        name = name_of(path, options.directory)
        if options.only and not any(part in name for part in options.only):
            continue
        try:
            problem = read_egraph(path)
        except ValueError as error:
            print(f"{name:<44}{error}: left out")
            continue
        if (problem.cost < 0).any():
            print(f"{name:<44}negative costs: left out")
            continue
        result = measure(problem, options.time_limit)
        known = {key: float(published[name][key]) for key in PUBLISHED} if name in published else {}
        results[name] = result | {"published": known}
        best = known.get("best_known")
        ratio = f"{result['cost'] / best - 1:+.3%}" if best else ""
        print(
            f"{name[-43:]:<44}{result['cost']:>12.6g}{result['bound']:>12.6g}"
            f"{result['gap']:>8.1%}{result['cpu']:>8.2f}  "
            + "".join(f"{known.get(key, float('nan')):>10.5g}" for key in PUBLISHED)
            + f"  {ratio:>9}",
            flush=True,
        )
    if options.json is not None:
        write_json(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
