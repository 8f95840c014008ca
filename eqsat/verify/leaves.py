"""The possible values of the leaves of a piece: whether they can be drawn, and samples of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.execute.difference import magnitude
from eqsat.ops.evaluate import TensorValue
from eqsat.ops.operators import has
from eqsat.ops.properties import value_inputs
from eqsat.ops.traits import Trait
from eqsat.verify.leaf_samples import Style, draw
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import Programs
from eqsat.verify.thresholds import MOST_ELEMENTS


def obstacle(programs: Programs, piece: ComparedPiece) -> str:
    """Why a piece cannot be executed on drawn values; empty if it can."""
    for i in (*piece.before, *piece.left):
        node = programs.nodes[i]
        if not programs.is_repeatable(i):
            opaque = node.constructor.op.domain not in ("", "com.microsoft")
            return "opaque operators" if opaque else "random operators"
    for c in (*piece.leaves, piece.eclass):
        kind = programs.type(c)
        if kind is None or not kind.is_static:
            return "tensors of unknown sizes"
        if kind.dtype == ir.DataType.STRING:
            return "strings"
        if kind.dtype.name.startswith("COMPLEX"):
            return "complex numbers"
    return ""


def sample(
    programs: Programs, piece: ComparedPiece, style: Style, points: Sequence[float], number: int, seed: int
) -> dict[int, TensorValue] | None:
    """Values for the leaves of a piece; None if the style adds nothing new."""
    found: dict[int, TensorValue] = {}
    fixed = _structural(programs, piece)
    for c in piece.leaves:
        kind = programs.type(c)
        assert kind is not None
        how = style
        if c in fixed and kind.dtype.is_integer():
            how = Style("indices", "constant", 0.0) if number % 2 else Style("indices", "equal")
            if style.kind == "extreme":
                return None
        array = draw(kind, how, points, seed + 1000 * number, f"{c}")
        if array is None:
            return None
        found[c] = array
    return found


def _structural(programs: Programs, piece: ComparedPiece) -> set[int]:
    """Leaves that, moved and cut, become indices or sizes of other tensors: only small values are harmless."""
    touched: set[int] = set()
    for i in sorted((*piece.before, *piece.left), reverse=True):
        node = programs.nodes[i]
        op = node.constructor.op
        through = bool(touched & {programs.classes[k] for k in node.results} | touched & set(node.results))
        for at, k in enumerate(node.operands):
            if k is None:
                continue
            if at in value_inputs(op) or (at > 0 and has(op, Trait.INDEXES)) or (through and _is_integer(programs, k)):
                touched.add(programs.classes[k])
    return touched & set(piece.leaves)


def factors(programs: Programs, piece: ComparedPiece, values: Mapping[int, TensorValue]) -> tuple[float, ...]:
    """The factor by which normal numbers must be scaled so that both sides of each threshold inside are reached."""
    found: dict[float, None] = {}
    for i in (*piece.before, *piece.left):
        node = programs.nodes[i]
        if not has(node.constructor.op, Trait.BENDS):
            continue
        peak, marks = 0.0, [abs(v) for n, v in node.attrs if isinstance(v, float) and n in ("min", "max", "alpha")]
        for k in node.operands:
            value = None if k is None else values.get(k)
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "fV" or not value.size:
                continue
            if k is not None and programs.dynamic[k]:
                peak = max(peak, magnitude(value))
            elif value.size <= MOST_ELEMENTS:
                marks.append(magnitude(value))
        for mark in marks:
            if 0 < peak < 2 * mark < np.inf and mark < 1e30:
                found.setdefault(2.0 ** np.ceil(np.log2(4 * mark / peak)))
    return tuple(sorted(found)[-2:])


def _is_integer(programs: Programs, k: int) -> bool:
    """Whether a value of the input has integers of more than 8 bits."""
    kind = programs.type(programs.classes[k])
    return kind is not None and kind.dtype.is_integer() and kind.dtype.bitwidth > 8
