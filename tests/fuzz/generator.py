"""Random valid models by seed."""

from __future__ import annotations

import numpy as np
import onnx

from tests.fuzz.growing import Growing, RefusedError
from tests.fuzz.motifs import MOTIFS


def generate(seed: int, *, largest: int = 14) -> onnx.ModelProto:
    """A random valid model at the pinned opset; the same seed gives the same model.

    Args:
        largest: Most steps; one step adds one to a dozen nodes.
    """
    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt])
        growing = Growing(rng)
        _inputs(growing)
        _grow(growing, int(rng.integers(2, largest + 1)))
        try:
            model = growing.model()
        except RefusedError:
            continue
        onnx.checker.check_model(model, full_check=True)
        return model
    raise AssertionError(f"seed {seed} gives no model")


def _inputs(g: Growing) -> None:
    for _ in range(g.size(1, 3)):
        kind = g.size(0, 6)
        if kind <= 2:
            side = g.size(2, 8)
            g.input((g.size(1, 2), g.size(1, 4), side, side))
        elif kind == 3:
            g.input((g.size(1, 3), g.size(1, 6), g.size(2, 6)))
        elif kind == 4:
            g.input((g.size(1, 5), g.size(1, 6)))
        elif kind == 5:
            g.input((g.size(1, 2), g.size(1, 3), 3, 4, 4))
        else:
            g.input((g.size(1, 8),))
    if g.chance(0.15):
        g.input((g.size(1, 4), g.size(1, 4)), g.one_of((np.int32, np.int64)))


def _grow(g: Growing, steps: int) -> None:
    weights = np.array([w for _, w in MOTIFS], dtype=np.float64)
    done = 0
    for _ in range(20 * steps):
        motif = MOTIFS[int(g.rng.choice(len(MOTIFS), p=weights / weights.sum()))][0]
        kept = len(g.values), len(g.nodes), len(g.initializers)
        try:
            motif(g)
        except RefusedError:
            del g.values[kept[0] :], g.nodes[kept[1] :], g.initializers[kept[2] :]
            continue
        done += 1
        if done == steps:
            return
