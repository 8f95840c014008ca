"""Shapes of results that have free sizes, or whose shapes operands give in free sizes.

ONNX's rules do not compute with symbols. Here dimensions are sizes (:mod:`eqsat.schema.size`), and operands that
contain a shape are followed element by element (:mod:`eqsat.model.inference.shape_values`). An unknown dimension is
None; others are right for all values of the sizes. Inference of types and the C generator both ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.model.inference import size_elements
from eqsat.model.inference.broadcast_dims import Dims, broadcast_dims
from eqsat.model.inference.shape_values import dimensions, elements, number_of_steps
from eqsat.model.inference.size_elements import SizeElement, checked, computed, depends_on_sizes
from eqsat.ops.operators import has
from eqsat.ops.schemas import defaults
from eqsat.ops.traits import Trait
from eqsat.schema.size import Size, Undecided, closer_bounds, divided
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import Attrs, KnownValue, OpKey, TensorType

ENDLESS = 10**9
"""Ends of a Slice from here on mean "to the end": no axis of an open size is that long."""
_Shapes = Sequence[Dims | None]


@dataclass(frozen=True)
class SizedOperand:
    """What is known of an operand.

    Attributes:
        dims: Its dimensions, None if the rank is unknown.
        value: Its value where known; elements may be sizes, or unknown.
    """

    dims: Dims | None
    value: KnownValue = None


@dataclass(frozen=True)
class _SizedCall:
    """An operator.

    Attributes:
        attributes: All of them.
        operands: Its operands, None for an absent one.
        outputs: Number of its results.
    """

    attributes: Mapping[str, Any]
    operands: Sequence[SizedOperand | None]
    outputs: int

    def operand(self, position: int) -> SizedOperand | None:
        return self.operands[position] if position < len(self.operands) else None

    def dims(self, position: int) -> Dims | None:
        operand = self.operand(position)
        return None if operand is None else operand.dims

    def ints(self, position: int) -> list[SizeElement] | None:
        """The elements of an operand; None if it is absent or they are unknown."""
        operand = self.operand(position)
        return None if operand is None or operand.value is None else elements(operand.value)

    def axes(self, position: int, count: int) -> list[int] | None:
        """The axes that an operand names, or the first ones if it is absent; None if they are unknown."""
        if self.operand(position) is None:
            return list(range(count))
        named = self.ints(position)
        return None if named is None or not all(type(a) is int for a in named) else named


def sized_shapes(
    op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], values: Sequence[KnownValue], outputs: int
) -> _Shapes | None:
    """The shapes of an operator's results in sizes, as far as they can be dimensions of a type.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs, None for an absent one.
        values: Their values where known.
        outputs: Number of its outputs.

    Returns:
        A shape for each output, None if its rank is unknown; or None for an operator that is not treated here.
    """
    known = [*values, *[None] * (len(inputs) - len(values))]
    operands = [None if t is None else SizedOperand(dimensions(t), v) for t, v in zip(inputs, known, strict=True)]
    found = result_dims(op, {**defaults(op), **dict(attrs)}, operands, outputs)
    # The sizes of a broadcast are dimensions of its operands.
    written = _dimension if op.name in _RULES else checked
    return None if found is None else [None if s is None else list(map(written, s)) for s in found]


def result_dims(
    op: OpKey, attributes: Mapping[str, Any], operands: Sequence[SizedOperand | None], outputs: int
) -> _Shapes | None:
    """The shapes of an operator's results in sizes, whatever their ranges and however long their expressions.

    Args:
        op: The operator.
        attributes: All of its attributes.
        operands: What is known of its operands, None for an absent one.
        outputs: Number of its results.

    Returns:
        See :func:`sized_shapes`.
    """
    if op.domain:
        return None
    rule = _RULES.get(op.name, _broadcasting if has(op, Trait.BROADCASTS) else None)
    try:
        return None if rule is None else rule(_SizedCall(attributes, operands, outputs))
    except Undecided:
        return None


def as_types(shapes: _Shapes, found: Sequence[TensorType | None]) -> tuple[TensorType | None, ...]:
    """Types with the element types of some types and other shapes."""
    return tuple(
        t if t is None or s is None else TensorType(t.dtype, tuple(None if d is None else as_dim(d) for d in s))
        for t, s in zip(found, [*shapes, *[None] * len(found)], strict=False)
    )


def _dimension(size: SizeElement) -> SizeElement:
    """A size as a dimension; nothing is known of one that may be negative."""
    size = checked(size)
    if not isinstance(size, int | Size) or isinstance(size, bool):
        return None
    return size if closer_bounds(size)[0] >= 0 else None


# ---- broadcasting ------------------------------------------------------------------------------------


def _broadcasting(call: _SizedCall) -> _Shapes:
    return [broadcast_dims([operand.dims for operand in call.operands if operand is not None])] * call.outputs


def _matmul(call: _SizedCall) -> _Shapes | None:
    a, b = call.dims(0), call.dims(1)
    if not a or not b:
        return None
    lead = broadcast_dims([a[:-2], b[:-2]]) or []
    return [[*lead, *(a[-2:-1] if len(a) > 1 else []), *(b[-1:] if len(b) > 1 else [])]]


def _expand(call: _SizedCall) -> _Shapes | None:
    x, wanted = call.dims(0), call.ints(1)
    return None if x is None or wanted is None else [broadcast_dims([x, wanted])]


# ---- shapes that operands say ------------------------------------------------------------------------


def _constant_of_shape(call: _SizedCall) -> _Shapes | None:
    wanted = call.ints(0)
    return None if wanted is None else [wanted]


def _reshape(call: _SizedCall) -> _Shapes | None:
    x, wanted = call.dims(0), call.ints(1)
    if wanted is None:
        return None
    found: Dims = []
    for i, n in enumerate(wanted):
        if isinstance(n, int) and n == 0 and not call.attributes.get("allowzero"):
            n = x[i] if x is not None and i < len(x) else None
        found.append(n)
    open_at = [i for i, n in enumerate(found) if n is None or (isinstance(n, int) and n == -1)]
    for i in open_at:
        found[i] = None
    if len(open_at) == 1 and x is not None:
        found[open_at[0]] = _rest(x, [n for i, n in enumerate(found) if i != open_at[0]])
    return [found]


def _rest(given: Dims, named: Dims) -> SizeElement:
    """The size of the one dimension that is not named: the elements left by the named ones."""
    left, named = list(given), list(named)
    for n in named[:]:
        # Also of sizes that may be zero: then the operator itself cannot say it.
        if n is not None and n in left:
            left.remove(n)
            named.remove(n)
    if None in left or None in named:
        return None
    total = by = 1
    for n in left:
        total = total * n
    for n in named:
        by = by * n
    if by == 1:
        return total
    return computed(lambda a, b: None if isinstance(b, int) and b == 0 else divided(a, b), total, by)


def _range(call: _SizedCall) -> _Shapes | None:
    given = [call.ints(k) for k in range(3)]
    if any(n is None or len(n) != 1 for n in given):
        return None
    return [[number_of_steps(*(n[0] for n in given if n is not None))]]


def _tile(call: _SizedCall) -> _Shapes | None:
    x, repeats = call.dims(0), call.ints(1)
    if x is None or repeats is None or len(x) != len(repeats):
        return None
    return [[_product(n, k) for n, k in zip(x, repeats, strict=True)]]


def _product(a: SizeElement, b: SizeElement) -> SizeElement:
    return computed(size_elements.OPERATORS["Mul"], a, b)


def _sum(*sizes: SizeElement) -> SizeElement:
    total: SizeElement = 0
    for size in sizes:
        total = computed(size_elements.OPERATORS["Add"], total, size)
    return total


def _at(shape: Dims, axis: int, n: SizeElement) -> Dims:
    axis %= len(shape)
    return [*shape[:axis], n, *shape[axis + 1 :]]


def _concat(call: _SizedCall) -> _Shapes | None:
    known = [x.dims for x in call.operands if x is not None and x.dims]
    if len(known) < len(call.operands) or len(set(map(len, known))) > 1:
        return None
    agreed = [
        next((n for n in sorted(ns, key=depends_on_sizes) if n is not None), None) for ns in zip(*known, strict=True)
    ]
    axis = call.attributes["axis"] % len(agreed)
    return [_at(agreed, axis, _sum(*(s[axis] for s in known)))]


def _split(call: _SizedCall) -> _Shapes | None:
    x, sizes = call.dims(0), call.ints(1)
    count, axis = call.outputs, call.attributes["axis"]
    if not x:
        return None
    if sizes is None:
        n = x[axis % len(x)]
        if call.operand(1) is not None or not call.attributes.get("num_outputs"):
            return [_at(x, axis, None)] * count
        part = computed(lambda a: -divided(-a, count), n)
        last = None if part is None else _sum(n, computed(size_elements.OPERATORS["Mul"], part, 1 - count))
        # The last part is the smaller one, and may be missing altogether.
        parts = [part] * count if computed(lambda a: a % count == 0, n) else [part] * (count - 1) + [last]
        return [_at(x, axis, _dimension(p)) for p in parts]
    return [_at(x, axis, n) for n in sizes]


def _top_k(call: _SizedCall) -> _Shapes | None:
    x, k = call.dims(0), call.ints(1)
    return None if not x or not k else [_at(x, call.attributes["axis"], k[0])] * 2


def _one_hot(call: _SizedCall) -> _Shapes | None:
    x, depth = call.dims(0), call.ints(1)
    if x is None or not depth:
        return None
    axis = call.attributes["axis"] % (len(x) + 1)
    return [[*x[:axis], depth[0], *x[axis:]]]


def _pad(call: _SizedCall) -> _Shapes | None:
    x, widths = call.dims(0), call.ints(1)
    if x is None or widths is None:
        return None
    axes = call.axes(3, len(x))
    if axes is None or len(widths) != 2 * len(axes):
        return [[None] * len(x)]
    shape = list(x)
    for k, axis in enumerate(axes):
        shape[axis] = _sum(shape[axis], widths[k], widths[k + len(axes)])
    return [shape]


def _slice(call: _SizedCall) -> _Shapes | None:
    x = call.dims(0)
    if x is None:
        return None
    starts, ends, steps = (call.ints(k) for k in (1, 2, 4))
    count = next((len(given) for given in (starts, ends, steps) if given is not None), None)
    axes = None if count is None and call.operand(3) is None else call.axes(3, count or 0)
    if axes is None:
        return [[None] * len(x)]
    shape = list(x)
    for k, axis in enumerate(axes):
        start, end = (None if given is None else given[k] for given in (starts, ends))
        step = 1 if call.operand(4) is None else None if steps is None else steps[k]
        shape[axis] = _taken(start, end, step, shape[axis])
    return [shape]


def _taken(start: SizeElement, end: SizeElement, step: SizeElement, n: SizeElement) -> SizeElement:
    """How many elements a slice takes of an axis."""
    if n is None or not isinstance(step, int) or isinstance(step, Size) or start is None or end is None:
        return None

    if isinstance(n, Size) and isinstance(end, int) and not isinstance(end, Size) and abs(end) >= ENDLESS:
        end = n if end > 0 else -n - 1

    def count(start: int, end: int, n: int) -> int:
        first, stop = slice_start(start, step, n), end + n if end < 0 else end
        if step > 0:
            way = smallest(stop, n) - first
            return divided(largest(way, 0) + (step - 1), step)
        way = first - largest(smallest(stop, n), -1)
        return smallest(divided(largest(way, 0) + (-step - 1), -step), n)

    return computed(count, start, end, n)


def slice_start(start: int, step: int, n: int) -> int:
    """The first index that a slice takes of an axis of a free size.

    Raises:
        Undecided: It depends on comparisons of sizes.
    """
    at = start + n if start < 0 else start
    return largest(smallest(at, n if step > 0 else n - 1), 0)


def _resize(call: _SizedCall) -> _Shapes | None:
    x, scales, sizes = call.dims(0), call.ints(2), call.ints(3)
    if x is None or call.attributes.get("keep_aspect_ratio_policy", "stretch") not in ("stretch", b"stretch"):
        return None
    axes = [a % len(x) for a in call.attributes.get("axes") or range(len(x))]
    shape = list(x)
    if sizes:
        for axis, n in zip(axes, sizes, strict=False):
            shape[axis] = n
        return [shape]
    if not scales or len(scales) != len(axes):
        return None
    for axis, scale in zip(axes, scales, strict=True):
        shape[axis] = _scaled(shape[axis], scale)
    return [shape]


def _scaled(n: SizeElement, scale: SizeElement) -> SizeElement:
    """A size times a float, rounded down."""
    if isinstance(n, int) and isinstance(scale, float) and not isinstance(n, Size):
        return int(np.floor(np.float32(n) * np.float32(scale)))
    real = computed(lambda a: size_elements.cast(a, ir.DataType.FLOAT), n)
    scaled = computed(size_elements.OPERATORS["Mul"], real, scale)
    return computed(lambda a: size_elements.cast(a, ir.DataType.INT64), scaled)


_RULES: dict[str, Callable[[_SizedCall], _Shapes | None]] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "MatMul": _matmul,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "TopK": _top_k,
}
