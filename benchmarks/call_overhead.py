"""What a call of a compiled model takes besides the model: calls of models that do nearly nothing, in pairs.

    python -m benchmarks.call_overhead [--calls 20000] [--json FILE]

Columns: the number of inputs, and the median microseconds of CPU time of a call with arrays, with a dictionary, with
``out``, and of ONNX Runtime with one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

import eqsat
from benchmarks.executor import table
from benchmarks.output import write_json
from eqsat import op

ROUNDS = 15


def sums(inputs: int) -> ir.Model:
    """The sum of some vectors of four elements."""
    total, *rest = (eqsat.input(f"x{i}", (4,)) for i in range(inputs))
    for x in rest:
        total = op.Add(total, x)
    return eqsat.graph(op.Relu(total))


def session(model: ir.Model) -> ort.InferenceSession:
    """The model in ONNX Runtime, on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"])


def medians(ways: list[Callable[[], Any]], calls: int) -> list[float]:
    """Microseconds of a call of each, by turns."""
    samples: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, times in zip(ways, samples, strict=True):
            start = time.process_time()
            for _ in range(calls // ROUNDS):
                way()
            times.append((time.process_time() - start) / (calls // ROUNDS) * 1e6)
    return [statistics.median(times) for times in samples]


def measure(inputs: int, calls: int) -> dict[str, Any]:
    """A row of the table."""
    graph = sums(inputs)
    model, other = eqsat.compile(graph), session(graph)
    arrays = [np.full(4, i, np.float32) for i in range(inputs)]
    named, out = dict(zip(model.inputs, arrays, strict=True)), np.empty(4, np.float32)
    ways = [
        lambda: model(*arrays),
        lambda: model(named),
        lambda: model(*arrays, out=out),
        lambda: other.run(None, named),
    ]
    names = ("arrays", "dictionary", "out", "ONNX Runtime")
    return {"inputs": inputs} | dict(zip(names, medians(ways, calls), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [measure(inputs, given.calls) for inputs in (1, 4, 16)]
    print(table(rows))
    if given.json is not None:
        write_json(given.json, rows)


if __name__ == "__main__":
    main()
