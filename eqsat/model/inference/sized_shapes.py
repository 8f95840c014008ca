"""Shapes of results that have free sizes, or whose shapes operands give in free sizes.

ONNX's rules do not compute with symbols. Here dimensions are sizes (:mod:`eqsat.schema.size`), and operands that
contain a shape are followed element by element (:mod:`eqsat.model.inference.shape_values`). An unknown dimension is
None; others are right for all values of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.model.inference import size_elements
from eqsat.model.inference.shape_values import dimensions, elements, number_of_steps
from eqsat.model.inference.size_elements import SizeElement, checked, computed, is_free
from eqsat.ops.operators import has
from eqsat.ops.schemas import defaults
from eqsat.ops.traits import Trait
from eqsat.schema.size import Size, SizeOperation, Undecided, closer_bounds, divided
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import Attrs, KnownValue, OpKey, TensorType

ENDLESS = 10**9
"""Ends of a Slice from here on mean "to the end": no axis of an open size is that long."""
Dims = list[SizeElement]
_Shapes = Sequence[Dims | None]
_Attributes = Mapping[str, Any]
MOST_IN_MAXIMUM = 3
"""The number of sizes up to which a broadcast is expressed as the greatest of them."""


def sized_shapes(
    op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None], values: Sequence[KnownValue], outputs: int
) -> _Shapes | None:
    """The shapes of an operator's results in sizes.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs.
        values: Their values where known.
        outputs: Number of its outputs.

    Returns:
        A shape for each output, None if its rank is unknown; or None for an operator that is not treated here.
    """
    if op.domain:
        return None
    rule = _RULES.get(op.name)
    if rule is None and not has(op, Trait.BROADCASTS):
        return None
    shapes = [None if t is None else dimensions(t) for t in inputs]
    known = [*values, *[None] * (len(inputs) - len(values))]
    if rule is None:
        present = [s for s, t in zip(shapes, inputs, strict=True) if t is not None]
        return [_broadcast(present)] * outputs
    try:
        found = rule({**defaults(op), **dict(attrs), "outputs": outputs}, shapes, known)
    except Undecided:
        return None
    return None if found is None else [None if s is None else list(map(_dimension, s)) for s in found]


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


def _ints(value: KnownValue) -> list[SizeElement] | None:
    return None if value is None else elements(value)


def _numbers(value: KnownValue) -> list[int] | None:
    """The elements of a value if all are numbers, otherwise None."""
    return None if value is None or value.dtype == object else [int(x) for x in value.reshape(-1)]


# ---- broadcasting ------------------------------------------------------------------------------------


def _broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known), default=0)
    return [broadcast_size([s[a - rank + len(s)] for s in known if a >= rank - len(s)]) for a in range(rank)]


def broadcast_size(sizes: Sequence[SizeElement]) -> SizeElement:
    """The size to which sizes of one axis broadcast: they are equal or 1."""
    met: list[SizeElement] = []
    for size in sizes:
        if size is None:
            met.append(None)
        elif size != 1:
            met += [s for s in _maxima(size, sizes) if s not in met]
    for size in met:
        # The other sizes are equal to it or 1.
        if size is not None and (not isinstance(size, Size) or closer_bounds(size)[0] > 1):
            return size
    if not met:
        return 1
    if None in met:
        return None
    if len(met) == 1:
        return met[0]
    if len(met) > MOST_IN_MAXIMUM or any(closer_bounds(s)[0] < 1 for s in met):
        return None
    found, *rest = sorted(met, key=lambda s: f"{s:model}")
    for size in rest:
        found = largest(found, size)
    return checked(found)


def _maxima(size: int, sizes: Sequence[SizeElement]) -> list[int]:
    """Splits a size that is the maximum of sizes of one axis into these sizes; the axis has one of them, or 1.

    Args:
        size: The size.
        sizes: Sizes of the axis. As none is negative, the maximum of 0 and one of them is that one.
    """
    if isinstance(size, Size) and len(size.terms) == 1:
        ((monomial, factor),) = size.terms.items()
        atom = monomial[0] if factor == 1 and len(monomial) == 1 else None
        if isinstance(atom, SizeOperation) and atom.kind == "max":
            parts = [atom.a, atom.b]
            if all(closer_bounds(part)[0] >= 1 for part in parts):
                return [size for part in parts for size in _maxima(part, sizes)]
            rest = [part for part in parts if isinstance(part, Size) or part != 0]
            if len(rest) == 1 and rest[0] in sizes:
                return rest
    return [size]


def _matmul(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    a, b = shapes[0], shapes[1]
    if not a or not b:
        return None
    lead = _broadcast([a[:-2], b[:-2]]) or []
    return [[*lead, *(a[-2:-1] if len(a) > 1 else []), *(b[-1:] if len(b) > 1 else [])]]


def _expand(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, wanted = shapes[0], _ints(values[1])
    return None if x is None or wanted is None else [_broadcast([x, wanted])]


# ---- shapes that operands say ------------------------------------------------------------------------


def _constant_of_shape(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    wanted = _ints(values[0])
    return None if wanted is None else [wanted]


def _reshape(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, wanted = shapes[0], _ints(values[1])
    if wanted is None:
        return None
    found: Dims = []
    for i, n in enumerate(wanted):
        if isinstance(n, int) and n == 0 and not attributes.get("allowzero"):
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


def _range(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    if any(v is None or v.size != 1 for v in values):
        return None
    return [[number_of_steps(*(v.reshape(()).item() for v in values if v is not None))]]


def _tile(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, repeats = shapes[0], _ints(values[1])
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


def _concat(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    known = [s for s in shapes if s]
    if len(known) < len(shapes) or len(set(map(len, known))) > 1:
        return None
    agreed = [next((n for n in sorted(ns, key=_vagueness) if n is not None), None) for ns in zip(*known, strict=True)]
    axis = attributes["axis"] % len(agreed)
    return [_at(agreed, axis, _sum(*(s[axis] for s in known)))]


def _vagueness(n: SizeElement) -> bool:
    return is_free(n)


def _split(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, sizes = shapes[0], _ints(values[1]) if len(values) > 1 else None
    count, axis = attributes["outputs"], attributes["axis"]
    if not x:
        return None
    if sizes is None:
        n = x[axis % len(x)]
        if (len(values) > 1 and values[1] is not None) or not attributes.get("num_outputs"):
            return [_at(x, axis, None)] * count
        part = computed(lambda a: -divided(-a, count), n)
        last = None if part is None else _sum(n, computed(size_elements.OPERATORS["Mul"], part, 1 - count))
        # The last part is the smaller one, and may be missing altogether.
        parts = [part] * count if computed(lambda a: a % count == 0, n) else [part] * (count - 1) + [last]
        return [_at(x, axis, _dimension(p)) for p in parts]
    return [_at(x, axis, n) for n in sizes]


def _top_k(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, k = shapes[0], _ints(values[1])
    return None if not x or not k else [_at(x, attributes["axis"], k[0])] * 2


def _one_hot(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, depth = shapes[0], _ints(values[1])
    if x is None or not depth:
        return None
    axis = attributes["axis"] % (len(x) + 1)
    return [[*x[:axis], depth[0], *x[axis:]]]


def _axes(value: KnownValue, given: Sequence[KnownValue], position: int, rank: int) -> list[int] | None:
    """The axes in an operand, or without the operand all or the first ones; None if they are not known."""
    numbers = _numbers(value)
    if numbers is not None:
        return [a % rank for a in numbers]
    return None if value is not None or given[position:] else list(range(rank))


def _pad(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x, widths = shapes[0], _ints(values[1])
    if x is None or widths is None:
        return None
    axes = _numbers(values[3]) if len(values) > 3 and values[3] is not None else list(range(len(x)))
    if axes is None or len(widths) != 2 * len(axes):
        return None
    shape = list(x)
    for k, axis in enumerate(axes):
        shape[axis] = _sum(shape[axis], widths[k], widths[k + len(axes)])
    return [shape]


def _slice(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x = shapes[0]
    starts, ends, axes, steps = ([_ints(v) for v in values[1:]] + [None] * 4)[:4]
    if x is None:
        return None
    count = next((len(v) for v in (starts, ends, axes, steps) if v is not None), None)
    if axes is None and ((len(values) > 3 and values[3] is not None) or count is None):
        return [[None] * len(x)]
    axes = list(range(count or 0)) if axes is None else axes
    if not all(isinstance(a, int) and not isinstance(a, Size) for a in axes):
        return [[None] * len(x)]
    shape = list(x)
    for k, axis in enumerate(axes):
        start, end = (None if v is None else v[k] for v in (starts, ends))
        step = 1 if steps is None else steps[k]
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


def _resize(attributes: _Attributes, shapes: _Shapes, values: Sequence[KnownValue]) -> _Shapes | None:
    x = shapes[0]
    scales, sizes = ([*(_ints(v) for v in values[2:4]), None, None])[:2]
    if x is None or attributes.get("keep_aspect_ratio_policy", "stretch") not in ("stretch", b"stretch"):
        return None
    axes = [a % len(x) for a in attributes.get("axes") or range(len(x))]
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


_RULES: dict[str, Callable[[_Attributes, _Shapes, Sequence[KnownValue]], _Shapes | None]] = {
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
