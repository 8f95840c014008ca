"""What the cost model expects of each kernel of generated C, and what the kernel takes.

    python -m benchmarks.cost_model [--models resnet50 FILE.onnx ...] [--float | --integer] [--target my_c.target]
                                    [--seconds 3] [--kernels] [--json FILE]

The models are those of ``c_speed``, optimized and generated as there. Measured is the median CPU time of each kernel
inside the running model, predicted what the host's file says (`eqsat targets calibrate` measures a machine). For each
model and each family the table says how far both agree in order (Spearman's rank correlation), the middle of
predicted / measured, and the kernels that are taken for too cheap and too dear. Kendall's coefficient and the sum of
all kernels are given for the whole; ``--kernels`` lists every kernel.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
from threadpoolctl import threadpool_limits

from benchmarks.c_speed import models
from benchmarks.executor import load_model, table
from benchmarks.output import write_json
from benchmarks.ranks import kendall, spearman
from eqsat.codegen.predict import predict
from eqsat.codegen.profile import measure
from eqsat.codegen.runtime import CModel
from eqsat.errors import EqsatError
from eqsat.execute.inputs import complete_inputs
from eqsat.rules.ast import Target
from eqsat.search import Search
from eqsat.targets.find_targets import load_host

LEAST_RUNS, MOST_RUNS = 9, 300


@dataclass(frozen=True)
class Sample:
    """A kernel: where it is, and its seconds."""

    model: str
    name: str
    what: str
    family: str
    shape: tuple[int, ...]
    measured: float
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured

    def __str__(self) -> str:
        return f"{self.ratio:.2f} {self.what} {'x'.join(map(str, self.shape))} in {self.model}"


def samples(name: str, host: Target, seconds: float) -> list[Sample]:
    """All kernels of one model.

    Args:
        name: A light network or a file.
        host: Whose file predicts.
        seconds: Of CPU time to measure for, about.
    """
    model = load_model(name)
    feeds = complete_inputs(ir.from_proto(model))
    compiled = CModel(Search.of(model).extract().model, profile=True)
    compiled.run(feeds)
    start = time.process_time()
    compiled.run(feeds)
    once = max(time.process_time() - start, 1e-6)
    repeat = min(max(math.ceil(seconds / once), LEAST_RUNS), MOST_RUNS)
    short = Path(name).stem if name.endswith(".onnx") else name
    return [
        Sample(short, kernel.name, kernel.what, kernel.family, kernel.shape, taken, predict(kernel, host))
        for kernel, taken in measure(compiled, feeds, repeat=repeat)
    ]


def summary(name: str, found: Sequence[Sample]) -> dict[str, Any]:
    """A row of a table."""
    measured, predicted = [s.measured for s in found], [s.predicted for s in found]
    by_ratio = sorted(found, key=lambda s: s.ratio)
    return {
        "kernels of": name,
        "kernels": len(found),
        "milliseconds": 1e3 * sum(measured),
        "predicted": 1e3 * sum(predicted),
        "spearman": _number(spearman(predicted, measured)),
        "median ratio": statistics.median(s.ratio for s in found),
        "too cheap": str(by_ratio[0]),
        "too dear": str(by_ratio[-1]),
    }


def _number(value: float) -> float | None:
    """None where there is none, as JSON has it."""
    return None if math.isnan(value) else value


def grouped(found: Iterable[Sample], attribute: str) -> dict[str, list[Sample]]:
    """Samples by model or family, in order of appearance."""
    groups: dict[str, list[Sample]] = {}
    for sample in found:
        groups.setdefault(getattr(sample, attribute), []).append(sample)
    return groups


def host_of(target: str) -> Target:
    """The host that a file or a name declares.

    Raises:
        TargetError: It cannot be read.
    """
    return load_host(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the tables."""
    parser = argparse.ArgumentParser(prog="cost_model", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="*", help="light networks or files")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--float", action="store_true", help="float32 models only")
    kinds.add_argument("--integer", action="store_true", help="int8 models only")
    parser.add_argument("--target", default="c", help="host that predicts: a name or a file")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring, for each model")
    parser.add_argument("--kernels", action="store_true", help="list every kernel")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    try:
        host = host_of(options.target)
    except EqsatError as error:
        parser.error(str(error))
    found: list[Sample] = []
    with threadpool_limits(1):
        for name in options.models or models(not options.integer, not options.float):
            found += samples(name, host, options.seconds)
            print(f"{name} done", file=sys.stderr)
    if options.kernels:
        for s in found:
            print(f"{1e6 * s.measured:10.2f} µs  {1e6 * s.predicted:10.2f} predicted  {s.family}: {s}")
    by_model = [summary(name, group) for name, group in grouped(found, "model").items()]
    by_family = [summary(name, group) for name, group in sorted(grouped(found, "family").items())]
    whole = summary("all", found) | {
        "kendall": _number(kendall([s.predicted for s in found], [s.measured for s in found])),
        "spread": spread(found),
    }
    for rows in (by_model, by_family):
        print(table([{key: "-" if value is None else value for key, value in row.items()} for row in rows]))
    print(
        f"{whole['kernels']} kernels: Spearman {_shown(whole['spearman'])}, Kendall {_shown(whole['kendall'])}; "
        f"half of them within a factor of {whole['spread']:.2f}; "
        f"together {whole['milliseconds']:.1f} ms, predicted {whole['predicted']:.1f} ms"
    )
    if options.json:
        kernels = [{**s.__dict__, "ratio": s.ratio} for s in found]
        write_json(options.json, {"models": by_model, "families": by_family, "all": whole, "kernels": kernels})
    return 0


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def spread(found: Sequence[Sample]) -> float:
    """The factor within which half of the predictions are."""
    return math.exp(statistics.median(abs(math.log(s.ratio)) for s in found))


if __name__ == "__main__":
    sys.exit(main())
