"""Executes both sides of a piece with a given implementation: in their own types, in wider ones, with noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

import ml_dtypes
import numpy as np

from eqsat.execute.difference import is_integer
from eqsat.ops.evaluate import TensorValue
from eqsat.ops.properties import value_inputs
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import CallOperator, Programs, extended, prolonged, run_kernels, run_nodes, wide, widened

_BLOCK = 1 << 13
"""Elements that are changed at once, so that what is computed in between stays in the cache."""

LeafValues = Mapping[int, TensorValue]
"""Values of a piece's leaves, by class."""

ValuesByClass = dict[int, TensorValue]
"""For the input's side values by number, those of class c under ``-1 - c``; for the result's side by class."""


class Perturbation:
    """Random changes of floats: relative ones, and below the normal numbers of the type as large as its rounding.

    Args:
        delta: The greatest relative change.
        seed: Of the random numbers.
        rounds: Whether a value changes at least as much as its type rounds, which in 16 bits is more than ``delta``.
        lsb: Units by which integers of up to 16 bits change where floats become them: all up, all down, or at random.
    """

    def __init__(self, delta: float, seed: int, *, rounds: bool = False, lsb: int = 0) -> None:
        self.delta = delta
        self.rounds = rounds
        self.lsb = lsb
        self.direction = {0: 1, 1: -1}.get(seed)
        self.rng = np.random.default_rng(seed)

    def on(self, value: TensorValue, dtype: np.dtype | None = None) -> TensorValue:
        """The value changed, if it is a float.

        Args:
            dtype: Its type in the model, where it is held in a wider one.
        """
        if not isinstance(value, np.ndarray) or (value.dtype.kind != "f" and "float" not in value.dtype.name):
            return value
        kind = ml_dtypes.finfo(dtype or value.dtype)
        step = float(kind.smallest_subnormal)
        delta = max(self.delta, float(kind.eps)) if self.rounds else self.delta
        changed = np.empty(value.shape, value.dtype)
        before, after = value.reshape(-1), changed.reshape(-1)
        wide = np.longdouble if value.dtype == np.longdouble else np.float64
        with np.errstate(all="ignore"):
            for start in range(0, before.size, _BLOCK):
                exact = before[start : start + _BLOCK].astype(wide)
                size = np.abs(exact)
                reach = np.maximum(delta * size, np.minimum(step, size))
                reach *= self.rng.uniform(-1, 1, exact.size)
                finite = np.isfinite(exact)
                np.add(exact, reach, out=exact, where=finite)
                after[start : start + _BLOCK] = exact
        return changed

    def on_rounded(self, value: TensorValue) -> TensorValue:
        """The integers that an operator has made of floats, changed by units."""
        if not self.lsb or not _is_small_integer(value):
            return value
        kind = ml_dtypes.iinfo(value.dtype)
        direction = self.rng.choice((-1, 1), value.shape) if self.direction is None else self.direction
        changed = value.astype(np.int64) + self.lsb * direction
        return changed.clip(int(kind.min), int(kind.max)).astype(value.dtype)

    def on_constant(self, value: TensorValue, dtype: np.dtype | None = None) -> TensorValue:
        """The value changed as ``on`` says, with the largest numbers of its type halved in random places.

        They represent infinity, as in masks: scores vanish beside them, and also beside half of them, which rules may
        use instead.
        """
        changed = self.on(value, dtype)
        if not isinstance(value, np.ndarray) or changed is value:
            return changed
        is_largest = np.abs(value.astype(np.float64)) == float(ml_dtypes.finfo(dtype or value.dtype).max)
        if not is_largest.any():
            return changed
        return np.where(is_largest, value * self.rng.choice((0.5, 1.0), value.shape), changed).astype(value.dtype)


def _is_small_integer(value: TensorValue) -> TypeGuard[np.ndarray]:
    """Whether a value has integers of up to 16 bits, which rules may change by units."""
    return isinstance(value, np.ndarray) and is_integer(value.dtype) and value.dtype.itemsize <= 2


def _is_float(value: TensorValue) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or "float" in value.dtype.name)


def _same(value: TensorValue) -> TensorValue:
    return value


