"""Quantization by eqsat beside ONNX Runtime's quantizer: cost, integer operators and error, from the same samples.

    python -m benchmarks.quantize [--models NAME ...] [--methods minmax ...] [--samples 8] [--fresh 8] [--sweep]
                                  [--json FILE]

Models are those of ``float_models``: small, light, of the folder of exported models, or files. Both quantizers get the
same model and the same seeded samples, and make uint8 activations and int8 weights by channel. Columns:

- ``method``: how ranges were found; ``integral`` where eqsat was told to leave no float operator, if that is another
  program than the cheapest.
- ``SQNR``: signal to quantization noise in dB on samples that calibration has not seen.
- ``integer``, ``float``: operators that compute, in the program that is executed: eqsat's plan, and the graph that
  ONNX Runtime makes of the peer's file. Neither conversions nor data movement count.
- ``MACs``: part of the arithmetic that is integer; of the peer in eqsat's plan for its file.
- ``cost``: predicted time relative to the float model's, by eqsat's cost model; of the peer for the best that
  ``eqsat.optimize`` makes of its file.

``--sweep`` tightens the budget step by step, for each model: cost, predicted and measured SQNR, gap to the optimum, and
CPU seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from threadpoolctl import threadpool_limits

import eqsat
from benchmarks.executor import table
from benchmarks.float_models import SMALL, exported, float_model, samples
from benchmarks.models import LIGHT
from benchmarks.output import write_json
from benchmarks.quantize_peer import METHODS, MOVES, operators_in_runtime, outputs, quantized_by_peer, sqnr
from eqsat.errors import QuantizationError
from eqsat.partition.plan import Plan, PlanNode
from eqsat.partition.saved import inline
from eqsat.quantization.methods import ANY_METHOD, AnyMethod
from eqsat.quantization.options import Conversions
from eqsat.quantization.share import integer_share, is_conversion, is_integer

Row = dict[str, Any]

STEPS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Budgets of the sweep, in dB above the error of the cheapest program."""

HEAVY = ("bvlc_alexnet", "vgg19", "zfnet512")
"""Networks of hundreds of MB, left out unless asked for."""


_CONVERSIONS: tuple[Conversions, ...] = ("disabled", "fully_integral")


def compare(
    name: str, own_methods: Iterable[AnyMethod], peer_methods: Iterable[str], calibration: int, fresh: int
) -> list[Row]:
    """A row for each method of eqsat and of the peer.

    Args:
        name: Of the model.
        own_methods, peer_methods: Ways to find ranges.
        calibration: Samples that both quantizers see.
        fresh: Other samples, which errors are measured on.
    """
    model = float_model(name)
    seen, unseen = samples(model, calibration, seed=0), samples(model, fresh, seed=1)
    exact = outputs(model, unseen)
    found = []
    for method in own_methods:
        for conversions in _CONVERSIONS:
            start = time.process_time()
            try:
                result = eqsat.quantize(model, seen, method=method, conversions=conversions)
            except QuantizationError:
                # Some operator has no integer form.
                continue
            seconds = time.process_time() - start
            counts = operators_in_plan(result.plan)
            if found and found[-1]["method"] == method and counts == (found[-1]["integer"], found[-1]["float"]):
                # The cheapest program was integer throughout anyway.
                continue
            error = sqnr(exact, outputs(executable(result.model), unseen))
            cost = result.cost / result.baseline_cost
            label = method if conversions == "disabled" else f"{method}, integral"
            found.append(_row(name, "eqsat", label, error, *counts, result.share.work, cost, seconds))
    baseline = eqsat.optimize(model).baseline_cost
    for method in peer_methods:
        start = time.process_time()
        quantized = quantized_by_peer(model, seen, method)
        seconds = time.process_time() - start
        integer, floating = (sum(kinds.values()) for kinds in operators_in_runtime(quantized))
        best = eqsat.optimize(quantized, numerics="approximate")
        error, work = sqnr(exact, outputs(quantized, unseen)), integer_share(best.plan, {}).work
        found.append(_row(name, "peer", method, error, integer, floating, work, best.cost / baseline, seconds))
    return found


