"""What the cheapest program costs, against the input and against what a greedy partitioner makes of it.

    python -m benchmarks.extracted_cost [--only NAME ...] [--without-eqsat] [--json FILE] [--check | --update]

For each case, under one cost model and the same target files: the input wholly on the host; TVM's two greedy
partitioners (:mod:`benchmarks.baseline`); eqsat. Costs are predicted seconds, times are CPU seconds of this run.
``golden_costs.json`` holds everything but the times; ``--check`` compares with it, ``--update`` writes it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks.baseline import FLOWS, Flow, partition
from benchmarks.baseline.edit import fold_constants
from benchmarks.baseline.expr import from_model
from benchmarks.baseline.price import host_price, price
from benchmarks.cases import CASES, Case, case
from benchmarks.output import write_json
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel

GOLDEN = Path(__file__).with_name("golden_costs.json")
TOLERANCE = 1e-9
"""Relative difference of costs that is rounding."""

WAYS = ("host", *FLOWS, "eqsat")

Entry = dict[str, Any]
"""Of one program: ``cost composites regions host`` and, for eqsat, ``bound``; or ``error``."""


def on_host(model: onnx.ModelProto, costs: CostModel) -> Entry:
    """The input as it stands, without what is constant."""
    loaded = load(model)
    fold_constants(loaded)
    program = from_model(loaded)
    operators = sum(e.kind == "call" for e in program.bindings)
    return _entry(host_price(program, costs).total, 0, 0, operators)


def greedy(model: onnx.ModelProto, costs: CostModel, flow: Flow) -> Entry:
    """What TVM's passes make of it; the reason where they fail."""
    loaded = load(model)
    try:
        found = partition(loaded, costs, flow)
        cost = price(found, costs).total
    except EqsatError as error:
        return {"error": str(error)}
    return _entry(cost, found.composites, len(found.regions), found.host_operators)


def equality_saturation(model: onnx.ModelProto, targets: Sequence[str]) -> tuple[Entry, dict[str, float]]:
    """What eqsat makes of it, and its CPU seconds by stage."""
    import eqsat

    result = eqsat.optimize(model, list(targets))
    composites = sum(node.body is not None for node in result.plan.nodes)
    host = sum(node.target == 0 for node in result.plan.nodes)
    regions = sum(region.target != result.plan.targets[0] for region in result.regions)
    return _entry(result.cost, composites, regions, host) | {"bound": result.bound}, dict(result.seconds)


def measure(item: Case, ways: Sequence[str] = WAYS) -> tuple[dict[str, Entry], dict[str, float]]:
    """Every way for one case, and the CPU seconds of each; eqsat's stages as ``eqsat.STAGE``."""
    model = item.build()
    costs = CostModel(load_targets(list(item.targets)))
    entries: dict[str, Entry] = {}
    seconds: dict[str, float] = {}
    stages: dict[str, float] = {}

    def timed(way: str, run: Callable[[], Entry]) -> None:
        if way in ways:
            start = time.process_time()
            entries[way] = run()
            seconds[way] = time.process_time() - start

    def with_eqsat() -> Entry:
        entry, by_stage = equality_saturation(model, item.targets)
        stages.update(by_stage)
        return entry

    timed("host", lambda: on_host(model, costs))
    for flow in FLOWS:
        timed(flow, lambda flow=flow: greedy(model, costs, flow))
    timed("eqsat", with_eqsat)
    return entries, seconds | {f"eqsat.{stage}": s for stage, s in stages.items()}


def differences(found: dict[str, Entry], golden: dict[str, Entry]) -> list[str]:
    """In words, where a case is no longer what it was."""
    lines = []
    for way in found:
        if way not in golden:
            lines.append(f"{way}: no golden values")
            continue
        for key in sorted({*found[way], *golden[way]}):
            new, old = found[way].get(key), golden[way].get(key)
            same = new == old
            if isinstance(new, float) and isinstance(old, float):
                # The solver proves bounds up to its tolerance, and how close it gets is its own affair.
                same = math.isclose(new, old, rel_tol=1e-4 if key == "bound" else TOLERANCE)
            if not same:
                lines.append(f"{way}: {key} is {new}, was {old}")
    return lines


def golden_costs() -> dict[str, dict[str, Entry]]:
    """The committed values: case -> way -> entry."""
    return json.loads(GOLDEN.read_text("utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 1 if ``--check`` found a difference."""
    parser = argparse.ArgumentParser(prog="extracted_cost", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these cases")
    parser.add_argument("--without-eqsat", action="store_true", help="the input and the baselines alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, times included, here")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="compare with the golden costs")
    group.add_argument("--update", action="store_true", help="write the golden costs")
    options = parser.parse_args(arguments)
    try:
        chosen = [case(name) for name in options.only] if options.only else list(CASES)
    except ValueError as error:
        parser.error(str(error))
    ways = [w for w in WAYS if w != "eqsat" or not options.without_eqsat]
    golden = golden_costs() if GOLDEN.exists() else {}

    report = []
    wrong = []
    print(_header())
    for item in chosen:
        entries, seconds = measure(item, ways)
        report.append({"name": item.name, "targets": item.targets, "results": entries, "cpu_seconds": seconds})
        print(_lines(item, entries, seconds), flush=True)
        if options.check:
            wrong += [f"{item.name}: {line}" for line in differences(entries, golden.get(item.name, {}))]
        if options.update:
            golden[item.name] = golden.get(item.name, {}) | entries
    if options.json:
        write_json(options.json, {"benchmark": "extracted_cost", "unit": "s", "cases": report})
    if options.update:
        order = [c.name for c in CASES]
        write_json(GOLDEN, {name: golden[name] for name in sorted(golden, key=order.index) if name in order})
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _entry(cost: float, composites: int, regions: int, host: int) -> Entry:
    return {"cost": cost, "composites": composites, "regions": regions, "host": host}


def _header() -> str:
    columns = ("case", "way", "cost ms", "of input", "composites", "regions", "on host", "gap", "cpu s")
    return "{:<22}{:<8}{:>12}{:>10}{:>12}{:>9}{:>9}{:>9}{:>9}".format(*columns)


def _lines(item: Case, entries: dict[str, Entry], seconds: dict[str, float]) -> str:
    lines = []
    host = entries.get("host", {}).get("cost", math.nan)
    for way, entry in entries.items():
        name = f"{item.name}" if not lines else ""
        if "error" in entry:
            lines.append(f"{name:<22}{way:<8}fails: {entry['error'].splitlines()[0]}")
            continue
        bound = entry.get("bound")
        gap = "" if bound is None else f"{max(0.0, 1 - bound / entry['cost']):.1e}" if entry["cost"] else "0"
        lines.append(
            f"{name:<22}{way:<8}{entry['cost'] * 1e3:>12.5g}{entry['cost'] / host:>10.3f}{entry['composites']:>12}"
            f"{entry['regions']:>9}{entry['host']:>9}{gap:>9}{seconds[way]:>9.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
