"""Generated C beside ONNX Runtime: same process, one thread, CPU time, in turn, medians.

    python -m benchmarks.c_speed [--models resnet50 FILE.onnx ...] [--float | --integer] [--repeat 15]
                                 [--json FILE]

By default the light networks and the models of the shared folder, float32 and int8 (``*.qop_u8s8``). Each model is
optimized for the host, written as C and compiled for this machine; ONNX Runtime gets the file as it is and all its
optimizations. The input is random and seeded; outputs are compared. ``build`` is generation, C compiler and loading in
seconds of the clock, with an empty cache.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from threadpoolctl import threadpool_limits

from benchmarks.executor import load_model, table
from benchmarks.fresh_cache import fresh_cache
from benchmarks.models import LIGHT, SHARED
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import in_turn
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.search import Search

FLOATS = ("tiny_ae", "tiny_dscnn", "tiny_mbv1_025", "tiny_resnet8", "mbv2", "bert4x256")
LEAST_SECONDS = 0.002
"""A sample is as many runs as take this long, so that small models are not lost in the clock's grain."""

_INTEGER = frozenset({"QLinearConv", "QLinearMatMul", "QGemm"})

Row = dict[str, Any]


def models(floats: bool, integers: bool) -> list[str]:
    """Names of light networks and paths of shared models, as far as these are there."""
    found: list[str] = [*LIGHT] if floats else []
    if floats:
        found += [str(path) for name in FLOATS if (path := SHARED / f"{name}.onnx").exists()]
    if integers:
        found += [str(path) for path in sorted(SHARED.glob("*.qop_u8s8.onnx"))]
    return found


def measure(name: str, repeat: int) -> Row:
    """Times of one model in milliseconds, and how far its outputs are from ONNX Runtime's."""
    model = load_model(name)
    feeds = complete_inputs(ir.from_proto(model))
    search = Search.of(model)
    start = time.perf_counter()
    compiled = CModel(search.extract().model)
    build = time.perf_counter() - start
    peer = session(model)
    expected = {y.name: np.asarray(v) for y, v in zip(peer.get_outputs(), peer.run(None, feeds), strict=True)}
    actual = compiled.run(feeds)
    theirs, ours = in_turn([lambda: peer.run(None, feeds), lambda: compiled.run(feeds)], repeat, least=LEAST_SECONDS)
    return {
        "model": Path(name).stem if name.endswith(".onnx") else name,
        "type": "int8" if any(node.op_type in _INTEGER for node in model.graph.node) else "float32",
        "onnxruntime": 1e3 * statistics.median(theirs),
        "c": 1e3 * statistics.median(ours),
        "ratio": statistics.median(c / o for c, o in zip(ours, theirs, strict=True)),
        "difference": max(_difference(actual[key], y) for key, y in expected.items()),
        "build": build,
    }


def _difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest magnitude."""
    wide = expected.astype(np.float64)
    return float(np.abs(actual.astype(np.float64) - wide).max(initial=0) / max(np.abs(wide).max(initial=0), 1e-30))


def geometric_mean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(prog="c_speed", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="*", help="light networks or files")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--float", action="store_true", help="float32 models only")
    kinds.add_argument("--integer", action="store_true", help="int8 models only")
    parser.add_argument("--repeat", type=int, default=15, help="samples of each")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    names = options.models or models(not options.integer, not options.float)
    rows = []
    with threadpool_limits(1), fresh_cache():
        for name in names:
            rows.append(measure(name, options.repeat))
            print(f"{name} done", file=sys.stderr)
    print("milliseconds of CPU time; ratio: C / ONNX Runtime; difference: relative to the largest output")
    print(table(rows))
    summary = {}
    for kind in ("float32", "int8"):
        ratios = [row["ratio"] for row in rows if row["type"] == kind]
        if ratios:
            summary[kind] = {"geometric mean": geometric_mean(ratios), "worst": max(ratios)}
            print(f"{kind}: geometric mean {summary[kind]['geometric mean']:.3f}, worst {summary[kind]['worst']:.3f}")
    if options.json:
        write_json(options.json, {"models": rows, "summary": summary})
    return 0


if __name__ == "__main__":
    sys.exit(main())
