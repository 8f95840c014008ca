"""The second stage: all equal programs that rules find, in one e-graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.egraph.limits import Limits
from eqsat.egraph.saturate import NOTHING, Additions, Saturation
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.extract.effort import WORK_PER_SECOND
from eqsat.rules.ast import Rule, Target
from eqsat.stages.clock import Clock
from eqsat.stages.event import Event


@dataclass(frozen=True, slots=True)
class Saturated:
    """An e-graph and its contents as plain arrays."""

    saturation: Saturation
    snapshot: Snapshot


def saturate(
    model: ir.Model,
    rules: Sequence[Rule],
    targets: Sequence[Target],
    clock: Clock,
    *,
    iterations: int | None = None,
    enodes: int | None = None,
    additions: Additions = NOTHING,
) -> Saturated:
    """Encodes a model and applies rules until nothing is new, or the work that goes with the limit is done.

    Raises:
        TimeUp: The last guard's time was over before there was anything to extract from.
    """
    with clock.stage("encode"):
        saturation = Saturation(
            model,
            rules,
            targets,
            Limits(Limits.iterations if iterations is None else iterations, enodes, WORK_PER_SECOND * clock.limit),
            additions,
            progress=lambda iteration, nodes: clock.say(Event("saturate", iteration=iteration, enodes=nodes)),
            guard=clock.guard,
        )
    with clock.stage("saturate"):
        saturation.run()
        return Saturated(saturation, snapshot(saturation))
