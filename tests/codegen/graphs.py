"""Random graphs as C: ``python -m tests.codegen.graphs START COUNT [--how WAY ...] [--kind KIND]``.

Networks of the fuzzer, its cases of all kinds and types (as they are, and optimized for either host), or networks with
what layouts, halos and memory plans have to cope with (as they are, and planned by an optimization for generated C),
in the main graph or in the bodies of control flow.
All graphs of a call are one library. A difference that the fuzzer's judge does not explain is a failure.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from eqsat.codegen.generate import generate
from eqsat.errors import CodegenError
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.search import Search
from tests.codegen import nodes
from tests.codegen.random_bodies import in_bodies
from tests.codegen.random_graphs import random_model
from tests.codegen.ways import WAYS, Way, sanitized_ways
from tests.fuzz import generator
from tests.fuzz.generator import Case
from tests.fuzz.judge import DisagreementError, Judge
from tests.fuzz.operators import UnjudgedError
from tests.fuzz.progress import Progress
from tests.fuzz.values import Value

BATCH = 20
HOSTS = {"cases": (None, "cpu", None, "c"), "networks": (None, None, None, "c"), "bodies": (None, None, None, "c")}
"""By kind the host that every fourth graph is optimized for before it becomes C."""
KINDS = {"fuzzer": generator.generate, "networks": random_model, "bodies": in_bodies}


@dataclass(frozen=True)
class Judged:
    """A program, and who knows what it has to compute.

    Attributes:
        program: Its outputs in all worlds, if it is another than the judge's.
    """

    prepared: nodes.Prepared
    judge: Judge
    program: Mapping[str, Value] | None
    lsb: bool


def case_of(seed: int, kind: str) -> Case:
    if kind == "cases":
        return generator.generate_case(seed)
    model = KINDS[kind](seed)
    return Case(model, complete_inputs(load(model), seed=seed), seed)


def prepare(seed: int, way: Way, kind: str = "fuzzer") -> Judged | None:
    """A random graph as C; None if C cannot hold it, or nobody can judge it."""
    case = case_of(seed, kind)
    model = load(case.model)
    host = HOSTS.get(kind, (None,) * 4)[seed % 4]
    if host is not None:
        search = Search.of(case.model, host=host, time_limit=30.0, iterations=6, enodes=4000)
        # The judge decides; ONNX's reference, which verifies bodies, stacks some rows of a Loop along another axis.
        model = search.extract("best", verify=kind != "bodies").model
    try:
        emitted = generate(model, name=f"graph{seed}", isas=way.isas, embedded=False)
        judge = Judge(case)
        program = judge.program(ir.to_proto(model), lsb=True) if host is not None else None
    except (CodegenError, UnjudgedError):
        return None
    return Judged(nodes.Prepared(str(seed), emitted, dict(case.feeds), []), judge, program, host is not None)


def failures(seeds: Sequence[int], how: str = "native", kind: str = "fuzzer") -> tuple[int, list[str]]:
    """How many graphs ran, and what differs."""
    way = WAYS[how]
    judged = [found for seed in seeds if (found := prepare(seed, way, kind)) is not None]
    ready = [j.prepared for j in judged]
    results = nodes.results(nodes.compiled(ready, way), ready, way)
    lines = []
    for known in judged:
        prepared = known.prepared
        outputs = results[prepared.name]
        if isinstance(outputs, str):
            lines.append(f"{kind}, {how}: graph {prepared.name} crashes: {outputs}")
            continue
        names = [y.name for y in prepared.emitted.outputs]
        found = dict(zip(names, outputs, strict=True))
        try:
            known.judge.compare(f"graph {prepared.name}", found, known.program, lsb=known.lsb)
        except DisagreementError as error:
            lines.append(f"{kind}, {how}: {error}")
    return len(ready), lines


def apart(start: int, count: int, how: str, kind: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "tests.codegen.graphs", str(start), str(count), "--how", how, "--kind", kind]
    return subprocess.run([*command, "--here"], capture_output=True, encoding="utf-8", check=False)


def main(arguments: list[str]) -> int:
    """Run and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.codegen.graphs", description=__doc__)
    parser.add_argument("start", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--how", choices=(*WAYS, "sanitize"), action="append")
    parser.add_argument("--kind", choices=(*KINDS, "cases"), action="append")
    parser.add_argument("--jobs", type=int, default=1, help="batches at the same time")
    parser.add_argument("--resume", type=Path, help="file of outcomes: those of an unchanged program are kept")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.here:
        ran, wrong = failures(range(options.start, options.start + options.count), options.how[0], options.kind[0])
        print("\n".join([*wrong, f"{ran} graphs, {len(wrong)} failures"]))
        return 1 if wrong else 0
    progress = Progress(options.resume)
    hows = [name for how in options.how or ["native"] for name in (sanitized_ways() if how == "sanitize" else [how])]
    kinds = options.kind or list(KINDS)
    batches = [
        (how, kind, start, min(BATCH, options.start + options.count - start))
        for how in hows
        for kind in kinds
        for start in range(options.start, options.start + options.count, BATCH)
    ]
    left = [b for b in batches if (b[0], " ".join(map(str, b[1:]))) not in progress.known]
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(apart, start, count, how, kind): (how, kind, start, count)
                   for how, kind, start, count in left}  # fmt: skip
        for number, future in enumerate(as_completed(running), len(batches) - len(left) + 1):
            (how, *rest), done = running[future], future.result()
            if done.returncode:
                failed += 1
                print(f"{how} {rest}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}", flush=True)
            else:
                progress.add(how, {" ".join(map(str, rest)): done.stdout.strip()})
            print(f"{number} of {len(batches)}, {progress.minutes()}", file=sys.stderr, flush=True)
    print(f"{options.count} graphs of {len(kinds)} kinds in {len(hows)} ways, {progress.minutes()}: "
          f"{failed or 'no'} batches of {len(batches)} fail")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
