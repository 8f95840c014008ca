"""Single operators in the settings of exported models: generated C beside ONNX Runtime, one thread.

    python -m benchmarks.c_operators [FILE_OR_FOLDER ...] [--only Resize Conv ...] [--family loops] [--share 0.005]
                                     [--top N] [--repeat 9] [--keep FOLDER] [--kept FOLDER] [--json FILE]

The settings are those of the kernels of each model's program that are predicted to take at least ``--share`` of it
(files as for ``benchmarks.zoo``), and the lists in ``own_settings.py``, ``typed_settings.py``,
``odd_settings.py`` and ``quantized_settings.py``, which ``--no-own`` leaves out. Equal ones are measured once. Each is
a model of its own, with the elementwise operators that were fused into the kernel. Both run in turn in one process. The
figures are the least CPU time of a call, less that of a call that does nothing. ``--keep`` writes the settings as
models, and ``--kept`` reads them again. Columns:

- ``C``, ``ORT``: microseconds; ``ratio``: C / ONNX Runtime, by which the table is sorted.
- ``predicted``: microseconds by the host's file, relative to ``C``.
- ``share``: the greatest part of a model that all such kernels take by prediction, and that model.
- ``difference``: of the results, relative to the greatest magnitude.
- ``family``: of the kernels, the most expensive first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from threadpoolctl import threadpool_limits

from benchmarks import zoo
from benchmarks.c_speed import geometric_mean
from benchmarks.executor import table
from benchmarks.odd_settings import odd
from benchmarks.operator_settings import Setting, feeds_of, keep, kept, of_models, with_weights
from benchmarks.output import write_json
from benchmarks.own_settings import own
from benchmarks.peer import session
from benchmarks.quantized_settings import quantized
from benchmarks.timing import Run, in_turn
from benchmarks.typed_settings import typed
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.predict import predict
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from eqsat.rules.ast import Target
from eqsat.targets.find_targets import load_host

LEAST_SECONDS = 1e-3
"""Of a sample."""
_EMPTY = 0.01
"""Microseconds that a setting takes at least."""

Row = dict[str, Any]


def runs_of(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> tuple[CModel, Callable[[], Any], Any]:
    """The compiled model, a call of it into the same arrays each time, and a session of ONNX Runtime."""
    compiled = CModel(load(model))
    out = {name: np.array(y) for name, y in compiled.run(feeds).items()}
    if any(argument.found for argument in compiled.emitted.outputs):
        out = {}
    return compiled, lambda: compiled.run(feeds, out), session(model)


def idle() -> tuple[Run, Run]:
    """Calls of C and of ONNX Runtime that do nothing."""
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[1] y) {y = Neg(x)}'
    feeds = {"x": np.ones(1, np.float32)}
    _, ours, theirs = runs_of(onnx.parser.parse_model(text), feeds)
    return ours, lambda: theirs.run(None, feeds)


def measure(setting: Setting, host: Target, repeat: int, nothing: tuple[Run, Run]) -> Row:
    """One row."""
    model = with_weights(setting.model)
    feeds = feeds_of(model)
    row: Row = {"what": setting.what, "setting": setting.shapes}
    try:
        compiled, ours, theirs = runs_of(model, feeds)
        expected = theirs.run(None, feeds)
    except Exception as error:  # whatever refuses a setting is a finding
        return row | {"problem": " ".join(str(error).split())[:200]}
    actual = list(compiled.run(feeds).values())
    runs: list[Run] = [ours, lambda: theirs.run(None, feeds), *nothing]
    least = [1e6 * min(samples) for samples in in_turn(runs, repeat, least=LEAST_SECONDS)]
    c, ort = (max(taken - less, _EMPTY) for taken, less in zip(least[:2], least[2:], strict=True))
    costs = predicted(compiled.emitted.kernels, host)
    largest = max(setting.shares, key=lambda name: setting.shares[name], default="")
    return row | {
        "C": c,
        "ORT": ort,
        "ratio": c / ort,
        "predicted": sum(costs.values()) / c,
        "share": setting.shares.get(largest, 0.0),
        "model": largest,
        "difference": zoo.error_of(expected, actual),
        "family": " + ".join(sorted(costs, key=lambda f: -costs[f])),
    }


def predicted(kernels: Sequence[KernelInfo], host: Target) -> dict[str, float]:
    """Microseconds by kernel family."""
    costs: dict[str, float] = {}
    for kernel in kernels:
        costs[kernel.family] = costs.get(kernel.family, 0.0) + 1e6 * predict(kernel, host)
    return costs


def chosen(settings: Sequence[Setting], only: Sequence[str]) -> list[Setting]:
    """Those with one of some operators."""
    return [s for s in settings if not only or s.operators & set(only)]


def report(rows: Sequence[Row], top: int) -> None:
    """The table, slowest beside ONNX Runtime first, and a line on all."""
    good = sorted((r for r in rows if "ratio" in r), key=lambda r: -r["ratio"])
    columns = ("ratio", "C", "ORT", "predicted", "share", "model", "difference", "family", "what", "setting")
    print("microseconds of CPU time")
    print(table([{c: _cell(c, r[c]) for c in columns} for r in good[: top or None]]))
    for row in rows:
        if "problem" in row:
            print(f"{row['what']} {row['setting']}: {row['problem']}")
    if good:
        slower = [r for r in good if r["ratio"] > 1 / 0.95]
        print(
            f"{len(good)} settings: geometric mean {geometric_mean([r['ratio'] for r in good]):.2f}, "
            f"{len(slower)} slower than 1 / .95, {sum(r['share'] > 0.02 for r in slower)} of these with more than 2 % "
            f"of a model; predicted / measured: median {statistics.median(r['predicted'] for r in good):.2f}"
        )


def _cell(column: str, value: Any) -> Any:
    if column == "share":
        return f"{100 * value:.1f} %" if value else "-"
    return f"{value:.1e}" if column == "difference" else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if a result is wrong."""
    description = __doc__ or ""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", help="models, or folders with models")
    parser.add_argument("--only", nargs="+", default=[], metavar="OPERATOR")
    parser.add_argument("--family", default="", help="only kernels of families with this in their name")
    parser.add_argument("--share", type=float, default=0.005)
    parser.add_argument("--no-own", action="store_true")
    parser.add_argument("--top", type=int, default=0, help="rows of the table; all by default")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--target", default="c", help="host that predicts: a name or a file")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    host = load_host(given.target)
    rows: list[Row] = []
    with threadpool_limits(1):
        settings, problems = of_models(zoo.files(given.places), host, given.share)
        if given.keep is not None:
            keep(settings, given.keep)
        settings += list(kept(sorted(given.kept.glob("*.onnx")))) if given.kept is not None else []
        settings += [] if given.no_own else [*own(), *typed(), *odd(), *quantized()]
        nothing = idle()
        for setting in chosen(settings, given.only):
            row = measure(setting, host, given.repeat, nothing)
            if given.family in row.get("family", given.family):
                rows.append(row)
    report(rows, given.top)
    for problem in problems:
        print(problem)
    if given.json is not None:
        write_json(given.json, {"rows": rows, "problems": problems})
    wrong = [r for r in rows if "difference" in r and not r["difference"] < 2e-2]
    for row in wrong:
        print(f"wrong: {row['what']} {row['setting']}: {row['difference']:.1e}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
