"""Arithmetic of shapes: tensors of integers that depend on nothing but free sizes, computed when C is generated.

``Shape`` of a tensor with free sizes is an array of :class:`~eqsat.schema.size.Size`, and what operators make of it is
one again: a model that computes the shape for a ``Reshape`` needs no code for that. Where such an array is data, a
kernel writes its elements (:mod:`eqsat.codegen.kernels.loops.size_tensors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.model.inference.sized_shapes import slice_start
from eqsat.schema.size import Size, Undecided, bounds
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.types import KnownValue, OpKey


def is_sizes(operand: object) -> bool:
    """Whether an operand is an array in which some elements are free sizes."""
    return (
        isinstance(operand, np.ndarray)
        and operand.dtype == object
        and any(isinstance(x, Size) for x in operand.reshape(-1))
    )


def depends_on_inputs(operand: ProgramOperand | None) -> bool:
    """Whether an operand is a tensor or has free sizes; others are constants."""
    return isinstance(operand, ProgramTensor) or is_sizes(operand)


def computed(op: OpKey, attributes: Mapping[str, Any], operands: Sequence[ProgramOperand | None]) -> np.ndarray | None:
    """The result of an operator on shapes; None if it is not a shape or depends on data.

    Args:
        op: The operator.
        attributes: All of them, defaults filled in.
        operands: Tensors, constants and arrays of sizes.

    Returns:
        An array of objects, or of numbers where no element is a free size.
    """
    if op.domain or not operands:
        return None
    first = operands[0]
    if first is not None and op.name == "Shape":
        return _array(list(first.shape)[attributes.get("start", 0) : attributes.get("end")])
    if first is not None and op.name == "Size":
        return _array(np.prod(np.array(first.shape, object)))
    rule = _RULES.get(op.name)
    if rule is None or not any(map(is_sizes, operands)) or any(isinstance(x, ProgramTensor) for x in operands):
        return None
    try:
        found = rule(attributes, *(x for x in operands if not isinstance(x, ProgramTensor)))
    except Undecided:
        return None
    return None if found is None else _array(found)


def elements(array: np.ndarray) -> list[int]:
    """Numbers and free sizes, row by row."""
    return [x if isinstance(x, Size) else int(x) for x in array.reshape(-1)]


def _array(values: Any) -> np.ndarray:
    found = np.array(values, object)
    if isinstance(values, np.ndarray) and values.dtype == bool:
        return values
    return found if is_sizes(found) else found.astype(np.int64)


def _ints(value: KnownValue) -> list[int] | None:
    return None if value is None else [int(x) for x in value.reshape(-1)]


def _present(value: KnownValue) -> np.ndarray:
    assert value is not None
    return value


def _gather(attributes: Mapping[str, Any], x: KnownValue, index: KnownValue) -> Any:
    return np.take(_present(x), _present(index).astype(np.int64), axis=attributes.get("axis", 0))


def _concat(attributes: Mapping[str, Any], *parts: KnownValue) -> Any:
    return np.concatenate([_present(p).astype(object) for p in parts], axis=attributes["axis"])


def _slice(attributes: Mapping[str, Any], x: KnownValue, *bounds: KnownValue) -> Any:
    starts, ends, axes, steps = ([_ints(b) for b in bounds] + [None] * 4)[:4]
    taken = [slice(None)] * _present(x).ndim
    for k, axis in enumerate(axes if axes is not None else range(len(starts or ()))):
        assert starts is not None and ends is not None
        step = steps[k] if steps is not None else 1
        if step < 1:
            return None
        taken[axis] = slice(starts[k], ends[k], step)
    return _present(x)[tuple(taken)]


def _unsqueeze(attributes: Mapping[str, Any], x: KnownValue, axes: KnownValue = None) -> Any:
    return np.expand_dims(_present(x), tuple(_ints(axes) or attributes.get("axes") or ()))


def _squeeze(attributes: Mapping[str, Any], x: KnownValue, axes: KnownValue = None) -> Any:
    named = _ints(axes) or attributes.get("axes")
    return np.squeeze(_present(x), None if named is None else tuple(named))


def _reshape(attributes: Mapping[str, Any], x: KnownValue, shape: KnownValue) -> Any:
    found = _present(x)
    wanted = [found.shape[i] if n == 0 else n for i, n in enumerate(_ints(shape) or ())]
    return found.reshape(wanted)


def _cast(attributes: Mapping[str, Any], x: KnownValue) -> Any:
    return x if attributes["to"] == ir.DataType.INT64 else None


def _divide(a: int, b: int) -> int:
    """Division of ONNX, which rounds to zero."""
    if a >= 0 and b > 0:
        return a // b
    raise Undecided("a quotient of negative sizes")


def _where(attributes: Mapping[str, Any], condition: KnownValue, a: KnownValue, b: KnownValue) -> Any:
    return np.where(_present(condition).astype(bool), _present(a).astype(object), _present(b).astype(object))


def _equal(attributes: Mapping[str, Any], a: KnownValue, b: KnownValue) -> Any:
    """Whether elements are equal for all sizes, or for none."""
    x, y = np.broadcast_arrays(_present(a).astype(object), _present(b).astype(object))
    return np.array([_decided(p, q) for p, q in zip(x.ravel(), y.ravel(), strict=True)], bool).reshape(x.shape)


def _decided(a: int, b: int) -> bool:
    return a == b or not (a < b or a > b)


def _reduce_prod(attributes: Mapping[str, Any], x: KnownValue, axes: KnownValue = None) -> Any:
    named = _ints(axes)
    return np.prod(_present(x), axis=None if named is None else tuple(named), keepdims=bool(attributes["keepdims"]))


def _reduced(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A reduction of all elements of a vector."""

    def rule(attributes: Mapping[str, Any], x: KnownValue, axes: KnownValue = None) -> Any:
        values = _present(x)
        if values.ndim != 1 or not values.size or (axes is None and attributes.get("noop_with_empty_axes")):
            return None
        total = values[0]
        for value in values[1:]:
            total = function(total, value)
        return np.array([total] if attributes["keepdims"] else total, object)

    return rule


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two elements, of operators with any number of operands from left to right."""
    ufunc = np.frompyfunc(function, 2, 1)
    return lambda attributes, *operands: reduce(ufunc, (_present(x).astype(object) for x in operands))


_RULES: dict[str, Callable[..., Any]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _elementwise(_divide),
    "Equal": _equal,
    "Gather": _gather,
    "Identity": lambda attributes, x: x,
    "Max": _elementwise(largest),
    "Min": _elementwise(smallest),
    "Mod": _elementwise(lambda a, b: a % b),
    "Mul": _elementwise(lambda a, b: a * b),
    "ReduceMax": _reduced(largest),
    "ReduceMin": _reduced(smallest),
    "ReduceProd": _reduce_prod,
    "ReduceSum": _reduced(lambda a, b: a + b),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _elementwise(lambda a, b: a - b),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}


def result_shape(op: OpKey, operands: Sequence[ProgramOperand | None]) -> tuple[int, ...] | None:
    """The shape of a result that an operand gives in sizes, None if it does not.

    Raises:
        Undecided: It depends on comparisons of sizes.
    """
    if op.domain or op.name not in ("Reshape", "Expand", "ConstantOfShape", "Slice"):
        return None
    x, shape = operands[0], operands[-1]
    if op.name == "Slice":
        return _sliced(operands)
    if not isinstance(shape, np.ndarray):
        return None
    wanted = elements(shape)
    if op.name == "ConstantOfShape":
        return tuple(wanted)
    assert x is not None
    if op.name == "Expand":
        longer = max(len(wanted), len(x.shape))
        given = (1,) * (longer - len(x.shape)) + tuple(x.shape)
        asked = [1] * (longer - len(wanted)) + wanted
        # If the operand has more than one index, the other size is equal or 1.
        return tuple(n if m == 1 or n == m or bounds(n)[0] > 1 else m for m, n in zip(asked, given, strict=True))
    known = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    if -1 in known:
        rest = 1
        for n in known:
            rest = rest * n if n != -1 else rest
        total = 1
        for n in x.shape:
            total = total * n
        known[known.index(-1)] = total // rest
    return tuple(known)


def result_shapes(
    op: OpKey, attributes: Mapping[str, Any], operands: Sequence[ProgramOperand | None], count: int
) -> list[tuple[int, ...]] | None:
    """The shapes of all results that an operand gives in sizes, None if it does not.

    Raises:
        Undecided: They depend on comparisons of sizes.
    """
    if op == _CONCAT:
        return _joined(attributes, operands)
    rule = _SHAPES.get(op.name)
    if op.domain or rule is None:
        found = result_shape(op, operands)
        return None if found is None else [found]
    given = [elements(x) if isinstance(x, np.ndarray) and x.dtype.kind in "iO" else None for x in operands]
    first = operands[0]
    assert first is not None
    if any(isinstance(x, ProgramTensor) for x in operands[3:]):
        return None  # Data says which axes are padded.
    shapes = rule(attributes, tuple(first.shape), given)
    return None if shapes is None else list(shapes)[:count]


def _joined(attributes: Mapping[str, Any], operands: Sequence[ProgramOperand | None]) -> list[tuple[int, ...]]:
    """The shape of a concatenation; the other axes have the sizes of the first operand."""
    shapes = [x.shape for x in operands if x is not None]
    axis = attributes["axis"] % len(shapes[0])
    total = 0
    for shape in shapes:
        total = total + shape[axis]
    return [_at_axis(shapes[0], axis, total)]


_CONCAT = OpKey("", "Concat")
_Shapes = Sequence[tuple[int, ...]]
_Given = Sequence[list[int] | None]


def _at_axis(shape: Sequence[int], axis: int, n: int) -> tuple[int, ...]:
    axis %= len(shape)
    return (*shape[:axis], n, *shape[axis + 1 :])


def _top_k(attributes: Mapping[str, Any], x: tuple[int, ...], given: _Given) -> _Shapes | None:
    if given[1] is None:
        return None
    shape = _at_axis(x, attributes["axis"], given[1][0])
    return [shape, shape]


def _tile(attributes: Mapping[str, Any], x: tuple[int, ...], given: _Given) -> _Shapes | None:
    return None if given[1] is None else [tuple(n * k for n, k in zip(x, given[1], strict=True))]


def _split(attributes: Mapping[str, Any], x: tuple[int, ...], given: _Given) -> _Shapes | None:
    return None if given[1] is None else [_at_axis(x, attributes["axis"], n) for n in given[1]]


def _one_hot(attributes: Mapping[str, Any], x: tuple[int, ...], given: _Given) -> _Shapes | None:
    if given[1] is None:
        return None
    axis = attributes["axis"] % (len(x) + 1)
    return [(*x[:axis], given[1][0], *x[axis:])]


def _pad(attributes: Mapping[str, Any], x: tuple[int, ...], given: _Given) -> _Shapes | None:
    widths, axes = given[1], given[3] if len(given) > 3 and given[3] is not None else list(range(len(x)))
    if widths is None:
        return None
    shape = list(x)
    for k, axis in enumerate(axes):
        shape[axis] = shape[axis] + widths[k] + widths[k + len(axes)]
    return [tuple(shape)]


_SHAPES: dict[str, Callable[[Mapping[str, Any], tuple[int, ...], _Given], _Shapes | None]] = {
    "OneHot": _one_hot,
    "Pad": _pad,
    "Split": _split,
    "Tile": _tile,
    "TopK": _top_k,
}


def _sliced(operands: Sequence[ProgramOperand | None]) -> tuple[int, ...] | None:
    """The shape of a slice; None if data decides its begin, end or step."""
    x, *bounds = operands
    if x is None or any(isinstance(b, ProgramTensor) for b in bounds):
        return None
    starts, ends, axes, steps = ([elements(b) if isinstance(b, np.ndarray) else None for b in bounds] + [None] * 2)[:4]
    if starts is None or ends is None:
        return None
    shape = list(x.shape)
    taken = zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts), strict=True)
    for start, end, axis, step in taken:
        n = shape[axis]
        first, stop = slice_start(start, step, n), end + n if end < 0 else end
        way = smallest(stop, n) - first if step > 0 else first - largest(smallest(stop, n), -1)
        count = (largest(way, 0) + abs(step) - 1) // abs(step)
        shape[axis] = count if step > 0 else smallest(count, n)
    return tuple(shape)