_CHANGES: dict[CallOperator, Callable[[TensorValue], TensorValue]] = {wide: widened, extended: prolonged}


def run_left(
    programs: Programs,
    piece: ComparedPiece,
    sample: LeafValues,
    call: CallOperator,
    values: ValuesByClass,
    noise: Perturbation | None = None,
) -> TensorValue:
    """The input's side; ``values`` receives its values, even if it fails.

    Raises:
        Failed: An operator cannot be evaluated.
    """
    run_before(programs, piece, sample, call, values, noise)
    _run_part(programs, piece.left, call, values, noise)
    return values[piece.value]


def run_before(
    programs: Programs,
    piece: ComparedPiece,
    sample: LeafValues,
    call: CallOperator,
    values: ValuesByClass,
    noise: Perturbation | None = None,
) -> None:
    """The part of the input's side that both sides have in common; ``values`` as of :func:`run_left`.

    Raises:
        Failed: An operator cannot be evaluated.
    """
    change = _CHANGES.get(call, _same)
    for c, array in sample.items():
        changed = change(array)
        values[-1 - c] = noise.on(changed, array.dtype) if noise and isinstance(array, np.ndarray) else changed
    _run_part(programs, piece.before, call, values, noise, classes=True)


def _run_part(
    programs: Programs,
    part: Sequence[int],
    call: CallOperator,
    values: ValuesByClass,
    noise: Perturbation | None,
    *,
    classes: bool = False,
) -> None:
    """Operators of the input, in order; a class that is in ``values`` is read from there.

    Args:
        classes: Whether results are added by class as well.
    """
    change = _CHANGES.get(call, _same)

    def constant(k: int, is_steady: bool) -> TensorValue:
        array = programs.initial(k)
        changed = change(array)
        if noise is None or is_steady or not isinstance(array, np.ndarray):
            return changed
        return noise.on_constant(changed, array.dtype)

    computed: ValuesByClass = {}
    inner = {k for i in part for k in programs.nodes[i].results}
    for i in part:
        node = programs.nodes[i]
        for at, k in enumerate(node.operands):
            if k is None or k in computed or k not in programs.reads(i):
                continue
            c = programs.classes[k]
            if programs.dynamic[k] and -1 - c in values:
                computed[k] = values[-1 - c]
            elif k not in inner:
                computed[k] = constant(k, at in value_inputs(node.constructor.op))
        try:
            run_nodes(programs, [i], computed, call)
        finally:
            values.update(computed)
        if noise is not None:
            # Each operator rounds, even if the rounding errors of the inputs cancel.
            computed.update({k: noise.on(computed[k], _dtype(programs, k)) for k in node.results if k in computed})
            if any(_is_float(computed.get(k)) for k in node.operands if k is not None):
                computed.update({k: noise.on_rounded(computed[k]) for k in node.results if k in computed})
        if classes:
            for k in node.results:
                values.setdefault(-1 - programs.classes[k], computed.get(k))
    values.update(computed)


def fed(piece: ComparedPiece, values: ValuesByClass) -> ValuesByClass:
    """The values of the input's side that the result's side reads."""
    return {c: values[-1 - c] for c in piece.fed if -1 - c in values}


def run_right(
    programs: Programs,
    piece: ComparedPiece,
    values: ValuesByClass,
    call: CallOperator,
    noise: Perturbation | None = None,
) -> TensorValue:
    """The result's side; ``values`` contains its operands and receives its results, even if it fails.

    Raises:
        Failed: A kernel cannot be evaluated.
    """
    change = _CHANGES.get(call, _same)
    if programs.is_constant(piece.eclass):
        return change(programs.constant(piece.eclass))
    for i in piece.right:
        for c in programs.kernels[i].inputs:
            if c is not None and c not in values and programs.is_constant(c):
                values[c] = change(programs.constant(c))
    for i in piece.right:
        run_kernels(programs, [i], values, call)
        if noise is not None:
            values.update({c: noise.on(values[c]) for c in programs.kernels[i].outputs if c is not None})
    return values[piece.eclass]


def _dtype(programs: Programs, k: int) -> np.dtype | None:
    kind = programs.type(programs.classes[k])
    return kind.dtype.numpy() if kind is not None and kind.dtype.is_floating_point() else None