def sweep(name: str, calibration: int, fresh: int, steps: Sequence[float] = STEPS) -> list[Row]:
    """A row for each budget, loose ones first.

    Args:
        name: Of the model.
        calibration: Samples to quantize from.
        fresh: Other samples, which errors are measured on.
        steps: Budgets in dB above the error of the cheapest program.
    """
    model = float_model(name)
    seen, unseen = samples(model, calibration, seed=0), samples(model, fresh, seed=1)
    exact = outputs(model, unseen)
    output = model.graph.output[0].name
    found: list[Row] = []
    budgets: list[float | None] = [None]
    while budgets:
        budget = budgets.pop(0)
        start = time.process_time()
        try:
            result = eqsat.quantize(model, seen, budget=budget)
        except QuantizationError:
            # Even floats in another order differ by more.
            break
        seconds = time.process_time() - start
        if budget is None:
            budgets = [result.actual[output] + step for step in steps]
        found.append(
            {
                "model": name,
                "budget": "none" if budget is None else budget,
                "cost": result.cost / result.baseline_cost,
                "predicted": result.predicted[output],
                "measured": result.actual[output],
                "fresh": sqnr(exact, outputs(executable(result.model), unseen)),
                "integer": result.share.integer,
                "float": result.share.floating,
                "gap %": 100 * result.gap,
                "extractions": result.extractions,
                "seconds": seconds,
            }
        )
    return found


def operators_in_plan(plan: Plan) -> tuple[int, int]:
    """Integer and float kernels of a plan that compute."""
    kernels = [node for node in plan.nodes if not is_conversion(node) and not _moves(plan, node)]
    integer = sum(is_integer(plan, node) for node in kernels)
    return integer, len(kernels) - integer


def executable(model: ir.Model) -> onnx.ModelProto:
    """A result as a file for ONNX Runtime, without functions."""
    return ir.to_proto(inline(model))


def _moves(plan: Plan, node: PlanNode) -> bool:
    # A Gather from constants is a function by table.
    return node.body is None and node.op.name in MOVES and node.inputs[0] not in plan.constants


def _row(
    model: str,
    who: str,
    method: str,
    error: float,
    integer: int,
    floating: int,
    work: float,
    cost: float,
    seconds: float,
) -> Row:
    return {
        "model": model,
        "quantizer": who,
        "method": method,
        "SQNR": error,
        "integer": integer,
        "float": floating,
        "MACs %": 100 * work,
        "cost": cost,
        "seconds": seconds,
    }


def summary(rows: Sequence[Row]) -> list[Row]:
    """For each model eqsat with its first method against the best of the peer's, with no more float operators."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model and row["quantizer"] == "eqsat"]
        peer = [row for row in rows if row["model"] == model and row["quantizer"] == "peer"]
        if not own or not peer:
            continue
        best = max(row["SQNR"] for row in peer)
        floating = min(row["float"] for row in peer)
        alike = [row for row in own if row["float"] <= floating] or own
        found.append(
            {
                "model": model,
                "eqsat": alike[0]["SQNR"],
                "best of peer": best,
                "gain dB": alike[0]["SQNR"] - best,
                "float operators": alike[0]["float"],
                "of peer": floating,
                "cost": alike[0]["cost"] / min(row["cost"] for row in peer),
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(prog="quantize", description=(__doc__ or "").split("\n")[0])
    names = [*SMALL, *exported(), *(name for name in LIGHT if name not in HEAVY)]
    parser.add_argument("--models", nargs="*", default=names, help="by name, or files")
    parser.add_argument(
        "--methods", nargs="*", default=["minmax"], choices=ANY_METHOD, help="eqsat's, the default first"
    )
    parser.add_argument("--peer-methods", nargs="*", default=list(METHODS), choices=list(METHODS), help="the peer's")
    parser.add_argument("--samples", type=int, default=8, help="to calibrate with")
    parser.add_argument("--fresh", type=int, default=8, help="to measure errors on")
    parser.add_argument("--sweep", action="store_true", help="tighten the budget instead")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    with threadpool_limits(1):
        for name in options.models:
            if options.sweep:
                rows += sweep(name, options.samples, options.fresh)
            else:
                rows += compare(name, options.methods, options.peer_methods, options.samples, options.fresh)
            print(f"{name} done", file=sys.stderr)
    content: dict[str, Any] = {"sweep" if options.sweep else "methods": rows}
    print(table(rows))
    if not options.sweep:
        content["summary"] = summary(rows)
        print("\neqsat, with no more float operators, against the best of the peer; cost: eqsat / peer")
        print(table(content["summary"]))
    if options.json:
        write_json(options.json, content)
    return 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
