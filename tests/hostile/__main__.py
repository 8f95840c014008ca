"""Runs hostile cases and prints a line each: ``python -m tests.hostile [PART OF A NAME ...]``."""

from __future__ import annotations

import os
import sys

# Cases are forked, and a fork has none of the threads that libraries start here.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

from tests.hostile.corpus import cases
from tests.hostile.harness import run


def main(names: list[str]) -> int:
    chosen = cases(tuple(names))
    wrong = 0
    for outcome in run(chosen):
        wrong += bool(outcome.wrong)
        first = (outcome.said.strip().splitlines() or [""])[0]
        print(f"{outcome.wrong or 'ok':40}  {outcome.code:3}  {outcome.seconds:6.1f} s  {outcome.name}  {first[:160]}")
        sys.stdout.flush()
    print(f"{len(chosen)} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
