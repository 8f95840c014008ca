"""Contradictions that ONNX's shape inference lets pass: what a runtime would only find when it executes the node.

Each check follows the operator's specification and looks at what is known; a symbol or an unknown dimension
contradicts nothing. Here are operators that move and combine elements, :mod:`eqsat.model.checks_nn` has the layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat.errors import ModelError
from eqsat.model.attributes import attr
from eqsat.model.types import Attrs, Dim, OpKey, TensorType


class Mismatch(Exception):
    """What contradicts what, as a sentence without the final stop."""


@dataclass(frozen=True, slots=True)
class Operands:
    """A node as the checks see it; absent inputs are None."""

    op: OpKey
    attrs: Attrs
    inputs: Sequence[TensorType | None]
    values: Sequence[np.ndarray | None]
    outputs: Sequence[TensorType | None]

    def shape(self, i: int) -> tuple[Dim, ...] | None:
        known = self.inputs[i] if i < len(self.inputs) else None
        return None if known is None else known.shape

    def rank(self, i: int) -> int | None:
        shape = self.shape(i)
        return None if shape is None else len(shape)

    def dim(self, i: int, axis: int) -> int | None:
        """The dimension where it is a known number."""
        shape = self.shape(i)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        found = shape[axis]
        return found if isinstance(found, int) else None

    def value(self, i: int) -> np.ndarray | None:
        return self.values[i] if i < len(self.values) else None

    def attr(self, name: str, default: object = None) -> object:
        return attr(self.attrs, name, default)

    def int_attr(self, name: str, default: int = 0) -> int:
        value = attr(self.attrs, name, default)
        return value if isinstance(value, int) else default


Check = Callable[[Operands], None]


def check_types(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: Sequence[TensorType | None],
    place: str,
) -> None:
    """Raises where inputs, attributes and inferred outputs contradict each other.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs, None for an absent one.
        values: Their values where known.
        outputs: Types that inference gave.
        place: For the message.

    Raises:
        ModelError: They do.
    """
    node = Operands(op, attrs, inputs, values, outputs)
    try:
        parameters = _PARAMETERS.get(op.name)
        if parameters is not None and not op.domain:
            _check_parameters(node, *parameters)
        check = _CHECKS.get(op)
        if check is not None:
            check(node)
        for output in outputs:
            if output is not None and any(isinstance(d, int) and d < 0 for d in output.shape or ()):
                raise Mismatch(f"an output would have the shape {output}")
    except Mismatch as mismatch:
        raise contradiction(place, inputs, str(mismatch)) from None


def contradiction(place: str, inputs: Sequence[TensorType | None], why: str) -> ModelError:
    """The error for inputs that do not fit together or not to the attributes."""
    actual = ", ".join("absent" if t is None else str(t) for t in inputs)
    return ModelError("inputs and attributes that fit together are required", place=place, actual=actual, hint=why)


def register_checks(checks: dict[OpKey, Check]) -> None:
    """Adds checks of further operators."""
    _CHECKS.update(checks)


# ---- helpers for checks --------------------------------------------------------------------------


def same(a: Dim | None, b: Dim | None) -> bool:
    """Whether two dimensions may be equal."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def require_rank(node: Operands, i: int, *ranks: int, what: str) -> None:
    """The input's rank is one of those given, where it is known."""
    rank = node.rank(i)
    if rank is not None and rank not in ranks:
        raise Mismatch(f"{what} has rank {rank}, not {' or '.join(map(str, ranks))}")


def require_vector(node: Operands, i: int, length: int | None, *, what: str) -> None:
    """The input, if present, is one-dimensional and of that length."""
    require_rank(node, i, 1, what=what)
    if length is not None and not same(node.dim(i, 0), length):
        raise Mismatch(f"{what} has {node.dim(i, 0)} elements, not {length}")


def require_broadcast(shape: Sequence[Dim] | None, target: Sequence[Dim] | None, *, what: str) -> None:
    """The shape broadcasts to the target without enlarging it."""
    if shape is None or target is None:
        return
    if len(shape) > len(target):
        raise Mismatch(f"{what} of rank {len(shape)} does not broadcast to rank {len(target)}")
    for d, t in zip(reversed(shape), reversed(target), strict=False):
        if d != 1 and not same(d, t):
            raise Mismatch(f"{what} of shape {_show(shape)} does not broadcast to {_show(target)}")


