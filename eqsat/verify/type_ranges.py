"""Excuses differences of values that have left the range of their type.

Rules of class ``real`` hold where every value that either program computes stays within the range of its type. So each
side is executed a second time in a type that is wide enough. An element that differs is excused in four cases only:

- the *input* leaves the range: some value of it does, and the element is not what the input means over the reals; or
  the input means an infinity or NaN there;
- an operand of the piece is infinite or NaN, and so is the element on either side;
- a value of the input is infinite or NaN, and the element is an integer or a truth value, which cannot express that;
- a value *between* does: both sides mean the same over the reals, some value of the result leaves the range, and the
  element is not what the result means.

A value leaves the range if it exceeds the largest number of the type, or is below its smallest normal one without being
zero. A pole of the result (a division by zero, the logarithm of zero) does not count, and a constant of the result is
no excuse: the result means what its constants are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np

from eqsat.ops.evaluate import TensorValue
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.ops.wide import largest_finite, smallest_normal
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.opset import find_schema, input_names
from eqsat.schema.types import OpKey, TensorType
from eqsat.verify import judge_values
from eqsat.verify.oracle import Failed
from eqsat.verify.pieces import ComparedPiece
from eqsat.verify.programs import Programs, extended
from eqsat.verify.sides import LeafValues, ValuesByClass, fed, run_left, run_right


@dataclass
class Meaning:
    """The values of both sides of a piece over the reals, as far as the machine's longest float represents them.

    Attributes:
        left: The input's value; None if it cannot be computed in this way.
        right: The result's value.
        input_leaves: Whether a value of the input leaves the range of its type.
        result_leaves: The same for the result.
        endless_leaf: Whether an operand of the piece is infinite or NaN somewhere.
        endless_inside: Whether a value between the operands and the input's result is infinite or NaN.
        rtol: Relative error that rounding constants to their types explains.
    """

    left: np.ndarray | None
    right: np.ndarray | None
    input_leaves: bool
    result_leaves: bool
    endless_leaf: bool
    endless_inside: bool
    rtol: float

    def differs(self) -> np.ndarray | None:
        """Elements whose values over the reals differ between both sides; None if unknown."""
        if self.left is None or self.right is None or self.left.shape != self.right.shape:
            return None
        return self._apart(self.left, self.right)

    def excused(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Elements, in their own type, whose difference proves nothing."""
        endless = ~(_is_finite(left) & _is_finite(right)) if self.endless_leaf else False
        return self.input_excused(left) | self._between(right) | endless

    def input_excused(self, left: np.ndarray) -> np.ndarray:
        """Elements in which the input has left the range of its types."""
        if self.left is None or self.left.shape != left.shape:
            return np.zeros(left.shape, bool)
        if self.endless_inside and left.dtype.kind in "biu":
            return np.ones(left.shape, bool)
        endless = ~_is_finite(self.left)
        return (self._apart(self.left, left) | ~_is_finite(left) | endless) if self.input_leaves else endless

    def beyond_the_widest(self) -> np.ndarray:
        """Elements in which the result's side has overflowed or vanished even in the widest type."""
        assert self.right is not None
        if not self.result_leaves:
            return np.zeros(self.right.shape, bool)
        return ~_is_finite(self.right) | (self.right == 0)

    def _between(self, right: np.ndarray) -> np.ndarray:
        differs = self.differs()
        if not self.result_leaves or differs is None or self.right is None or self.right.shape != right.shape:
            return np.zeros(right.shape, bool)
        return ~(differs & ~self.beyond_the_widest()) & self._apart(self.right, right)

    def _apart(self, meant: np.ndarray, found: np.ndarray) -> np.ndarray:
        if meant.dtype.kind == "f":
            return judge_values.beyond_wide(meant, found, self.rtol)
        return np.asarray(judge_values.distance(meant, found) > 0)


@dataclass
class Meanings:
    """The meaning of one piece on one sample, computed when it is first needed."""

    programs: Programs
    piece: ComparedPiece
    sample: LeafValues
    rtol: float
    _known: list[Meaning] = field(default_factory=list)

    def get(self) -> Meaning:
        """Both sides over the reals."""
        if not self._known:
            self._known.append(self._compute())
        return self._known[0]

    def _compute(self) -> Meaning:
        programs, piece = self.programs, self.piece
        values: ValuesByClass = {}
        left = right = None
        with suppress(Failed):
            left = run_left(programs, piece, self.sample, extended, values)
        theirs = fed(piece, values)
        with suppress(Failed, KeyError):
            right = run_right(programs, piece, theirs, extended)
        sampled = any(_is_outside(programs.type(c), array) for c, array in self.sample.items())
        return Meaning(
            left if isinstance(left, np.ndarray) else None,
            right if isinstance(right, np.ndarray) else None,
            sampled or any(_leaves(*step) for step in _left_steps(programs, piece, values)),
            sampled or any(_leaves(*step) for step in _right_steps(programs, piece, theirs)),
            _has_endless(self.sample),
            _has_endless(values),
            self.rtol,
        )


# ---- values that leave the range ---------------------------------------------------------------------------------

_Typed = tuple[TensorType | None, TensorValue]
"""A value and its type in the model."""
_Step = tuple[OpKey, Sequence[_Typed], Sequence[_Typed]]
"""An operator, its operands (None where absent), and its results."""


