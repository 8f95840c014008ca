"""How much may still be done for a search, counted as work: a busy machine finds the same program as an idle one.

One unit of work takes about a second on a machine of 2024 that does nothing else. Pivots of the simplex method, the
checks of limits inside HiGHS's branch and cut, and the non-zeros of the program in each of them are what is counted.
Seconds are the last guard (``eqsat.egraph.limits``), far beyond the work: results can only depend on them where a
machine is many times slower than that.
"""

from __future__ import annotations

from eqsat.egraph.limits import LastGuard

WORK_PER_SECOND = 1 / 3
"""Work of extraction per second of a time limit. Growing the e-graph has as much; the rest is for loading."""


class Effort:
    """Work that is left, and the guard that ends a search which is many times slower than its work.

    Args:
        work: Amount of work in units.
        guard: Ends the work when its time is over; by default there is none.
        whole: The effort that this is a share of.

    Attributes:
        guard: As given.
        is_late: Whether the guard, rather than the work, has ended a search.
    """

    def __init__(self, work: float, guard: LastGuard | None = None, whole: Effort | None = None) -> None:
        self.guard = LastGuard() if guard is None else guard
        self._work = work
        self._whole = whole
        self._late = False

    @property
    def work(self) -> float:
        """In units; not negative."""
        return max(0.0, self._work)

    @property
    def is_late(self) -> bool:
        return self._late

    @property
    def is_over(self) -> bool:
        """Whether nothing is left; work is tested first, so that the clock is only named if it decided."""
        if self._work <= 0.0:
            return True
        if self.guard.is_over():
            self.be_late()
        return self._late

    def be_late(self) -> None:
        """The guard has ended a search."""
        self._late = True
        if self._whole is not None:
            self._whole.be_late()

    def spend(self, units: float) -> None:
        """Count work that was done, here and in the whole that this is a share of."""
        self._work -= units
        if self._whole is not None:
            self._whole.spend(units)

    def share(self, part: float) -> Effort:
        """A part of the work that is left."""
        return Effort(part * self.work, self.guard, self)