def normal_axis(axis: int, rank: int, *, what: str = "axis") -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise Mismatch(f"{what} {axis} is not within rank {rank}")
    return axis % rank


def _show(shape: Sequence[Dim]) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


# ---- inputs that are parameters ------------------------------------------------------------------

_REDUCE = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
# Operator -> (inputs that are one-dimensional, inputs that are one number, inputs that are one or several).
_PARAMETERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    **{f"Reduce{kind}": ((1,), (), ()) for kind in _REDUCE.split()},
    "CenterCropPad": ((1,), (), ()),
    "Clip": ((), (1, 2), ()),
    "ConstantOfShape": ((0,), (), ()),
    "CumProd": ((), (1,), ()),
    "CumSum": ((), (1,), ()),
    "Expand": ((1,), (), ()),
    "Pad": ((1, 3), (2,), ()),
    "Range": ((), (0, 1, 2), ()),
    "Reshape": ((1,), (), ()),
    "Resize": ((1, 2, 3), (), ()),
    "Slice": ((1, 2, 3, 4), (), ()),
    "Split": ((1,), (), ()),
    "Squeeze": ((), (), (1,)),
    "Tile": ((1,), (), ()),
    "TopK": ((1,), (), ()),
    "Trilu": ((), (1,), ()),
    "Unsqueeze": ((), (), (1,)),
}


def _check_parameters(
    node: Operands, vectors: tuple[int, ...], numbers: tuple[int, ...], either: tuple[int, ...]
) -> None:
    for i in vectors:
        require_rank(node, i, 1, what=_input(i))
    for i in either:
        require_rank(node, i, 0, 1, what=_input(i))
    for i in numbers:
        shape = node.shape(i)
        if shape is not None and (len(shape) > 1 or not all(same(d, 1) for d in shape)):
            raise Mismatch(f"{_input(i)} is one number, not of shape {_show(shape)}")


def _input(i: int) -> str:
    return f"input {i + 1}"


# ---- operators -----------------------------------------------------------------------------------


def _reshape(node: Operands) -> None:
    x, y = node.inputs[0], node.outputs[0]
    if x is not None and y is not None and x.is_static and y.is_static and x.elements != y.elements:
        shape = node.value(1)
        wanted = "" if shape is None else f" (shape {shape.tolist()})"
        raise Mismatch(f"{x.elements} elements do not make {_show(y.shape or ())}{wanted}")
    shape, dims = node.value(1), node.shape(0)
    if shape is not None and dims is not None and not node.attr("allowzero", 0):
        for i, d in enumerate(np.ravel(shape)):
            if d == 0 and i >= len(dims):
                raise Mismatch(f"the shape copies dimension {i} of an input of rank {len(dims)}")


def _split(node: Operands) -> None:
    rank = node.rank(0)
    if rank is None:
        return
    axis = normal_axis(node.int_attr("axis"), rank)
    size, split = node.dim(0, axis), node.value(1)
    if split is not None and size is not None and int(np.sum(split)) != size:
        raise Mismatch(f"parts of {split.tolist()} do not add up to {size}")
    if split is not None and len(np.ravel(split)) != len(node.outputs):
        raise Mismatch(f"{len(np.ravel(split))} parts are not {len(node.outputs)} outputs")
    count = node.int_attr("num_outputs", len(node.outputs))
    if node.shape(1) is None and len(node.inputs) < 2:
        if count != len(node.outputs):
            raise Mismatch(f"num_outputs={count} but there are {len(node.outputs)} outputs")
        if size is not None and count and (count - 1) * math.ceil(size / count) > size:
            raise Mismatch(f"{size} elements do not split into {count} parts of {math.ceil(size / count)}")


def _squeeze(node: Operands) -> None:
    axes, rank = node.value(1), node.rank(0)
    if axes is None or rank is None:
        return
    for axis in np.ravel(axes):
        if not same(node.dim(0, normal_axis(int(axis), rank)), 1):
            raise Mismatch(f"dimension {axis} to be squeezed is {node.dim(0, int(axis))}, not 1")


def _transpose(node: Operands) -> None:
    perm, rank = node.attr("perm"), node.rank(0)
    if isinstance(perm, tuple) and rank is not None and sorted(perm) != list(range(rank)):
        raise Mismatch(f"perm {list(perm)} is no permutation of {rank} axes")


