"""``make conformance``: run all cases of ``onnx.backend.test`` and compare with the list of those expected to pass.

``python -m tests.conformance [--kind node,real] [--update]``. A case that stops passing fails the run, and so does one
that begins to pass and is not in the list; ``--update`` rewrites the list. Cases run in a process of their own, which
is started again after a case that crashes it or does not end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

from tests.conformance import cases

EXPECTED = Path(__file__).with_name("expected.txt")
SECONDS = 120
"""After which a case counts as not ending."""


def expected() -> list[str]:
    """Cases that must pass, as ``kind/name``."""
    return EXPECTED.read_text(encoding="utf-8").split()


def identifiers(kinds: list[str]) -> list[str]:
    """All cases of some kinds, as ``kind/name``."""
    return [f"{kind}/{name}" for kind in kinds for name in cases.cases(kind)]


def outcome(identifier: str) -> str:
    """``pass``, ``skip: why`` or ``fail: why``."""
    kind, _, name = identifier.partition("/")
    case = cases.cases(kind)[name]
    reason = cases.skip_reason(case)
    if reason:
        return f"skip: {reason}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases.run(case)
    except Exception as error:
        return f"fail: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return "pass"


def serve() -> None:
    """Run the cases named on standard input, one line each, and answer with one line each."""
    for line in sys.stdin:
        print(outcome(line.strip()), flush=True)


def run_all(todo: list[str], module: str = "tests.conformance") -> dict[str, str]:
    """Outcomes by case, from the ``--serve`` of a module."""
    results: dict[str, str] = {}
    while len(results) < len(todo):
        with subprocess.Popen(
            [sys.executable, "-m", module, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        ) as child:
            for identifier in todo[len(results) :]:
                answer = _ask(child, identifier)
                results[identifier] = answer or "fail: the process crashed or did not end"
                _progress(len(results), len(todo))
                if not answer:
                    break
            child.kill()
    return results


def _ask(child: subprocess.Popen[str], identifier: str) -> str:
    assert child.stdin is not None and child.stdout is not None
    timer = threading.Timer(SECONDS, child.kill)
    timer.start()
    try:
        child.stdin.write(identifier + "\n")
        child.stdin.flush()
        return child.stdout.readline().strip()
    except BrokenPipeError:
        return ""
    finally:
        timer.cancel()


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def table(results: dict[str, str]) -> str:
    """Counts by kind, and for the selection that the executor promises."""
    rows = [("kind", "cases", "pass", "fail", "skip")]
    groups = {kind: [i for i in results if i.startswith(f"{kind}/")] for kind in cases.KINDS}
    if groups["node"]:
        ours = [i for i in groups["node"] if cases.is_ours(cases.cases("node")[i.partition("/")[2]])]
        groups["node, our types, no control flow"] = ours
    for kind, members in groups.items():
        if members:
            count = Counter(results[i].partition(":")[0] for i in members)
            rows.append((kind, str(len(members)), *(str(count[k]) for k in ("pass", "fail", "skip"))))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join(
        row[0].ljust(widths[0]) + "".join(f"  {cell.rjust(w)}" for cell, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def main(arguments: list[str]) -> int:
    """Run, print, compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--kind", default=",".join(cases.KINDS), help="kinds of cases, separated by commas")
    parser.add_argument("--update", action="store_true", help="rewrite the list of cases expected to pass")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return 0
    kinds = options.kind.split(",")
    unknown = [kind for kind in kinds if kind not in cases.KINDS]
    if unknown:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(cases.KINDS)}")
    results = run_all(identifiers(kinds))
    print(table(results))
    if options.update:
        kept = [i for i in expected() if i.partition("/")[0] not in kinds or results.get(i, "").startswith("skip")]
        passing = sorted({*kept, *(i for i, r in results.items() if r == "pass")})
        temporary = EXPECTED.with_suffix(".new")
        temporary.write_text("\n".join(passing) + "\n", encoding="utf-8")
        temporary.replace(EXPECTED)
        print(f"{len(passing)} cases are expected to pass from now on")
        return 0
    return report(results, {i for i in expected() if i.partition("/")[0] in kinds})


def report(results: dict[str, str], wanted: set[str]) -> int:
    """Say what differs from the list; returns the exit code."""
    gone = sorted(i for i in wanted if i not in results)
    failing = sorted(i for i in wanted if results.get(i, "").startswith("fail"))
    new = sorted(i for i, r in results.items() if r == "pass" and i not in wanted)
    for identifier in gone:
        print(f"{identifier}: expected to pass, but onnx no longer has it")
    for identifier in failing:
        print(f"{identifier}: expected to pass, but {results[identifier]}")
    for identifier in new:
        print(f"{identifier}: passes, but is not in {EXPECTED.name}; add it with --update")
    if not (gone or failing or new):
        print("exactly the expected cases pass")
    return 1 if gone or failing or new else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
