"""Losses of training; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops import counters as count
from eqsat.ops.checks import attributes, lengths
from eqsat.ops.registry import declare
from eqsat.ops.sampling import signals as sample

# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", macs=count.input_elements, sampling=sample.loss,
    checks=(attributes.loss_reduction, lengths.loss))
