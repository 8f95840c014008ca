"""All node cases of ``onnx.backend.test`` as C, against the list of those expected to pass.

``make c-conformance``, and under sanitizers for each instruction set ``make check-c``:
``python -m tests.codegen [--how WAY ...] [--jobs N] [--resume FILE] [--update] [--every N] [PATTERN]``. A case that
stops passing fails the run, and so does one that begins to pass and is not in the list; ``--update`` rewrites the list.
No case may crash or give C that does not compile. Cases run in processes of their own, a few dozen at a time; one that
crashes is named, and the others of its batch run again without it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.codegen import nodes
from tests.codegen.calling import finding
from tests.codegen.ways import WAYS, sanitized_ways
from tests.conformance import cases
from tests.fuzz.progress import Progress

EXPECTED = Path(__file__).with_name("expected_nodes.txt")
BATCH = 60


def expected() -> list[str]:
    """Cases that must pass."""
    return EXPECTED.read_text(encoding="utf-8").split()


def serve(names: list[str], how: str) -> None:
    """Answer with one line a case: its name, a tabulator, and ``pass``, ``refused: why`` or ``fail: why``."""
    warnings.simplefilter("ignore")
    way = WAYS[how]
    ready = []
    for number, name in enumerate(names):
        try:
            ready.append(nodes.prepare(name, f"case{number}", way.isas))
        except nodes.Refused as error:
            print(f"{name}\trefused: {error}", flush=True)
        except Exception as error:
            print(f"{name}\tfail: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    library = None
    while ready and library is None:
        try:
            library = nodes.compiled(ready, way)
        except nodes.Uncompiled as error:
            bad = [p for p in ready if p.emitted.name in error.prefixes]
            if not bad:
                raise
            for p in bad:
                print(f"{p.name}\tfail: compiler: {' '.join(str(error).split())[:600]}", flush=True)
            ready = [p for p in ready if p not in bad]
    if library is None:
        return
    results = nodes.results(library, ready, way)
    for prepared in ready:
        found = results[prepared.name]
        if isinstance(found, str):
            print(f"{prepared.name}\tfail: crash: {found}", flush=True)
            continue
        try:
            nodes.check(prepared, found)
            print(f"{prepared.name}\tpass", flush=True)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            print(f"{prepared.name}\tfail: {type(error).__name__}: {reason}", flush=True)


def batch(names: list[str], how: str = "native") -> dict[str, str]:
    """Outcomes of a few cases, from a process of their own."""
    outcomes: dict[str, str] = {}
    while len(outcomes) < len(names):
        todo = [name for name in names if name not in outcomes]
        done = subprocess.run(
            [sys.executable, "-m", "tests.codegen", "--serve", "--how", how],
            input="\n".join(todo),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        for line in done.stdout.splitlines():
            name, _, outcome = line.partition("\t")
            outcomes[name] = outcome
        if any(name not in outcomes for name in todo):
            if len(todo) == 1:
                outcomes[todo[0]] = f"fail: {finding(done.stderr)}"
                continue
            # A process that ended without a word: halves find what it was.
            half = len(todo) // 2
            outcomes |= batch(todo[:half], how) | batch(todo[half:], how)
    return outcomes


def outcomes_of(todo: Sequence[str], how: str, progress: Progress, jobs: int, verbose: bool) -> dict[str, str]:
    """Outcomes of many cases in one way; what an earlier run has seen to be well is not run again."""
    outcomes = {name: progress.known[how, name] for name in todo if (how, name) in progress.known}
    left = [name for name in todo if name not in outcomes]
    size = BATCH if how == "native" else 2 * BATCH
    with ThreadPoolExecutor(jobs) as pool:
        running = {
            pool.submit(batch, part, how): part for part in (left[k : k + size] for k in range(0, len(left), size))
        }
        for done in as_completed(running):
            outcomes |= done.result()
            progress.add(how, done.result())
            if verbose:
                bad = [f"{how} {name}: {done.result()[name]}" for name in running[done]]
                print("\n".join(line for line in bad if not line.endswith(": pass")), flush=True)
            print(f"{how}: {len(outcomes)} of {len(todo)}, {progress.minutes()}", file=sys.stderr, flush=True)
    return {name: outcomes[name] for name in todo}


def main(arguments: list[str]) -> int:
    """Run, print, compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.codegen", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="regular expression that names must contain")
    parser.add_argument("--update", action="store_true", help="rewrite the list of cases expected to pass")
    parser.add_argument(
        "--how",
        choices=(*WAYS, "sanitize"),
        action="append",
        help="for this machine, compiled as fast as can be, or under the sanitizers for an instruction set; "
        "sanitize: each one that this machine has",
    )
    parser.add_argument("--jobs", type=int, default=1, help="batches at the same time")
    parser.add_argument("--resume", type=Path, help="file of outcomes: those of an unchanged program are kept")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument("--verbose", action="store_true", help="what does not pass, as it comes")
    parser.add_argument("--reasons", action="store_true", help="why cases are refused")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(sys.stdin.read().split(), options.how[0])
        return 0
    hows = [name for how in options.how or ["native"] for name in (sanitized_ways() if how == "sanitize" else [how])]
    if options.update and hows != ["native"]:
        parser.error("--update takes the outcomes of --how native alone")
    todo = [name for name in cases.cases("node") if re.search(options.pattern, name)][:: options.every]
    progress = Progress(options.resume)
    wrong: list[str] = []
    for how in hows:
        outcomes = outcomes_of(todo, how, progress, options.jobs, options.verbose)
        count = Counter(outcome.partition(":")[0] for outcome in outcomes.values())
        print(f"{how}: {', '.join(f'{number} {kind}' for kind, number in sorted(count.items()))}", flush=True)
        if options.reasons:
            reasons = Counter(outcome for outcome in outcomes.values() if outcome.startswith("refused"))
            print("\n".join(f"{number:5} {reason}" for reason, number in reasons.most_common()), flush=True)
        if options.update:
            update(outcomes)
        wrong += [f"{how}: {line}" for line in report(outcomes)]
    print("\n".join(wrong) or f"exactly the expected cases pass, of {len(todo)}, in {progress.minutes()}")
    return 1 if wrong else 0


def update(outcomes: dict[str, str]) -> None:
    """Rewrite the list of cases expected to pass."""
    kept = {name for name in (expected() if EXPECTED.exists() else []) if name not in outcomes}
    passing = sorted(kept | {name for name, outcome in outcomes.items() if outcome == "pass"})
    temporary = EXPECTED.with_suffix(".new")
    temporary.write_text("\n".join(passing) + "\n", encoding="utf-8")
    temporary.replace(EXPECTED)


def report(outcomes: dict[str, str]) -> list[str]:
    """What differs from the list, crashes or does not compile."""
    wanted = set(expected())
    lines = []
    for name, outcome in outcomes.items():
        if outcome.startswith(("fail: crash", "fail: compiler")):
            lines.append(f"{name}: {outcome}")
        elif name in wanted and outcome != "pass":
            lines.append(f"{name}: expected to pass, but {outcome}")
        elif name not in wanted and outcome == "pass":
            lines.append(f"{name}: passes, but is not in {EXPECTED.name}; add it with --update")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
