"""Regions of dnnl by oneDNN beside generated C and ONNX Runtime: one thread, CPU time, in turn, medians.

    python -m benchmarks.onednn [--models resnet50 FILE.onnx ...] [--repeat 15] [--json FILE]

Each model is optimized for ``dnnl`` and ``cpu``. ``onednn`` runs with the library (see docs/onednn.md), ``c`` is the
program for the host alone, ``reorders`` counts those of one inference, and ``kernels`` how many call the library. Times
are milliseconds; outputs are compared with ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from threadpoolctl import threadpool_limits

from benchmarks.executor import load_model, table
from benchmarks.fresh_cache import fresh_cache
from benchmarks.models import SHARED
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import in_turn
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.search import Search

NAMES = ("tiny_resnet8", "tiny_resnet8.qop_u8s8", "tiny_mbv1_025", "mbv2", "mbv2.qop_u8s8", "bert4x256")
LEAST_SECONDS = 0.002
"""A sample is as many runs as take this long."""

Row = dict[str, Any]


def models() -> list[str]:
    """ResNet-50 and shared models, as far as these are there."""
    return ["resnet50", *(str(path) for name in NAMES if (path := SHARED / f"{name}.onnx").exists())]


def measure(name: str, repeat: int) -> Row:
    """Times of one model, and what oneDNN executes."""
    model = load_model(name)
    feeds = complete_inputs(ir.from_proto(model))
    onednn = CModel(Search.of(model, targets=["dnnl"]).extract().model, vendors=["dnnl"])
    portable = CModel(Search.of(model).extract().model)
    peer = session(model)
    expected = {y.name: np.asarray(v) for y, v in zip(peer.get_outputs(), peer.run(None, feeds), strict=True)}
    actual = onednn.run(feeds)
    ours, c, theirs = in_turn(
        [lambda: onednn.run(feeds), lambda: portable.run(feeds), lambda: peer.run(None, feeds)],
        repeat,
        least=LEAST_SECONDS,
    )
    coverage = onednn.emitted.coverage.get("dnnl")
    return {
        "model": Path(name).name.removesuffix(".onnx"),
        "onednn": 1e3 * statistics.median(ours),
        "c": 1e3 * statistics.median(c),
        "onnxruntime": 1e3 * statistics.median(theirs),
        "reorders": sum(p.is_reorder for p in onednn.primitives()),
        "kernels": f"{coverage.called}/{coverage.total}" if coverage is not None else "0/0",
        "pieces": onednn.emitted.runs,
        "difference": max(_difference(actual[key], y) for key, y in expected.items()),
    }


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference relative to the largest magnitude."""
    largest = float(np.abs(b.astype(np.float64)).max()) or 1.0
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) / largest


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", help="light networks by name, or files")
    parser.add_argument("--repeat", type=int, default=15, help="samples of each")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with fresh_cache(), threadpool_limits(1):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        for name in options.models or models():
            rows.append(measure(name, options.repeat))
            print(f"{rows[-1]['model']} done", file=sys.stderr, flush=True)
    print(table(rows))
    if options.json is not None:
        write_json(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
