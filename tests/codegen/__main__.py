"""``make c-conformance``: all node cases of ``onnx.backend.test`` as C, against the list of those expected to pass.

``python -m tests.codegen [--update] [--how HOW] [--every N] [PATTERN]``. A case that stops passing fails the run, and
so does one that begins to pass and is not in the list; ``--update`` rewrites the list. No case may crash or give C that
does not compile. Cases run in processes of their own, a few dozen at a time; one that crashes is named, and the others
of its batch run again without it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

from eqsat.codegen.compiler import native_isas
from eqsat.codegen.isa import PORTABLE, SCALAR
from tests.codegen import nodes
from tests.conformance import cases

EXPECTED = Path(__file__).with_name("expected_nodes.txt")
BATCH = 60
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")


def expected() -> list[str]:
    """Cases that must pass."""
    return EXPECTED.read_text(encoding="utf-8").split()


def serve(names: list[str], how: str) -> None:
    """Answer with one line a case: its name, a tabulator, and ``pass``, ``refused: why`` or ``fail: why``."""
    warnings.simplefilter("ignore")
    isas = {"native": native_isas(), "sanitize": (SCALAR, PORTABLE), "quick": (PORTABLE,)}[how]
    ready = []
    for number, name in enumerate(names):
        try:
            ready.append(nodes.prepare(name, f"case{number}", isas))
        except nodes.Refused as error:
            print(f"{name}\trefused: {error}", flush=True)
        except Exception as error:
            print(f"{name}\tfail: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    flags = {"native": (), "sanitize": SANITIZERS, "quick": ("-O0",)}[how]
    library = None
    while ready and library is None:
        try:
            library = nodes.compiled(ready, flags)
        except nodes.Uncompiled as error:
            bad = [p for p in ready if p.emitted.name in error.prefixes]
            if not bad:
                raise
            for p in bad:
                print(f"{p.name}\tfail: compiler: {' '.join(str(error).split())[:600]}", flush=True)
            ready = [p for p in ready if p not in bad]
    if library is None:
        return
    for prepared in ready:
        print(f"{prepared.name}\tstarted", flush=True)
        try:
            nodes.check(library, prepared)
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
            text=True,
            env={**os.environ, **(sanitized() if how == "sanitize" else {})},
            check=False,
        )
        started = ""
        for line in done.stdout.splitlines():
            name, _, outcome = line.partition("\t")
            started = name if outcome == "started" else ""
            if outcome != "started":
                outcomes[name] = outcome
        if started:
            outcomes[started] = "fail: crash: " + " ".join(done.stderr.split())[-1500:]
        elif any(name not in outcomes for name in todo):
            if len(todo) == 1:
                outcomes[todo[0]] = "fail: " + " ".join(done.stderr.split())[-1500:]
                continue
            # A process that ended without a word: halves find what it was.
            half = len(todo) // 2
            outcomes |= batch(todo[:half], how) | batch(todo[half:], how)
    return outcomes


def sanitized() -> dict[str, str]:
    """What a process needs that loads a library with sanitizers."""
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return {
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main(arguments: list[str]) -> int:
    """Run, print, compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.codegen", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="regular expression that names must contain")
    parser.add_argument("--update", action="store_true", help="rewrite the list of cases expected to pass")
    parser.add_argument(
        "--how",
        choices=("native", "sanitize", "quick"),
        default="native",
        help="for this machine, with address and undefined behaviour sanitizers, or compiled as fast as can be",
    )
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    parser.add_argument("--verbose", action="store_true", help="what does not pass, as it comes")
    parser.add_argument("--reasons", action="store_true", help="why cases are refused")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(sys.stdin.read().split(), options.how)
        return 0
    todo = [name for name in cases.cases("node") if re.search(options.pattern, name)][:: options.every]
    outcomes: dict[str, str] = {}
    size = BATCH if options.how == "native" else 4 * BATCH
    for start in range(0, len(todo), size):
        outcomes |= batch(todo[start : start + size], options.how)
        if options.verbose:
            shown = todo[start : start + size]
            print("\n".join(f"{n}: {outcomes[n]}" for n in shown if outcomes[n] != "pass"), flush=True)
        if sys.stderr.isatty():
            print(f"\r{len(outcomes)} of {len(todo)}", end="", file=sys.stderr, flush=True)
    count = Counter(outcome.partition(":")[0] for outcome in outcomes.values())
    print(", ".join(f"{number} {kind}" for kind, number in sorted(count.items())))
    if options.reasons:
        reasons = Counter(outcome for outcome in outcomes.values() if outcome.startswith("refused"))
        print("\n".join(f"{number:5} {reason}" for reason, number in reasons.most_common()), flush=True)
    if options.update:
        kept = {name for name in (expected() if EXPECTED.exists() else []) if name not in outcomes}
        passing = sorted(kept | {name for name, outcome in outcomes.items() if outcome == "pass"})
        temporary = EXPECTED.with_suffix(".new")
        temporary.write_text("\n".join(passing) + "\n", encoding="utf-8")
        temporary.replace(EXPECTED)
    wrong = report(outcomes)
    print("\n".join(wrong) or f"exactly the expected cases pass, of {len(outcomes)}")
    return 1 if wrong else 0


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
