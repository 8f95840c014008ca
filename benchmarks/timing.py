"""Times of several runs, taken in turn, so that what slows the machine slows all of them alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Run = Callable[[], object]


@dataclass
class Times:
    """Seconds of each sample of a run.

    Attributes:
        cpu: Of the process, all its threads together.
        wall: By the clock on the wall.
    """

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def in_turn(runs: Sequence[Run], repeat: int, *, least: float = 0.0) -> list[list[float]]:
    """CPU seconds of each run, ``repeat`` samples of each; see :func:`times_in_turn`."""
    return [times.cpu for times in times_in_turn(runs, repeat, least=least)]


def times_in_turn(runs: Sequence[Run], repeat: int, *, least: float = 0.0, pause: float = 0.0) -> list[Times]:
    """Times of each run, ``repeat`` samples of each, after runs that do not count.

    Args:
        runs: What is measured.
        repeat: Samples of each.
        least: Seconds that a sample takes at least, as the mean of as many calls as that needs: clocks are coarse.
        pause: Seconds before each sample, and runs that do not count: the threads of a library may go on spinning for a
            while, and a core that has slept is slow at first.
    """
    calls = [_calls(run, least) for run in runs]
    samples = [Times() for _ in runs]
    gc.disable()  # else a collection would meet whoever happens to allocate the object that starts it
    try:
        for _ in range(repeat):
            for run, count, found in zip(runs, calls, samples, strict=True):
                if pause:
                    time.sleep(pause)
                    for _ in range(2 * count):
                        run()
                cpu, wall = time.process_time(), time.perf_counter()
                for _ in range(count):
                    run()
                found.wall.append((time.perf_counter() - wall) / count)
                found.cpu.append((time.process_time() - cpu) / count)
    finally:
        gc.enable()
    return samples


def _calls(run: Run, least: float) -> int:
    run()
    if not least:
        return 1
    start = time.perf_counter()
    run()
    return max(1, math.ceil(least / max(time.perf_counter() - start, 1e-7)))