def _cumulative(node: Operands) -> None:
    axis, rank = node.value(1), node.rank(0)
    if axis is not None and rank is not None:
        normal_axis(int(np.ravel(axis)[0]), rank)


def _gather(node: Operands) -> None:
    rank, indices = node.rank(0), node.value(1)
    if rank is None:
        return
    size = node.dim(0, normal_axis(node.int_attr("axis"), rank))
    if indices is not None and size is not None and indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < -size or high >= size:
            raise Mismatch(f"index {low if low < -size else high} is not within {size} elements")


def _gather_elements(node: Operands) -> None:
    rank, indices = node.rank(0), node.rank(1)
    if rank is None or indices is None:
        return
    if rank != indices:
        raise Mismatch(f"the data has rank {rank}, the indices {indices}")
    axis = normal_axis(node.int_attr("axis"), rank)
    for i in range(rank):
        size, wanted = node.dim(0, i), node.dim(1, i)
        if i != axis and size is not None and wanted is not None and wanted > size:
            raise Mismatch(f"the indices are longer than the data in dimension {i}: {wanted} > {size}")


def _scatter_elements(node: Operands) -> None:
    _gather_elements(node)
    a, b = node.shape(1), node.shape(2)
    if a is not None and b is not None and (len(a) != len(b) or not all(map(same, a, b))):
        raise Mismatch(f"indices {_show(a)} and updates {_show(b)} differ in shape")


def _gather_nd(node: Operands) -> None:
    rank, last = node.rank(0), node.dim(1, -1)
    if rank is not None and last is not None and node.int_attr("batch_dims") + last > rank:
        raise Mismatch(f"indices of {last} coordinates do not fit data of rank {rank}")


def _scatter_nd(node: Operands) -> None:
    data, indices, updates = node.shape(0), node.shape(1), node.shape(2)
    if data is None or indices is None or not indices or not isinstance(indices[-1], int):
        return
    last = indices[-1]
    if last > len(data):
        raise Mismatch(f"indices of {last} coordinates do not fit data of rank {len(data)}")
    expected = (*indices[:-1], *data[last:])
    if updates is not None and (len(updates) != len(expected) or not all(map(same, updates, expected))):
        raise Mismatch(f"updates have the shape {_show(updates)}, not {_show(expected)}")


def _gemm(node: Operands) -> None:
    result = node.outputs[0]
    if result is not None:
        require_broadcast(node.shape(2), result.shape, what="C")


def _prelu(node: Operands) -> None:
    require_broadcast(node.shape(1), node.shape(0), what="the slope")


def _pad(node: Operands) -> None:
    pads, rank = node.value(1), node.rank(0)
    if pads is None or rank is None:
        return
    axes = node.value(3)
    count = rank if axes is None else axes.size
    if (node.shape(3) is None or axes is not None) and pads.size != 2 * count:
        raise Mismatch(f"{pads.size} pads are not two for each of {count} axes")


def _matmul_zero_points(node: Operands) -> None:
    for i, operand, axis, what in ((2, 0, -2, "a_zero_point"), (3, 1, -1, "b_zero_point")):
        rank = node.rank(i)
        if rank == 1 and not same(node.dim(i, 0), 1) and not same(node.dim(i, 0), node.dim(operand, axis)):
            raise Mismatch(f"{what} has {node.dim(i, 0)} elements, not {node.dim(operand, axis)}")


_CHECKS: dict[OpKey, Check] = {
    OpKey("", "CumProd"): _cumulative,
    OpKey("", "CumSum"): _cumulative,
    OpKey("", "Gather"): _gather,
    OpKey("", "GatherElements"): _gather_elements,
    OpKey("", "GatherND"): _gather_nd,
    OpKey("", "Gemm"): _gemm,
    OpKey("", "MatMulInteger"): _matmul_zero_points,
    OpKey("", "PRelu"): _prelu,
    OpKey("", "Pad"): _pad,
    OpKey("", "Reshape"): _reshape,
    OpKey("", "ScatterElements"): _scatter_elements,
    OpKey("", "ScatterND"): _scatter_nd,
    OpKey("", "Split"): _split,
    OpKey("", "Squeeze"): _squeeze,
    OpKey("", "Transpose"): _transpose,
}
