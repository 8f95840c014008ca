"""When saturation ends, and the statistics of each rule."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from eqsat.bounds import GUARD
from eqsat.errors import OptimizationError

MOST_REWRITTEN = 20_000
"""Operators of a model up to which rules run; a larger model is only placed on targets."""
MOST_PLACED = 40_000
"""Operators of a model up to which an e-graph is built; a larger model is left unchanged."""
MOST_ENODES = 200_000
"""E-nodes that rules may add, for models of any size."""
START = 10.0
"""Seconds of the last guard, for work that no limit counts, such as loading a model and encoding it."""


@dataclass(frozen=True)
class Limits:
    """When saturation ends at the latest.

    Attributes:
        iterations: Rounds of all rules.
        nodes: e-nodes; None allows a generous multiple of the model's own.
        work: Work in units of about a second on a usual machine (:attr:`eqsat.egraph.saturate.Saturation.work`).
        matches: Matches of one clause in one round before it is held back; None as for ``nodes``.
    """

    iterations: int = 30
    nodes: int | None = None
    work: float = math.inf
    matches: int | None = None

    def for_model(self, nodes: int) -> Limits:
        """The limits with numbers in place of None, for a model with this many nodes."""
        return Limits(
            self.iterations,
            nodes + min(19 * nodes + 5_000, MOST_ENODES) if self.nodes is None else self.nodes,
            self.work,
            4 * nodes + 500 if self.matches is None else self.matches,
        )


class LastGuard:
    """When a search ends whose work takes many times as long as on a usual machine.

    That happens when the time is over, but not if only other programs kept this one from running: the result should not
    depend on other work of the machine.

    Args:
        seconds: From now on, on the clock as well as in time in which this process runs.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._end = time.perf_counter() + seconds
        self._cpu = time.process_time() + seconds

    @classmethod
    def of_limit(cls, seconds: float) -> LastGuard:
        """The guard that goes with a limit, far beyond the time that its work takes."""
        return cls(GUARD * seconds + START)

    @property
    def left(self) -> float:
        """Seconds before which it is not over, even if this process runs all the time; not negative."""
        return max(0.0, self._end - time.perf_counter(), self._cpu - time.process_time())

    def is_over(self) -> bool:
        return time.perf_counter() > self._end and time.process_time() > self._cpu

    def extend(self, clock: float, cpu: float) -> None:
        """Adds seconds of both kinds, for work that does not count against the limit."""
        self._end += clock
        self._cpu += cpu


@dataclass
class RuleStatistics:
    """Statistics of one rule.

    Attributes:
        matches: Number of matches of its pattern.
        applied: Number of distinct signatures on which it applied.
        seconds: Time for search and application in egglog, and for answers in Python.
        held_back: Rounds in which it was held back because it matched too often.
        mismatches: Signatures on which its two sides have different types; there it is not applied.
        mismatch: The first such contradiction, empty if none.
        misfits: Signatures on which it would make a constant that its type cannot hold; there it is not applied.
        misfit: The first such constant, empty if none.
        unknown: Why its right side cannot be computed somewhere although its conditions hold, empty if it can.
        undecided: Signatures on which its conditions hold at sizes where costs are taken, but not at all sizes.
        undecided_condition: The first such condition and these sizes, empty if none.
    """

    name: str
    place: str
    matches: int = 0
    applied: int = 0
    seconds: float = 0.0
    held_back: int = 0
    mismatches: int = 0
    mismatch: str = ""
    misfits: int = 0
    misfit: str = ""
    unknown: str = ""
    undecided: int = 0
    undecided_condition: str = ""


def check_limits(iterations: Any = None, enodes: Any = None) -> None:
    """Refuses invalid limits.

    Raises:
        OptimizationError: A limit is not a whole number in its range.
    """
    for name, value, least in (("iterations", iterations, 0), ("enodes", enodes, 1)):
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < least):
            requirement = f"a whole number, {least} or more, is required as limit"
            raise OptimizationError(requirement, place=name, actual=repr(value))
