"""Recurrent networks: all operands have sizes that steps, batch, inputs and states give."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(node: SampledNode) -> None:
    """Data, weights, recurrence, bias, lengths, first states, and the peepholes of LSTM."""
    chance, gates = node.chance, _GATES[node.op.name]
    directions = node.attr("direction", chance.one_of(("forward", "reverse", "bidirectional")))
    ways = 2 if directions == "bidirectional" else 1
    hidden = node.attr("hidden_size", chance.number(1, 3))
    layout = node.attr("layout", int(chance.happens(0.2)))
    if node.op.name == "GRU":
        node.attr("linear_before_reset", int(chance.happens(0.5)))
    if chance.happens(0.15):
        node.attr("clip", chance.one_of((0.5, 1.0)))
    if chance.happens(0.15):
        functions = {"RNN": 1, "GRU": 2, "LSTM": 3}[node.op.name] * ways
        node.attr("activations", tuple(chance.one_of(("Tanh", "Relu", "Sigmoid")) for _ in range(functions)))
    if node.op.name == "LSTM" and chance.happens(0.15):
        node.attr("input_forget", 1)
    if hidden < 1:
        raise Rejected("no state")
    shape = node.known(0)
    if shape is None:
        shape = node.draw(0, (chance.number(1, 3), chance.number(1, 3), chance.number(1, 3)))
    if len(shape) != 3 or 0 in shape:
        raise Rejected("no sequences")
    batch, steps = (shape[0], shape[1]) if layout else (shape[1], shape[0])
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    node.draw(1, (ways, gates * hidden, shape[2]))
    node.draw(2, (ways, gates * hidden, hidden))
    if node.has(3):
        node.draw(3, (ways, 2 * gates * hidden))
    if node.has(4):
        lengths = chance.rng.integers(1, steps, (batch,), endpoint=True)
        node.draw(4, (batch,), values=lengths.astype(np.int32), dtype=ir.DataType.INT32)
    for i in (5, 6):
        if node.has(i):
            node.draw(i, state)
    if node.has(7):
        node.draw(7, (ways, 3 * hidden))
