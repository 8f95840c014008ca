"""``make ort-old``: files load and run in an older ONNX Runtime wherever their input does, with equal values.

``python -m tests.conformance.old PYTHON [MODELS]``: ``PYTHON`` is that of an environment with the older runtime, whose
side is ``old_runner.py``; ``MODELS`` are files and folders as for ``make zoo``, by default the cases of
``onnx.backend.test``. Each model that the runtime runs is optimized for the host and for ``dnnl`` within the newest
opset that the runtime knows or a lower one, and saved with functions and without. Cases of newer opsets are read as
models of that opset: most operators have newer versions only because these accept more types.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import eqsat
from benchmarks import zoo
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.model.read.dims import free_sizes
from eqsat.model.write.older import FUNCTIONS_IR
from eqsat.schema.versions import ir_version_of
from tests.conformance import cases, loads

NEWEST = 21
"""The newest opset of ONNX Runtime 1.20."""
_TOLERANCE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-9}
_WAYS = ((), False), (("dnnl",), False), (("dnnl",), True)
"""Targets, and whether the file has no functions."""
Case = tuple[str, onnx.ModelProto, dict[str, Any]]
"""A name, a model and its inputs."""


class OldRuntime:
    """The process of the older runtime; started again if it ends."""

    def __init__(self, python: str, folder: Path) -> None:
        self._command = [python, str(Path(__file__).with_name("old_runner.py"))]
        self._folder = folder
        self._start()

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        assert self._process.stdout is not None
        self.version = self._process.stdout.readline().strip()
        if not self.version:
            sys.exit(f"{self._command[0]} has no ONNX Runtime")

    def run(self, model: Path, feed: dict[str, Any]) -> list[np.ndarray] | str:
        """The outputs, or why there are none."""
        assert self._process.stdin is not None and self._process.stdout is not None
        given, out = self._folder / "feed.npz", self._folder / "out.npz"
        np.savez(given, **feed)
        order = json.dumps({"model": str(model), "feed": str(given), "out": str(out)})
        print(order, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer.endswith("\n"):
            self._process.wait()
            self._start()
            return "the process ended"
        if answer.strip():
            return answer.strip()
        with np.load(out) as arrays:
            return [arrays[str(i)] for i in range(len(arrays.files))]


def outcome(
    model: onnx.ModelProto, feed: dict[str, Any], runtime: OldRuntime, folder: Path, opset: int = NEWEST
) -> str:
    """``pass``, ``skip: why``, ``refused: why`` for what eqsat does not load, or ``fail: why``."""
    if not all(isinstance(x, np.ndarray) and x.dtype.kind in "biufOU" for x in feed.values()):
        return "skip: inputs that are not arrays of numbers or strings"
    feed = {name: x.astype(str) if x.dtype.kind == "O" else x for name, x in feed.items()}
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.save(model, before)
    wanted = runtime.run(before, feed)
    if isinstance(wanted, str):
        return f"skip: the older runtime refuses the input: {wanted}"
    for targets, flat in _WAYS:
        what = f"{targets}{' flat' * flat}"
        try:
            eqsat.optimize(model, targets, opset=opset).save(after, flat=flat)
        except EqsatError as error:
            return f"refused: {' '.join(str(error).split())[:200]}"
        found = runtime.run(after, feed)
        if isinstance(found, str):
            return f"fail: {what}: {found}"
        for a, b in zip(wanted, found, strict=True):
            scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) if a.dtype.kind == "f" else 0.0
            try:
                loads.compare(b, a, _TOLERANCE.get(a.dtype.name, 0.0) * max(1.0, scale))
            except AssertionError as error:
                return f"fail: {what}: {' '.join(str(error).split())[:200]}"
    return "pass"


def node_cases(match: str = "", opset: int = NEWEST) -> Iterator[Case]:
    """Those of ``onnx.backend.test``, as models of at most that opset."""
    for name, case in cases.cases("node").items():
        if match not in name or cases.skip_reason(case):
            continue
        model = onnx.ModelProto.FromString(cases.model_of(case).SerializeToString())
        model.ir_version = min(model.ir_version, max(ir_version_of({"": opset}), FUNCTIONS_IR))
        for imported in (*model.opset_import, *(i for f in model.functions for i in f.opset_import)):
            if not imported.domain:
                imported.version = min(imported.version, opset)
        inputs = next(iter(cases.data_sets(case, model)))[0]
        yield name, model, dict(zip((i.name for i in model.graph.input), inputs, strict=False))


def file_cases(places: list[str]) -> Iterator[Case]:
    """Those of files, at typical sizes."""
    for path in zoo.files(places):
        model, notes = zoo.read(path), zoo.notes_of(path)
        loaded = load(model)
        sizes = {name: size.typical for name, size in free_sizes(loaded, {}).items()} | notes.get("dims", {})
        yield zoo.name_of(path), model, zoo.feeds(loaded, sizes, notes, 0)


def main(arguments: list[str]) -> int:
    """Prints what fails; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.old", description=__doc__)
    parser.add_argument("python", help="the Python of an environment with the older runtime")
    parser.add_argument("--match", default="", help="only cases of onnx.backend.test with this in their name")
    parser.add_argument("--opset", type=int, default=NEWEST, help="the newest opset of models and of files")
    parser.add_argument("models", nargs="*", help="files and folders; by default the cases of onnx.backend.test")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        runtime = OldRuntime(options.python, Path(folder))
        print(f"ONNX Runtime {runtime.version}")
        for name, model, feed in (
            file_cases(options.models) if options.models else node_cases(options.match, options.opset)
        ):
            result = outcome(model, feed, runtime, Path(folder), options.opset)
            counts[result.partition(":")[0]] += 1
            if not result.startswith(("pass", "skip")) or options.models:
                print(f"{name}: {result}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if counts["fail"] or not counts["pass"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
