"""Attention and what belongs to it; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.checks import lengths
from eqsat.ops.checks.attention import attention
from eqsat.ops.need_by_shapes import need_attention
from eqsat.ops.registry import declare
from eqsat.ops.sampling import attention as sample

# ---- declarations ----------------------------------------------------------------------------------

declare("Attention", macs=count.attention, need=need_attention, checks=(attention,), sampling=sample.attention)
declare("RotaryEmbedding", macs=count.rotary, sampling=sample.rotary, checks=(lengths.rotary,))
