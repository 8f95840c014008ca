"""``python -m tests.fuzz N``: N random graphs; a failure is shrunk and stored as a test.

Options: ``--start`` first seed, ``--keep`` folder for failures (default: the tests' own).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

import onnx

from tests.fuzz.check import check
from tests.fuzz.generator import generate
from tests.fuzz.shrink import shrink

FAILURES = Path(__file__).parent / "failures"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=FAILURES)
    options = parser.parse_args()
    failed = 0
    for seed in range(options.start, options.start + options.count):
        message = failure(seed, generate(seed))
        if message is not None:
            failed += 1
            path = store(seed, message, options.keep)
            print(f"seed {seed}: {message}\n  stored as {path}", flush=True)
        if sys.stdout.isatty():
            print(f"\r{seed - options.start + 1} graphs, {failed} failures", end="", flush=True)
    print(f"{options.count - failed} passed, {failed} failed")
    return 1 if failed else 0


def failure(seed: int, model: onnx.ModelProto) -> str | None:
    """Message of a failing check, None if it passes."""
    try:
        check(model, seed)
    except Exception as error:  # a crash of the pipeline is a finding like any other
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, AssertionError) else f" at {Path(last.filename).name}:{last.lineno}"
        return f"{type(error).__name__}{where}: {error}"
    return None


def store(seed: int, message: str, folder: Path) -> Path:
    """Shrinks the model of a seed and stores it as text with the message on top."""
    kind = message.split(":")[0]

    def fails_alike(model: onnx.ModelProto) -> bool:
        found = failure(seed, model)
        return found is not None and found.split(":")[0] == kind

    small = shrink(generate(seed), fails_alike)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed_{seed}.onnx"
    onnx.save(small, path)
    return path


if __name__ == "__main__":
    sys.exit(main())
