"""Operators with bodies of their own: branches and loops."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.registry import declare

# ---- declarations ----------------------------------------------------------------------------------

declare("If", shaped_by=(0,), macs=count.branches)
declare("Loop", shaped_by=(0, 1), macs=count.branches)
declare("Scan", macs=count.scan)
