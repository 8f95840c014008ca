"""Times of several runs, taken in turn, so that what slows the machine slows all of them alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence

Run = Callable[[], object]


def in_turn(
    runs: Sequence[Run], repeat: int, *, least: float = 0.0, clock: Callable[[], float] = time.process_time
) -> list[list[float]]:
    """Seconds of each run, ``repeat`` samples of each, after rounds that do not count.

    Args:
        runs: What is measured.
        repeat: Samples of each.
        least: Seconds that a sample takes at least, as the mean of as many calls as that needs: clocks are coarse.
        clock: Seconds; CPU time of the process by default.
    """
    calls = [_calls(run, least, clock) for run in runs]
    samples: list[list[float]] = [[] for _ in runs]
    gc.disable()  # else a collection would meet whoever happens to allocate the object that starts it
    try:
        for _ in range(repeat):
            for run, count, found in zip(runs, calls, samples, strict=True):
                start = clock()
                for _ in range(count):
                    run()
                found.append((clock() - start) / count)
    finally:
        gc.enable()
    return samples


def _calls(run: Run, least: float, clock: Callable[[], float]) -> int:
    run()
    if not least:
        return 1
    start = clock()
    run()
    return max(1, math.ceil(least / max(clock() - start, 1e-7)))