def _left_steps(programs: Programs, piece: ComparedPiece, values: ValuesByClass) -> Iterator[_Step]:
    def typed(k: int | None) -> _Typed:
        return (None, None) if k is None else (programs.type(programs.classes[k]), values.get(k))

    for i in (*piece.before, *piece.left):
        node = programs.nodes[i]
        operands = () if programs.follows_from_type(i) else node.operands
        yield node.constructor.op, [typed(k) for k in operands], [typed(k) for k in node.results]


def _right_steps(programs: Programs, piece: ComparedPiece, values: ValuesByClass) -> Iterator[_Step]:
    def typed(c: int | None) -> _Typed:
        return (None, None) if c is None else (programs.type(c), values.get(c))

    for i in piece.right:
        kernel = programs.kernels[i]
        yield kernel.op, [typed(c) for c in kernel.inputs], [typed(c) for c in kernel.outputs]


def _leaves(op: OpKey, operands: Sequence[_Typed], results: Sequence[_Typed]) -> bool:
    """Whether an operator's result, over the reals, is outside of the range of its type though its operands are not."""
    floats = [x for _, x in operands if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    if op.name == "QuantizeLinear" and _quotient_leaves(operands):
        return True
    if _scale_leaves(_scales(op, operands)):
        return True
    finite = all(_is_finite(x).all() for x in floats)
    for kind, value in results:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        if _is_outside(kind, value, infinite=False):
            return True
        if finite and not np.isfinite(value).all() and not (has(op, Trait.POLES) and _at_pole(op, floats)):
            return True
        if (value == 0).any() and (
            has(op, Trait.POSITIVE) or (has(op, Trait.KEEPS_FROM_ZERO) and not any((x == 0).any() for x in floats))
        ):
            return True
    return False


def _quotient_leaves(operands: Sequence[_Typed]) -> bool:
    """Whether a number to be rounded to an integer is beyond the range of the type of the computation."""
    (kind, x), (other, scale) = operands[:2]
    if x is None or scale is None or not x.size or not scale.size:
        return False
    x, scale = x.astype(np.longdouble), scale.astype(np.longdouble)
    types = [k.dtype for k in (kind, other) if k is not None and k.dtype in FLOATS]
    least = np.abs(scale[scale != 0]).min(initial=np.inf)
    with np.errstate(all="ignore"):
        return any(bool((np.abs(x) / least > largest_finite(t)).any()) for t in types)


def _scales(op: OpKey, operands: Sequence[_Typed]) -> list[tuple[TensorType | None, np.ndarray]]:
    """The scales of a quantized operator, that of its result last; empty for an operator with fewer than two."""
    named = zip(input_names(op), operands, strict=False) if find_schema(op) is not None else ()
    found = [(kind, x) for name, (kind, x) in named if "scale" in name.lower() and isinstance(x, np.ndarray) and x.size]
    return found if len(found) > 1 else []


def _scale_leaves(scales: Sequence[tuple[TensorType | None, np.ndarray]]) -> bool:
    """Whether a factor of a quantized operator is beyond the range of the scales' type.

    A factor is a scale of an operand, or the product of all of them, by the scale of the result.
    """
    if not scales:
        return False
    sizes = [np.abs(x.astype(np.longdouble)) for _, x in scales]
    ranges = [(x[x > 0].min(initial=np.inf), x.max(initial=0)) for x in sizes]
    *given, (least_of_result, most_of_result) = ranges
    with np.errstate(all="ignore"):
        least, most = (np.prod([r[k] for r in given]) for k in (0, 1))
        factors = [least, most, *(r / most_of_result for r in (least, *(g[0] for g in given)))]
        factors += [r / least_of_result for r in (most, *(g[1] for g in given))]
    return _is_outside(scales[0][0], np.array(factors))


def _at_pole(op: OpKey, floats: Sequence[np.ndarray]) -> bool:
    if has(op, Trait.DIVIDES):
        return bool((floats[-1] == 0).any())
    if op.name == "Reciprocal":
        return bool((floats[0] == 0).any())
    if op.name == "Pow":
        return bool((floats[0] <= 0).any())
    return True


def _is_outside(kind: TensorType | None, value: TensorValue, *, infinite: bool = True) -> bool:
    """Whether a value has numbers beyond the range of a floating-point type, or between its normal ones and zero."""
    if kind is None or kind.dtype not in FLOATS or not isinstance(value, np.ndarray):
        return False
    array = value if value.dtype.kind == "f" else value.astype(np.float64)
    size, finite = np.abs(array), np.isfinite(array)
    if infinite and not finite.all():
        return True
    beyond = (size > largest_finite(kind.dtype)) & finite
    return bool((beyond | ((size > 0) & (size < smallest_normal(kind.dtype)))).any())


def _has_endless(values: ValuesByClass | LeafValues) -> bool:
    return any(_is_float(v) and not _is_finite(v).all() for v in values.values())


def _is_float(value: TensorValue) -> TypeGuard[np.ndarray]:
    return isinstance(value, np.ndarray) and "float" in value.dtype.name


def _is_finite(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biu":
        return np.ones(array.shape, bool)
    return np.isfinite(array if array.dtype.kind == "f" else array.astype(np.float64))
