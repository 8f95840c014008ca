"""Losses of training; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.checks import attributes
from eqsat.ops.registry import declare

# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", macs=count.input_elements,
    checks=(attributes.loss_reduction,))
