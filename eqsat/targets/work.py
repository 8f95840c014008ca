"""The roofline of one kernel: its arithmetic, its memory traffic, and which of the two limits it on a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.body import Body
from eqsat.schema.types import TensorType
from eqsat.targets.tensor_bytes import size_in_bytes

Limit = Literal["compute", "memory", "launch", "nothing"]


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a kernel and the times of its parts on a target, by the roofline of the target's file.

    Attributes:
        macs: Multiply-accumulate operations.
        bytes: That cross the kernel's border, weights included. Of a tensor out of which elements are only picked, as
            by Gather and Slice, as many count as the result has: an embedding table is not read for one row.
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
        """The part that takes longest."""
        most = max(self.compute, self.memory, self.launch)
        if most == 0:
            return "nothing"
        if self.launch == most:
            return "launch"
        return "compute" if self.compute == most else "memory"


def read_of(
    body: Body, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType | None]
) -> list[TensorType | None]:
    """The operands of a kernel, reduced to the part that is read."""
    result = outputs[0] if len(outputs) == 1 else None
    if result is None:
        return list(inputs)
    most = size_in_bytes(result)
    return [
        result if given is not None and _picks(body, i) and most < size_in_bytes(given) else given
        for i, given in enumerate(inputs)
    ]


def _picks(body: Body, value: int) -> bool:
    """Whether the kernel's result consists of elements of the value, which nothing else reads."""
    last = body.nodes[-1]
    readers = [node for node in body.nodes if value in node.inputs]
    return (
        readers == [last]
        and has(last.op, Trait.MOVES)
        and last.inputs.index(value) == 0
        and last.inputs.count(value) == 1
    )


def work_of(symbols: Sequence[Mapping[str, float]]) -> Work:
    """The mean over some sizes of the numbers for cost expressions: ``macs bytes peak bandwidth launch``."""

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    return Work(
        mean([s["macs"] for s in symbols]),
        mean([s["bytes"] for s in symbols]),
        mean([s["macs"] / s["peak"] for s in symbols]),
        mean([s["bytes"] / s["bandwidth"] for s in symbols]),
        mean([s["launch"] for s in symbols]),
    )
