"""The remaining time of a composition of stages, the time each stage took, and the receiver of events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from eqsat.egraph.limits import LastGuard
from eqsat.stages.event import Event, Progress

LEAST_TIME = 0.1
"""Seconds that a solver, or a body of control flow, gets even when the time is over."""


class Clock:
    """Wall-clock time until a limit, CPU seconds by stage, and the progress events around each stage.

    Args:
        limit: Seconds from now on.
        progress: Receives the events.
        nominal: Seconds whose work may be done, whatever the time; by default the limit.

    Attributes:
        limit: As given.
        nominal: As given.
        seconds: CPU seconds by stage.
        guard: Gives up even an e-graph that is not finished.
    """

    def __init__(self, limit: float, progress: Progress | None = None, nominal: float | None = None) -> None:
        self.limit = limit
        self.nominal = limit if nominal is None else nominal
        self.seconds: dict[str, float] = {}
        self.guard = LastGuard(limit)
        self._deadline = time.perf_counter() + limit
        self._progress = progress

    @property
    def left(self) -> float:
        """Seconds; negative once the limit is over."""
        return self._deadline - time.perf_counter()

    def say(self, event: Event) -> None:
        if self._progress is not None:
            self._progress(event)

    def share(self, part: float) -> Clock:
        """A clock for a part of the time that is left; it tells nobody of its stages."""
        return Clock(max(part * self.left, LEAST_TIME), nominal=max(part * self.nominal, LEAST_TIME))

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
        left = self.left
        yield
        self._deadline = time.perf_counter() + left
