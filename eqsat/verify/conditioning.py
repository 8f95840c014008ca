"""How much a piece's values move when values that its types round are moved."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx_ir as ir

from eqsat.execute.difference import magnitude
from eqsat.ops.evaluate import TensorValue
from eqsat.ops.wide import smallest_normal
from eqsat.schema.dtypes import FLOATS
from eqsat.verify.judge_values import Perturbed
from eqsat.verify.oracle import Failed
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import CallOperator, Programs, wide, widened
from eqsat.verify.sides import LeafValues, Perturbation, ValuesByClass, fed, run_before, run_left, run_right


def shaken_input(programs: Programs, piece: ComparedPiece, sample: LeafValues, call: CallOperator) -> Perturbed:
    """The input's side with changed leaves, constants and results of operators."""

    def run(delta: float, seed: int) -> TensorValue:
        try:
            return run_left(programs, piece, sample, call, {}, Perturbation(delta, seed))
        except Failed:
            return None

    return run


def shaken_steps(
    programs: Programs, piece: ComparedPiece, sample: LeafValues, call: CallOperator, lsb: int
) -> Perturbed:
    """The input's side, with other roundings where floats become integers.

    The result may have these integers in another layout, or only inside a kernel: then values computed from them are
    compared, in which one unit makes a whole step.
    """

    def run(delta: float, seed: int) -> TensorValue:
        try:
            return run_left(programs, piece, sample, call, {}, Perturbation(delta, seed, lsb=lsb))
        except Failed:
            return None

    return run


def shaken_result(programs: Programs, piece: ComparedPiece, sample: LeafValues, call: CallOperator) -> Perturbed:
    """The result's side with changed results of kernels."""
    operands = _operands_of_result(programs, piece, sample, call)

    def run(delta: float, seed: int) -> TensorValue:
        theirs = operands()
        try:
            return None if theirs is None else run_right(programs, piece, theirs, call, Perturbation(delta, seed))
        except Failed:
            return None

    return run


def shaken_weights(programs: Programs, piece: ComparedPiece, sample: LeafValues, *, strict: bool) -> Perturbed:
    """The result's side with changed constants, and with other subnormal elements in those that may have them.

    Args:
        strict: Whether the result has the constants of the input. Only those that the input computes are then changed:
            the result has them as its types round them.

    Rules make subnormal weights of convolutions and matrix products next to larger ones, and subnormal numbers from
    subnormal constants of the model, see "Constants, and the range of their types".
    """
    loose = any(
        _is_subnormal(programs.initial(k))
        for i in (*piece.before, *piece.left)
        for k in programs.reads(i)
        if k not in programs.producer and not programs.dynamic[k]
    )

    operands = _operands_of_result(programs, piece, sample, wide)

    def run(delta: float, seed: int) -> TensorValue:
        noise, steady, theirs = Perturbation(delta, seed), Perturbation(0.0, seed), operands()
        if theirs is None:
            return None
        try:
            for c in {c for i in piece.right for c in programs.kernels[i].inputs if c is not None}:
                kind = programs.type(c)
                if c not in theirs and programs.is_constant(c) and kind is not None and kind.dtype in FLOATS:
                    array = programs.constant(c)
                    if loose or magnitude(array) >= smallest_normal(kind.dtype):
                        kept = strict and c not in programs.folded
                        theirs[c] = (steady if kept else noise).on(widened(array), array.dtype)
            return run_right(programs, piece, theirs, wide)
        except Failed:
            return None

    return run


def shaken_apart(
    programs: Programs, piece: ComparedPiece, sample: LeafValues, left: np.ndarray, right: np.ndarray
) -> Perturbed:
    """The input's side, moved by how much farther apart both sides come when the leaves change.

    A network may compute one leaf from another. Its numbers are then inconsistent by the roundings in between.
    """

    def run(delta: float, seed: int) -> TensorValue:
        noise, values = Perturbation(delta, seed), {}
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


def _operands_of_result(
    programs: Programs, piece: ComparedPiece, sample: LeafValues, call: CallOperator
) -> Callable[[], ValuesByClass | None]:
    """What the result's side reads, None if it cannot be computed: computed once, and copied for each execution."""

    @cache
    def computed() -> ValuesByClass | None:
        values: ValuesByClass = {}
        try:
            run_before(programs, piece, sample, call, values)
        except Failed:
            return None
        return fed(piece, values)

    def copied() -> ValuesByClass | None:
        known = computed()
        return None if known is None else dict(known)

    return copied


def _is_subnormal(array: TensorValue) -> bool:
    if not isinstance(array, np.ndarray) or ir.DataType.from_numpy(array.dtype) not in FLOATS:
        return False
    size = np.abs(array.astype(np.float64))
    return bool(((size > 0) & (size < smallest_normal(ir.DataType.from_numpy(array.dtype)))).any())


def _type(array: TensorValue) -> np.dtype | None:
    return array.dtype if isinstance(array, np.ndarray) and "float" in array.dtype.name else None
