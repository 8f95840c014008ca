"""Operators with bodies of their own: branches and loops."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.registry import declare
from eqsat.ops.traits import CONTROL, HAS_BODIES

# ---- declarations ----------------------------------------------------------------------------------

declare("If", traits=CONTROL, shaped_by=(0,), macs=count.branches)
declare("Loop", traits=CONTROL, shaped_by=(0, 1), macs=count.branches)
declare("Scan", traits=CONTROL, macs=count.scan)
declare("SequenceMap", traits=HAS_BODIES)
