"""A decoder's step through weights of few bits: how fast C reads them, beside the memory and ONNX Runtime, one thread.

    python -m benchmarks.nbits [--columns 32768] [--depth 4096] [--rows 1] [--repeat 9] [--json FILE]

Each product is larger than the caches. The memory's bandwidth is that of ``y = x + s * z`` over as many bytes in the
same run, by turns, counted as STREAM does: each of the three arrays once. All figures are medians. Columns:

- ``C``, ``ORT``: milliseconds of CPU time.
- ``read``: bytes of weights, scales and zero points a second, in 1e9.
- ``of triad``: the same relative to the bandwidth that was measured in the same turns.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.executor import table
from benchmarks.output import write_json
from benchmarks.peer import session
from benchmarks.timing import Run, in_turn
from eqsat.codegen.runtime import CModel
from eqsat.model.builder import graph, input
from eqsat.model.load import load

SETTINGS = ((4, 32, False), (4, 32, True), (4, 128, False), (4, 128, True), (8, 32, False), (8, 128, True))
"""Bits, numbers of a block, zero points."""


def product(rows: int, depth: int, columns: int, bits: int, block: int, zeros: bool) -> tuple[onnx.ModelProto, int]:
    """A model of one product, and the bytes of its weights."""
    rng = np.random.default_rng(0)
    blocks = -(-depth // block)
    weights = {
        "weights": rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
        "scales": rng.random(columns * blocks, np.float32),
    }
    if zeros:
        weights["zeros"] = rng.integers(0, 256, columns * -(-blocks * bits // 8), np.uint8)
    node = helper.make_node(
        "MatMulNBits",
        ["x", *weights],
        ["y"],
        domain="com.microsoft",
        K=depth,
        N=columns,
        bits=bits,
        block_size=block,
    )
    made = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10), sum(w.nbytes for w in weights.values())


def triad(size: int) -> tuple[Run, int]:
    """A call of ``x + s * z`` with so many elements, and the bytes that it moves."""
    x, z = (input(name, (size,)) for name in "xz")
    compiled = CModel(graph({"y": x + np.float32(3) * z}))
    feeds = {name: np.ones(size, np.float32) for name in "xz"}
    out = compiled.run(feeds)
    return lambda: compiled.run(feeds, out), 12 * size


def both(model: onnx.ModelProto, rows: int, depth: int) -> tuple[Run, Run]:
    """Calls of C and of ONNX Runtime."""
    feeds = {"x": np.random.default_rng(1).standard_normal((rows, depth)).astype(np.float32)}
    compiled, theirs = CModel(load(model)), session(model)
    out = compiled.run(feeds)
    return lambda: compiled.run(feeds, out), lambda: theirs.run(None, feeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--columns", type=int, default=32768, help="columns of the weights")
    parser.add_argument("--depth", type=int, default=4096, help="rows of the weights")
    parser.add_argument("--rows", type=int, default=1, help="rows of the input")
    parser.add_argument("--repeat", type=int, default=9, help="samples of each")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for bits, block, zeros in SETTINGS:
        model, size = product(options.rows, options.depth, options.columns, bits, block, zeros)
        memory, moved = triad(size // 12)
        runs = [*both(model, options.rows, options.depth), memory]
        ours, other, stream = map(statistics.median, in_turn(runs, options.repeat))
        rows.append(
            {
                "bits": bits,
                "block": block,
                "zeros": zeros,
                "C": round(1e3 * ours, 2),
                "ORT": round(1e3 * other, 2),
                "read": round(size / ours / 1e9, 1),
                "triad": round(moved / stream / 1e9, 1),
                "of triad": round(size / ours / (moved / stream), 2),
            }
        )
    print(table(rows))
    if options.json:
        write_json(options.json, rows)


if __name__ == "__main__":
    main()
