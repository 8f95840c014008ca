"""Values that follow from shapes: the results of ``Shape`` and of the arithmetic after it.

Exporters spell ``reshape to (N, -1)`` as Shape, Gather, Unsqueeze, Concat, Reshape; inference must follow such chains
to know the result's shape. A value is an array: of the operator's element type where all of its elements are numbers,
otherwise of objects (:mod:`eqsat.model.inference.size_elements`), each followed by itself. Only small tensors are
followed; an unknown element is None.

Operators that move elements are executed on the elements' numbers, by the kernels that execute the model: they treat
sizes like any other elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.model.inference import size_elements
from eqsat.model.inference.size_elements import SizeElement, checked, computed, depends_on_sizes
from eqsat.ops.evaluate import constant_value, evaluate, try_need
from eqsat.ops.needs import is_parametric
from eqsat.ops.operators import has, operator
from eqsat.ops.schemas import defaults
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import attr
from eqsat.schema.dimension import dimension
from eqsat.schema.size import Size
from eqsat.schema.types import Attrs, KnownValue, OpKey, TensorType

_LIMIT = 256
FOLLOWED = (
    ir.DataType.INT64,
    ir.DataType.INT32,
    ir.DataType.BOOL,
    ir.DataType.FLOAT,
    ir.DataType.DOUBLE,
)
"""Element types of values that are followed; floats are a detour of sizes that are scaled."""


def propagate(
    op: OpKey,
    attrs: Attrs,
    types: Sequence[TensorType | None],
    values: Sequence[KnownValue],
    outputs: Sequence[TensorType | None],
) -> tuple[KnownValue, ...]:
    """Values of a node's outputs if they follow from its inputs' shapes and values, otherwise None.

    Args:
        op: The operator.
        attrs: Its attributes.
        types: Types of its inputs, None for an absent one.
        values: Values of its inputs where known.
        outputs: Types of its outputs.
    """
    unknown = (None,) * len(outputs)
    if op.domain or not outputs:
        return unknown
    if op.name == "Constant":
        return (constant_value(attrs),)
    if has(op, Trait.BY_TYPE):
        known = types[0]
        dims = None if known is None else dimensions(known)
        return unknown if dims is None else (settled(_short(sizes_of_shape(op.name, attrs, dims)), ir.DataType.INT64),)
    if not has(op, Trait.SIZES) or outputs[0] is None or outputs[0].dtype not in FOLLOWED:
        return unknown
    given = [None if t is None else _operand(v, t) for v, t in zip(values, types, strict=True)]
    present = [v for v, t in zip(given, types, strict=True) if t is not None]
    if any(v is None or v.size > _LIMIT for v in present) or all(v is None for v in values):
        return unknown
    try:
        if any(v is not None and v.dtype == object for v in given):
            found = of_sizes(op, attrs, given, outputs)
        else:
            found = _of_numbers(op, attrs, given, len(outputs))
    except EqsatError:  # the checks report it with a place
        return unknown
    return tuple(
        None if x is None or t is None or x.size > _LIMIT else settled(_short(x), t.dtype)
        for x, t in zip([*found, *unknown], outputs, strict=False)
    )


def content_key(value: np.ndarray | None) -> Hashable:
    """A key that is the same for equal values only."""
    if value is None:
        return None
    if value.dtype != object:
        return value.dtype, value.shape, value.tobytes()
    return value.shape, tuple((type(x), x) for x in value.reshape(-1).tolist())


def dimensions(known: TensorType) -> list[SizeElement] | None:
    """The dimensions of a type as elements of its shape; None if the rank is unknown."""
    return None if known.shape is None else [d if isinstance(d, int) else dimension(d) for d in known.shape]


def elements(value: np.ndarray) -> list[SizeElement]:
    """The elements of a value, row by row."""
    return value.reshape(-1).tolist()


def _operand(value: KnownValue, kind: TensorType) -> KnownValue:
    """The value, or if it is unknown an array of unknown elements of its shape."""
    if value is not None or kind.elements is None or kind.elements > _LIMIT or kind.dtype not in FOLLOWED:
        return value
    return np.full([d for d in kind.shape or () if isinstance(d, int)], None, object)


def _short(value: np.ndarray) -> np.ndarray:
    """The value without elements whose expressions are too long."""
    return _array([*map(checked, elements(value))], value.shape) if value.dtype == object else value


def settled(value: np.ndarray, dtype: ir.DataType) -> KnownValue:
    """A value of an element type in the form described above; None if no element is known."""
    if value.dtype == object:
        if dtype.is_integer():
            value = _array([None if _wraps(x, dtype) else x for x in elements(value)], value.shape)
        flat = elements(value)
        if value.size and all(x is None for x in flat):
            return None
        if any(x is None or depends_on_sizes(x) for x in flat):
            return value
    return value.astype(dtype.numpy())


def _wraps(element: SizeElement, dtype: ir.DataType) -> bool:
    """Whether an integer type cannot hold an element, or not even the small values of a free size."""
    held = np.iinfo(dtype.numpy())
    if isinstance(element, Size):
        return 2 * sum(map(abs, element.terms.values())) > held.max
    return isinstance(element, int) and not held.min <= element <= held.max


def _array(flat: Sequence[SizeElement], shape: Sequence[int]) -> np.ndarray:
    """An array of objects; numpy would take sizes for sequences, or convert them."""
    found = np.empty(len(flat), object)
    for i, x in enumerate(flat):
        found[i] = x
    return found.reshape(tuple(shape))


def sizes_of_shape(name: str, attrs: Attrs, dims: Sequence[SizeElement]) -> np.ndarray:
    """The result of ``Shape`` or ``Size``."""
    if name == "Shape":
        dims = dims[slice(attr(attrs, "start", 0), attr(attrs, "end"))]
        return _array(dims, (len(dims),))
    return _array([_total(size_elements.OPERATORS["Mul"], [1, *dims])], ())


def _of_numbers(op: OpKey, attrs: Attrs, values: Sequence[KnownValue], outputs: int) -> Sequence[KnownValue]:
    complete = {**defaults(op), **dict(attrs)}
    need = try_need(op, complete, values) if is_parametric(op) else None
    if need is not None and need.elements > _LIMIT:
        return ()
    divisor = values[1] if has(op, Trait.DIVIDES) else None
    if divisor is not None and divisor.dtype.kind in "iu" and not np.all(divisor):
        return ()  # The standard does not define it.
    return evaluate(op, attrs, values, outputs)


# ---- sizes -------------------------------------------------------------------------------------------


def of_sizes(
    op: OpKey,
    attrs: Attrs,
    values: Sequence[KnownValue],
    outputs: Sequence[TensorType | None],
) -> Sequence[KnownValue]:
    """The results of an operator whose operands include free sizes; unknown results are None.

    Args:
        op: The operator.
        attrs: Its attributes.
        values: Values of its inputs, None for an absent one.
        outputs: Types of its outputs.

    Raises:
        ExecutionError: The operands do not fit together.
    """
    name, complete = op.name, {**defaults(op), **dict(attrs)}
    selects = operator(op).selects
    if selects is not None and not has(op, Trait.SELECTS):  # Its elements are moved: none are compared.
        return _moved(op, selects.sources(len(values)), attrs, complete, values, len(outputs))
    if name in _REDUCING:
        return [_reduced(name, complete, values)]
    if name == "Range":
        return [_range(values)]
    if name == "CumSum":
        return [_running_sum(complete, values)]
    if not has(op, Trait.ELEMENTWISE):
        return ()
    operands = [v for v in values if v is not None] if name not in _KEEPS_ABSENT else list(values)
    if name == "CastLike":
        like = outputs[0]
        name, complete, operands = "Cast", {"to": like.dtype if like is not None else 0}, operands[:1]
    folded = {"Sum": "Add"}.get(name, name)
    rule = size_elements.operator(folded, complete)
    if rule is None:
        rule = _unknown
    if folded in _OF_TWO and len(operands) != 2:
        total = operands[0]
        for other in operands[1:]:
            total = _short(_elementwise(OpKey("", folded), (), rule, [total, other], outputs))
        return [total]
    return [_elementwise(OpKey("", folded), attrs if folded == op.name else (), rule, operands, outputs)]


_KEEPS_ABSENT = frozenset({"Clip"})
_OF_TWO = frozenset({"Add", "Max", "Min"})


def _unknown(*_: SizeElement) -> SizeElement:
    return None


def _moved(
    op: OpKey,
    data: Sequence[int],
    attrs: Attrs,
    complete: Mapping[str, Any],
    values: Sequence[KnownValue],
    outputs: int,
) -> Sequence[KnownValue]:
    """The operator executed on numbers that represent the elements of ``data``; 0 represents what it fills in."""
    if complete.get("reduction", "none") not in ("none", b"none") or complete.get("mode", "constant") != "constant":
        return ()
    known: list[SizeElement] = [0]
    operands: list[KnownValue] = []
    for i, value in enumerate(values):
        if value is None or i not in data:
            if value is not None and value.dtype == object:
                return ()
            operands.append(value)
            continue
        operands.append(np.arange(len(known), len(known) + value.size).reshape(value.shape))
        known += elements(value)
    need = try_need(op, complete, operands) if is_parametric(op) else None
    if need is not None and need.elements > _LIMIT:
        return ()
    found = evaluate(op, attrs, operands, outputs)
    return [None if x is None else _array([known[i] for i in x.reshape(-1).tolist()], x.shape) for x in found]


def _elementwise(
    op: OpKey,
    attrs: Attrs,
    rule: Callable[..., SizeElement],
    operands: Sequence[KnownValue],
    outputs: Sequence[TensorType | None],
) -> np.ndarray:
    shape = np.broadcast_shapes(*(v.shape for v in operands if v is not None))
    rows = zip(*(elements(np.broadcast_to(np.array(None) if v is None else v, shape)) for v in operands), strict=True)
    partial = op.name in size_elements.KNOWS_MORE
    flat: list[SizeElement] = []
    for row in rows:
        given = [x for x, v in zip(row, operands, strict=True) if v is not None]
        if any(x is None for x in given) and not partial:
            flat.append(None)
        elif any(x is None or depends_on_sizes(x) for x in given):
            flat.append(computed(rule, *row, partial=True))
        else:
            flat.append(_of_row(op, attrs, row, operands, outputs[0]))
    return _array(flat, shape)


def _of_row(
    op: OpKey, attrs: Attrs, row: Sequence[SizeElement], operands: Sequence[KnownValue], output: TensorType | None
) -> SizeElement:
    """The result of numbers, computed as the operator computes it."""
    single = any(v is not None and v.dtype == np.float32 for v in operands)
    single |= output is not None and output.dtype == ir.DataType.FLOAT
    dtypes = [None if v is None else _dtype(v, x, single) for v, x in zip(operands, row, strict=True)]
    given = [None if d is None else np.asarray(x, d) for x, d in zip(row, dtypes, strict=True)]
    if has(op, Trait.DIVIDES) and given[1] is not None and given[1].dtype.kind in "iu" and not given[1]:
        return None
    found = evaluate(op, attrs, given)[0]
    return None if found is None else found.item()


def _dtype(value: np.ndarray, element: SizeElement, single: bool) -> np.dtype:
    if value.dtype != object:
        return value.dtype
    if isinstance(element, float):
        return np.dtype(np.float32 if single else np.float64)
    return np.dtype(bool if isinstance(element, bool) else np.int64)


def _total(rule: Callable[..., SizeElement], row: Sequence[SizeElement]) -> SizeElement:
    """Elements combined from left to right; None if an expression grows too long on the way."""
    return functools.reduce(lambda total, element: checked(computed(rule, total, element)), row)


_REDUCING = {"ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Mul", "ReduceSum": "Add"}


def _reduced(name: str, complete: Mapping[str, Any], values: Sequence[KnownValue]) -> KnownValue:
    x, axes = values[0], values[1] if len(values) > 1 else None
    if x is None or not x.size or (axes is not None and axes.dtype == object):
        return None
    chosen = () if axes is None else tuple(int(a) % max(x.ndim, 1) for a in axes)
    if not chosen and complete.get("noop_with_empty_axes"):
        return x
    chosen = chosen or tuple(range(x.ndim))
    rule = size_elements.OPERATORS[_REDUCING[name]]
    kept = [a for a in range(x.ndim) if a not in chosen]
    rows = np.transpose(x, [*kept, *chosen]).reshape(*(x.shape[a] for a in kept), -1)
    flat = [_total(rule, row.tolist()) for row in rows.reshape(-1, rows.shape[-1])]
    shape = (
        [1 if a in chosen else n for a, n in enumerate(x.shape)] if complete["keepdims"] else [x.shape[a] for a in kept]
    )
    return _array(flat, shape)


def _range(values: Sequence[KnownValue]) -> KnownValue:
    start, limit, step = (None if v is None else v.item() for v in values)
    count = number_of_steps(start, limit, step)
    if not isinstance(count, int) or isinstance(count, Size) or count > _LIMIT:
        return None
    add, multiply = size_elements.OPERATORS["Add"], size_elements.OPERATORS["Mul"]
    return _array([computed(add, start, computed(multiply, step, i)) for i in range(count)], (count,))


def number_of_steps(start: SizeElement, limit: SizeElement, step: SizeElement) -> SizeElement:
    """The number of elements of a ``Range``; None if it is unknown."""
    divide, subtract, most = (size_elements.OPERATORS[name] for name in ("Div", "Sub", "Max"))
    way = computed(subtract, limit, start)
    if isinstance(step, int) and not isinstance(step, Size):
        if step < 0:
            way, step = computed(size_elements.OPERATORS["Neg"], way), -step
        way = computed(most, way, 0)
        return computed(divide, computed(size_elements.OPERATORS["Add"], way, step - 1), step)
    if isinstance(step, float) and step == 1.0:
        found = computed(most, computed(size_elements.OPERATORS["Ceil"], way), 0.0)
        return computed(lambda a: size_elements.cast(a, ir.DataType.INT64), found)
    return None


def _running_sum(complete: Mapping[str, Any], values: Sequence[KnownValue]) -> KnownValue:
    x = values[0]
    if x is None or x.ndim != 1 or complete.get("exclusive") or complete.get("reverse"):
        return None
    add = size_elements.OPERATORS["Add"]
    total, flat = 0, []
    for element in elements(x):
        total = checked(computed(add, total, element))
        flat.append(total)
    return _array(flat, x.shape)
