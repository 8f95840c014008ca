"""The numbers at which operators change their behaviour: bounds, ends of slopes, steps of rounding, compared operands.

Any scalar constant next to an elementwise operator may be one, even after a rule has moved it across a multiplication.
So all scalar constants are collected from both programs, and samples lie below, on and above each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from eqsat.ops.evaluate import TensorValue
from eqsat.ops.operators import operator
from eqsat.schema.types import Attrs, OpKey, TensorAttr
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import Programs

MOST_ELEMENTS = 64
"""Constants up to this size are searched for thresholds."""
MOST = 24
"""Thresholds of one piece."""

_ATTRIBUTES = ("max", "min", "alpha", "lambd", "bias", "beta", "gamma")


def thresholds(programs: Programs, piece: ComparedPiece) -> tuple[float, ...]:
    """The thresholds of both sides of a piece, without repetition, each finite."""
    found: dict[float, None] = {}
    for value in _all(programs, piece):
        if np.isfinite(value):
            found.setdefault(float(value))
        if len(found) >= MOST:
            break
    return tuple(found)


def _all(programs: Programs, piece: ComparedPiece) -> Iterator[float]:
    for i in (*piece.left, *piece.before):
        node = programs.nodes[i]
        op = node.constructor.op
        yield from _of_operator(op, node.attrs)
        constants = [k for k in programs.reads(i) if k not in programs.producer and not programs.dynamic[k]]
        yield from _of_constants(op, [programs.initial(k) for k in constants if _small(programs, programs.classes[k])])
    for i in piece.right:
        kernel = programs.kernels[i]
        yield from _of_operator(kernel.op, kernel.attrs)
        constants = [c for c in kernel.inputs if c is not None and programs.is_constant(c) and _small(programs, c)]
        yield from _of_constants(kernel.op, [programs.constant(c) for c in constants])


def _small(programs: Programs, eclass: int) -> bool:
    kind = programs.type(eclass)
    return kind is not None and kind.is_static and (kind.elements or 0) <= MOST_ELEMENTS


def _of_operator(op: OpKey, attrs: Attrs) -> Iterator[float]:
    yield from operator(op).bends_at
    for name, value in attrs:
        if isinstance(value, TensorAttr):
            yield from _of_constants(op, [value.array] if value.array.size <= MOST_ELEMENTS else [])
        elif isinstance(value, float) and (name in _ATTRIBUTES or op.name == "Constant"):
            yield value


def _of_constants(op: OpKey, arrays: Iterable[TensorValue]) -> Iterator[float]:
    """Numbers of small constants, and the limits of the range of integers with a scale."""
    scales: list[float] = []
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OUSbc" or not array.size:
            continue
        wide = np.unique(array.astype(np.float64))
        yield from wide[[0, -1]].tolist() if wide.size > 4 else wide.tolist()
        if op.name in ("QuantizeLinear", "DequantizeLinear") and array.dtype.kind == "f":
            scales.append(float(wide[-1]))
    for scale in scales:
        # Half a step, one step, and beyond both ends of 8 bits.
        yield from (0.5 * scale, scale, 127 * scale, -128 * scale, 255 * scale)
