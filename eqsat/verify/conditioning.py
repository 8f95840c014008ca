"""How much a piece's values move when what its types round is moved."""

from __future__ import annotations

import numpy as np

from eqsat.verify.judge import Perturbed
from eqsat.verify.oracle import Failed, Value, own
from eqsat.verify.pieces import Piece
from eqsat.verify.programs import Call, Programs, wide, widened
from eqsat.verify.sides import Noise, Sample, Values, fed, run_left, run_right


def shaken_input(programs: Programs, piece: Piece, sample: Sample, call: Call) -> Perturbed:
    """The input's side with changed leaves, constants and results of operators."""

    def run(delta: float, seed: int) -> Value:
        try:
            return run_left(programs, piece, sample, call, {}, Noise(delta, seed))
        except Failed:
            return None

    return run


def shaken_result(programs: Programs, piece: Piece, sample: Sample) -> Perturbed:
    """The result's side with changed results of kernels."""

    def run(delta: float, seed: int) -> Value:
        values: Values = {}
        try:
            run_left(programs, piece, sample, own, values)
            return run_right(programs, piece, fed(piece, values), own, Noise(delta, seed))
        except Failed:
            return None

    return run


def shaken_apart(programs: Programs, piece: Piece, sample: Sample, left: np.ndarray, right: np.ndarray) -> Perturbed:
    """The input's side, moved by how much farther apart both sides come when the leaves change.

    A network may compute one leaf from another. Its numbers are then as inconsistent as it has rounded them.
    """

    def run(delta: float, seed: int) -> Value:
        noise, values = Noise(delta, seed), {}
        moved = {c: noise.on(widened(x), _type(x)) for c, x in sample.items()}
        try:
            other = run_left(programs, piece, moved, wide, values)
            theirs = run_right(programs, piece, fed(piece, values), wide)
        except Failed:
            return None
        if not isinstance(other, np.ndarray) or other.shape != left.shape or theirs.shape != right.shape:
            return None
        with np.errstate(all="ignore"):
            return left + ((other - theirs) - (left - right))

    return run


def _type(array: Value) -> np.dtype | None:
    return array.dtype if isinstance(array, np.ndarray) and "float" in array.dtype.name else None
