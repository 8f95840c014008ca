"""Operators with bodies of their own: branches and loops."""

from __future__ import annotations

from eqsat.ops.registry import declare

# ---- declarations ----------------------------------------------------------------------------------

declare("If", shaped_by=(0,))
declare("Loop", shaped_by=(0, 1))
