"""What it costs that sizes of generated C are arguments: one program for all sizes against one for each.

    python -m benchmarks.free_sizes [FILE ... --dim NAME=FROM..TO@TYPICAL ...] [--pairs 15] [--json FILE]

Without files, small networks of its own are measured. A file is a model as for ``benchmarks.zoo``. For each of some
sizes within the ranges, the program that receives sizes and the one that was generated for this size run alternately.
Columns: the sizes, the median milliseconds of CPU time of both, and the median of the ratios of the pairs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import eqsat
from benchmarks import zoo
from benchmarks.executor import table
from benchmarks.output import write_json
from eqsat import op
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.model.read.given_sizes import GivenSize

Row = dict[str, Any]
Ranges = Mapping[str, tuple[int, int, int]]


def transformer(width: int = 384, heads: int = 6) -> ir.Model:
    """A layer of a transformer, with free batch and sequence."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def project(x: Any, n: int, m: int) -> Any:
        return op.Add(op.MatMul(x, weights(n, m)), weights(m))

    def split(x: Any) -> Any:
        parts = op.Reshape(x, np.array([0, -1, heads, width // heads]))
        return op.Transpose(parts, perm=[0, 2, 1, 3])

    x = eqsat.input("x", ("batch", "seq", width))
    q, k, v = (split(project(x, width, width)) for _ in range(3))
    scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), np.float32((width // heads) ** -0.5))
    mixed = op.Transpose(op.MatMul(op.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    joined = op.Add(x, project(op.Reshape(mixed, np.array([0, -1, width])), width, width))
    y = op.LayerNormalization(joined, np.ones(width, np.float32), np.zeros(width, np.float32))
    return eqsat.graph(op.Add(y, project(op.Relu(project(y, width, 4 * width)), 4 * width, width)))


def convolutions(side: int | str = 28) -> ir.Model:
    """Three convolutions and a pool, with a free batch, and free sides if they have a name."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    x = eqsat.input("x", ("batch", 3, side, side if isinstance(side, int) else f"{side}2"))
    x = op.Relu(op.Conv(x, weights(32, 3, 3, 3), pads=[1, 1, 1, 1]))
    x = op.Relu(op.Conv(x, weights(32, 1, 3, 3), pads=[1, 1, 1, 1], group=32))
    x = op.Relu(op.Conv(x, weights(64, 32, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]))
    return eqsat.graph(op.GlobalAveragePool(x))


def own() -> Iterator[tuple[str, Any, Ranges]]:
    """Networks of its own, with ranges of their sizes."""
    batch, seq, side = (1, 8, 1), (1, 512, 128), (8, 128, 56)
    yield "transformer layer", transformer(), {"batch": batch, "seq": seq}
    yield "convolutions, free batch", convolutions(), {"batch": batch}
    yield "convolutions, free sides", convolutions("side"), {"batch": batch, "side": side, "side2": side}


def points(ranges: Ranges) -> list[dict[str, int]]:
    """Sizes to measure: the typical ones, the smallest, a prime, a multiple of 16, and a quarter of the greatest."""

    def within(least: int, most: int, size: int) -> int:
        return max(least, min(most, size))

    found = [{name: size for name, (_, _, size) in ranges.items()}]
    found += [{name: within(low, high, size) for name, (low, high, _) in ranges.items()} for size in (1, 13, 64)]
    found.append({name: within(low, high, high // 4) for name, (low, high, _) in ranges.items()})
    return [sizes for i, sizes in enumerate(found) if sizes not in found[:i]]


def rows_of(name: str, model: Any, ranges: Ranges, pairs: int, notes: Mapping[str, Any]) -> Iterator[Row]:
    """One row for each of some sizes."""
    loaded = load(model)
    dims: dict[str, GivenSize] = dict(ranges)
    free = CModel(loaded, dims=dims)
    for sizes in points(ranges):
        fixed = CModel(loaded, dims=sizes)
        inputs = zoo.feeds(loaded, sizes, notes, 0) if notes else complete_inputs(loaded, dims=sizes)
        for a, b in zip(free.run(inputs).values(), fixed.run(inputs).values(), strict=True):
            assert np.allclose(a, b, rtol=1e-3, atol=1e-3), (name, sizes)
        once = max(_seconds(fixed, inputs, 1), 1e-7)
        repeat = max(1, min(2000, int(2e-3 / once)))
        measured = [(_seconds(free, inputs, repeat), _seconds(fixed, inputs, repeat)) for _ in range(pairs)]
        yield {
            "model": name,
            "sizes": " ".join(f"{k}={v}" for k, v in sizes.items()),
            "free ms": 1e3 * statistics.median(a for a, _ in measured),
            "fixed ms": 1e3 * statistics.median(b for _, b in measured),
            "ratio": statistics.median(a / b for a, b in measured),
        }


def _seconds(model: CModel, inputs: Mapping[str, np.ndarray], repeat: int) -> float:
    start = time.process_time()
    for _ in range(repeat):
        model.run(inputs)
    return (time.process_time() - start) / repeat


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--dim", action="append", default=[], help="NAME=FROM..TO@TYPICAL")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    ranges = dict(_range(text) for text in given.dim)
    rows: list[Row] = []
    cases: Sequence[tuple[str, Any, Ranges, Mapping[str, Any]]] = [
        (zoo.name_of(path), zoo.read(path), ranges, zoo.notes_of(path)) for path in zoo.files(given.files)
    ] or [(*case, {}) for case in own()]
    for name, model, sizes, notes in cases:
        rows += rows_of(name, model, sizes, given.pairs, notes)
    print(table(rows))
    if given.json:
        write_json(given.json, rows)
    return 0


def _range(text: str) -> tuple[str, tuple[int, int, int]]:
    name, _, size = text.partition("=")
    ends, _, usual = size.partition("@")
    least, _, most = ends.partition("..")
    return name, (int(least), int(most), int(usual or least))


if __name__ == "__main__":
    raise SystemExit(main())
