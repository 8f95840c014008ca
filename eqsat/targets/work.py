"""The roofline of one kernel: what it computes and moves, and which of the two a target spends its time on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Limit = Literal["compute", "memory", "launch", "nothing"]


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a kernel and the times of its parts on a target, by the roofline of the target's file.

    Attributes:
        macs: Multiply-accumulate operations.
        bytes: Of the tensors that cross the kernel's border, weights included.
        compute: Seconds at the target's peak.
        memory: Seconds at the target's bandwidth.
        launch: Seconds to start it.
    """

    macs: float
    bytes: float
    compute: float
    memory: float
    launch: float

    @property
    def limit(self) -> Limit:
        """What takes longest."""
        most = max(self.compute, self.memory, self.launch)
        if most == 0:
            return "nothing"
        if self.launch == most:
            return "launch"
        return "compute" if self.compute == most else "memory"


def work_of(symbols: Sequence[Mapping[str, float]]) -> Work:
    """The mean of what a cost expression could ask at some sizes: ``macs bytes peak bandwidth launch``."""

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    return Work(
        mean([s["macs"] for s in symbols]),
        mean([s["bytes"] for s in symbols]),
        mean([s["macs"] / s["peak"] for s in symbols]),
        mean([s["bytes"] / s["bandwidth"] for s in symbols]),
        mean([s["launch"] for s in symbols]),
    )
