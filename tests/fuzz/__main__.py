"""``python -m tests.fuzz N``: N random cases of all kinds; a failure is a line with the command that repeats it.

A failing case is shrunk and stored. Stopped and started again with ``--resume`` a run goes on where it was, unless a
source has changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz.cases import read, write
from tests.fuzz.check import Seen, check
from tests.fuzz.generator import Case, generate_case
from tests.fuzz.progress import Progress
from tests.fuzz.shrink import shrink

BATCH = 50
LONGEST = 1800
"""Seconds after which a batch is taken for hung."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--keep", type=Path, default=Path("out/fuzz"), help="folder for shrunk failures")
    parser.add_argument("--resume", type=Path, help="file of outcomes: those of unchanged sources are kept")
    parser.add_argument("--statistics", type=Path, help="writes what fired, was chosen, and explained, as JSON")
    parser.add_argument("--repeat", type=Path, help="checks a stored case")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="shrinks and stores the case of a seed")
    parser.add_argument("--whole", action="store_true", help="store failures as they are, without shrinking them")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.repeat is not None:
        return _said(failure(read(options.repeat)))
    if options.shrink is not None:
        case = generate_case(options.shrink)
        message = failure(case)
        if message is not None:
            print(f"stored as {store(case, message, options.keep)}")
        return _said(message)
    if options.here:
        for seed in range(options.start, options.start + options.count):
            print(json.dumps(outcome(seed, options.keep, whole=options.whole)), flush=True)
        return 0
    return run(options)


def run(options: argparse.Namespace) -> int:
    """All seeds in processes of their own, so that a crash is a finding like any other."""
    progress = Progress(options.resume)
    seeds = [s for s in range(options.start, options.start + options.count) if ("fuzz", str(s)) not in progress.known]
    batches = [seeds[i : i + BATCH] for i in range(0, len(seeds), BATCH)]
    failed = 0
    rows: list[dict[str, Any]] = [json.loads(text) for (how, _), text in progress.known.items() if how == "fuzz"]
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda batch: list(_apart(batch, options)), batches):
            for row in found:
                if row["failure"] is None:
                    progress.add("fuzz", {str(row["seed"]): json.dumps(row)})
                    rows.append(row)
                else:
                    failed += 1
                    print(f"python -m tests.fuzz --start {row['seed']}  # {row['tags']}: {row['failure']}", flush=True)
            if sys.stderr.isatty():
                print(
                    f"\r{len(rows)} passed, {failed} failed, {progress.minutes()}", end="", file=sys.stderr, flush=True
                )
    if options.statistics is not None:
        options.statistics.parent.mkdir(parents=True, exist_ok=True)
        options.statistics.write_text(json.dumps(statistics(rows), indent=1), encoding="utf-8")
    print(f"{len(rows)} passed, {failed} failed; differences explained: {_explained(rows)}")
    return 1 if failed else 0


def _apart(seeds: list[int], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    while seeds:
        first, count = seeds[0], 1
        while count < len(seeds) and seeds[count] == first + count:
            count += 1
        command = [sys.executable, "-m", "tests.fuzz", str(count), "--start", str(first), "--here"]
        command += ["--keep", str(options.keep), *(["--whole"] if options.whole else [])]
        try:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
            text, how = done.stdout, f"the process ends with {done.returncode}: {done.stderr.strip()[-300:]}"
        except subprocess.TimeoutExpired as error:
            text, how = (error.stdout or b"").decode(), f"no end within {LONGEST} seconds"
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
        yield from rows
        seeds = seeds[len(rows) :]
        if len(rows) < count:
            yield {"seed": first + len(rows), "failure": how, "tags": "crash"}
            seeds = seeds[1:]


def outcome(seed: int, keep: Path, *, whole: bool = False) -> dict[str, Any]:
    """What one seed has shown."""
    case = generate_case(seed)
    seen: Seen | None = None

    def remember(found: Seen) -> None:
        nonlocal seen
        seen = found

    message = failure(case, remember)
    if message is not None:
        write(case, keep / f"seed_{seed}.onnx") if whole else store(case, message, keep)
    row: dict[str, Any] = {"seed": seed, "failure": message, "tags": " ".join(case.tags.values())}
    if seen is not None:
        row["explained"] = dict(seen.explained)
        row["notes"] = dict(seen.notes)
        row["applied"] = sorted(seen.applied)
        row["chosen"] = {objective: sorted(rules) for objective, rules in seen.chosen.items()}
    return row


def failure(case: Case, then: Any = None) -> str | None:
    """Message of a failing check, None if it passes."""
    try:
        seen = check(case)
    except Exception as error:  # a crash of the pipeline is a finding like any other
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, AssertionError) else f" at {Path(last.filename).name}:{last.lineno}"
        return " ".join(f"{type(error).__name__}{where}: {error}".split())[:600]
    if then is not None:
        then(seen)
    return None


def store(case: Case, message: str, folder: Path) -> Path:
    """Shrinks a case and stores it."""
    kind = _kind(message)

    def fails_alike(candidate: Case) -> bool:
        found = failure(candidate)
        return found is not None and _kind(found) == kind

    return write(shrink(case, fails_alike), folder / f"seed_{case.seed}.onnx")


def _kind(message: str) -> str:
    head = message.split("(")[0]
    return "".join(c for c in head if not c.isdigit()) + ("ORT" if "in ONNX Runtime" in message else "")


def statistics(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By rule, on how many graphs it applied and was chosen; and sums of all else."""
    rules: dict[str, Counter[str]] = {}
    notes: Counter[str] = Counter()
    tags: Counter[str] = Counter()
    for row in rows:
        for name in row.get("applied", ()):
            rules.setdefault(name, Counter())["applied"] += 1
        for objective, names in row.get("chosen", {}).items():
            for name in names:
                rules.setdefault(name, Counter())[objective] += 1
        notes.update(row.get("notes", {}))
        tags.update(row["tags"].split()[:4])
    return {"rules": {n: dict(c) for n, c in sorted(rules.items())}, "notes": dict(notes), "tags": dict(tags),
            "explained": _explained(rows)}  # fmt: skip


def _explained(rows: list[dict[str, Any]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.get("explained", {}))
    return dict(total)


def _said(message: str | None) -> int:
    print(message or "passed")
    return 0 if message is None else 1


if __name__ == "__main__":
    sys.exit(main())
