"""Events of the pipeline, for progress displays and logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eqsat.extract.gap import relative_gap


@dataclass(frozen=True, slots=True)
class Event:
    """One step of one stage. Fields that do not apply, or are not known yet, are None.

    Attributes:
        stage: Name of the stage, see :mod:`eqsat.stages`.
        done: Whether the stage ends with this event.
        iteration: Iterations of saturation so far.
        enodes: Size of the e-graph.
        cost: Seconds of the best program so far.
        bound: No program costs less than this.
        step: Steps done so far, such as calibration samples.
        steps: How many there are.
    """

    stage: str
    done: bool = False
    iteration: int | None = None
    enodes: int | None = None
    cost: float | None = None
    bound: float | None = None
    step: int | None = None
    steps: int | None = None

    @property
    def gap(self) -> float | None:
        """``(cost - bound) / cost``, None until both are known."""
        if self.cost is None or self.bound is None:
            return None
        return relative_gap(self.cost, self.bound)


Progress = Callable[[Event], None]
"""Receives the events in order; an exception from it ends the run."""
