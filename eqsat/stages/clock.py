"""The limits of a composition of stages, the time of each stage, and the receiver of events.

Stages count their work against the seconds of a limit; only the last guard looks at the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from eqsat.egraph.limits import LastGuard
from eqsat.stages.event import Event, Progress

LEAST_TIME = 0.1
"""Seconds whose work a solver, or a body of control flow, may do at least."""


class Clock:
    """The limit of the stages, their CPU seconds, and the progress events around each of them.

    Args:
        limit: Seconds whose work may be done, on a usual machine.
        progress: Receives the events.
        guard: The guard of the enclosing composition; by default one that begins now.

    Attributes:
        limit: As given.
        seconds: CPU seconds by stage.
        guard: Ends a stage that is many times slower than its work; an e-graph that is not finished is given up.
    """

    def __init__(self, limit: float, progress: Progress | None = None, guard: LastGuard | None = None) -> None:
        self.limit = limit
        self.seconds: dict[str, float] = {}
        self.guard = LastGuard.of_limit(limit) if guard is None else guard
        self._progress = progress

    def say(self, event: Event) -> None:
        if self._progress is not None:
            self._progress(event)

    def share(self, part: float) -> Clock:
        """A clock for a part of the limit; it tells nobody of its stages."""
        return Clock(max(part * self.limit, LEAST_TIME), guard=self.guard)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.say(Event(name))
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start
        self.say(Event(name, done=True))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Work inside this context does not count against the limit."""
        clock, cpu = time.perf_counter(), time.process_time()
        yield
        self.guard.extend(time.perf_counter() - clock, time.process_time() - cpu)
