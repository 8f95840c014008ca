"""How much may still be done for a search, counted as work: a busy machine finds the same program as an idle one.

One unit of work takes about a second on a machine of 2024 that does nothing else. Pivots of the simplex method, the
checks of limits inside HiGHS's branch and cut, and the non-zeros of the program in each of them are what is counted.
Seconds are the last guard: results can only depend on them where a machine is several times slower than that.
"""

from __future__ import annotations

import time

WORK_PER_SECOND = 1 / 3
"""Of a time limit: a machine that is three times slower gets no further than the others, and not less far."""


class Effort:
    """Work and time that are left.

    Args:
        seconds: Until the deadline.
        work: In units; by default what goes with the seconds.

    Attributes:
        is_late: Whether the deadline, rather than the work, has ended a search.
    """

    def __init__(self, seconds: float, work: float | None = None, whole: Effort | None = None) -> None:
        self._deadline = time.perf_counter() + seconds
        self._work = seconds * WORK_PER_SECOND if work is None else work
        self._whole = whole
        self._late = False

    @property
    def seconds(self) -> float:
        """Until the deadline; not negative."""
        return max(0.0, self._deadline - time.perf_counter())

    @property
    def work(self) -> float:
        """In units; not negative."""
        return max(0.0, self._work)

    @property
    def is_late(self) -> bool:
        return self._late

    @property
    def is_over(self) -> bool:
        if self.seconds <= 0.0:
            self._be_late()
            return True
        return self._work <= 0.0

    def _be_late(self) -> None:
        self._late = True
        if self._whole is not None:
            self._whole._be_late()

    def spend(self, units: float) -> None:
        """Count work that was done, here and in the whole that this is a share of."""
        self._work -= units
        if self._whole is not None:
            self._whole.spend(units)

    def share(self, part: float) -> Effort:
        """A part of the work and of the time that are left."""
        return Effort(part * self.seconds, part * self.work, self)
