"""Contradictions in operators that move and combine elements: reshapes, splits, gathers, scatters and their parameters.

See :mod:`eqsat.ops.checks.check`.
"""

from __future__ import annotations

import math

import numpy as np

from eqsat.ops.checks.check import (
    Check,
    CheckedNode,
    Mismatch,
    normal_axis,
    require_broadcast,
    require_rank,
    same,
    show,
)

# ---- inputs that are parameters ------------------------------------------------------------------


def parameters(*, vectors: tuple[int, ...] = (), numbers: tuple[int, ...] = (), either: tuple[int, ...] = ()) -> Check:
    """A check of the shapes of inputs that are parameters.

    Args:
        vectors: Inputs that are one-dimensional.
        numbers: Inputs that are one number.
        either: Inputs that are one number or several.
    """

    def check(node: CheckedNode) -> None:
        for i in vectors:
            require_rank(node, i, 1, what=_input(i))
        for i in either:
            require_rank(node, i, 0, 1, what=_input(i))
        for i in numbers:
            shape = node.shape(i)
            if shape is not None and (len(shape) > 1 or not all(same(d, 1) for d in shape)):
                raise Mismatch(f"{_input(i)} is one number, not of shape {show(shape)}")

    return check


def _input(i: int) -> str:
    return f"input {i + 1}"


# ---- operators -----------------------------------------------------------------------------------


def reshape(node: CheckedNode) -> None:
    """The number of elements stays the same, and a copied dimension exists in the operand."""
    x, y = node.inputs[0], node.outputs[0]
    if x is not None and y is not None and x.is_static and y.is_static and x.elements != y.elements:
        shape = node.value(1)
        wanted = "" if shape is None else f" (shape {shape.tolist()})"
        raise Mismatch(f"{x.elements} elements do not make {show(y.shape or ())}{wanted}")
    shape, dims = node.value(1), node.shape(0)
    if shape is not None and dims is not None and not node.attr("allowzero", 0):
        for i, d in enumerate(np.ravel(shape)):
            if d == 0 and i >= len(dims):
                raise Mismatch(f"the shape copies dimension {i} of an input of rank {len(dims)}")


def split(node: CheckedNode) -> None:
    """Parts add up to the whole, one an output."""
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


def squeeze(node: CheckedNode) -> None:
    """Only dimensions of 1 are removed."""
    axes, rank = node.value(1), node.rank(0)
    if axes is None or rank is None:
        return
    for axis in np.ravel(axes):
        if not same(node.dim(0, normal_axis(int(axis), rank)), 1):
            raise Mismatch(f"dimension {axis} to be squeezed is {node.dim(0, int(axis))}, not 1")


def transpose(node: CheckedNode) -> None:
    """``perm`` is a permutation of the axes."""
    perm, rank = node.attr("perm"), node.rank(0)
    if isinstance(perm, tuple) and rank is not None and sorted(perm) != list(range(rank)):
        raise Mismatch(f"perm {list(perm)} is not a permutation of {rank} axes")


def cumulative(node: CheckedNode) -> None:
    """The axis is one of the data."""
    axis, rank = node.value(1), node.rank(0)
    if axis is not None and rank is not None:
        normal_axis(int(np.ravel(axis)[0]), rank)


def gather(node: CheckedNode) -> None:
    """Indices are within the data."""
    rank, indices = node.rank(0), node.value(1)
    if rank is None:
        return
    size = node.dim(0, normal_axis(node.int_attr("axis"), rank))
    if indices is not None and size is not None and indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < -size or high >= size:
            raise Mismatch(f"index {low if low < -size else high} is not within {size} elements")


def gather_elements(node: CheckedNode) -> None:
    """Indices have the rank of the data and are nowhere longer."""
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


def scatter_elements(node: CheckedNode) -> None:
    """Indices fit the data, updates the indices."""
    gather_elements(node)
    a, b = node.shape(1), node.shape(2)
    if a is not None and b is not None and (len(a) != len(b) or not all(map(same, a, b))):
        raise Mismatch(f"indices {show(a)} and updates {show(b)} differ in shape")


def gather_nd(node: CheckedNode) -> None:
    """Indices do not have more coordinates than the data."""
    rank, last = node.rank(0), node.dim(1, -1)
    if rank is not None and last is not None and node.int_attr("batch_dims") + last > rank:
        raise Mismatch(f"indices of {last} coordinates do not fit data of rank {rank}")


def scatter_nd(node: CheckedNode) -> None:
    """Updates have the shape that indices and data give."""
    data, indices, updates = node.shape(0), node.shape(1), node.shape(2)
    if data is None or indices is None or not indices or not isinstance(indices[-1], int):
        return
    last = indices[-1]
    if last > len(data):
        raise Mismatch(f"indices of {last} coordinates do not fit data of rank {len(data)}")
    expected = (*indices[:-1], *data[last:])
    if updates is not None and (len(updates) != len(expected) or not all(map(same, updates, expected))):
        raise Mismatch(f"updates have the shape {show(updates)}, not {show(expected)}")


def gemm(node: CheckedNode) -> None:
    """C broadcasts to the product."""
    result = node.outputs[0]
    if result is not None:
        require_broadcast(node.shape(2), result.shape, what="C")


def prelu(node: CheckedNode) -> None:
    """The slope broadcasts to the input."""
    require_broadcast(node.shape(1), node.shape(0), what="the slope")


def divide(node: CheckedNode) -> None:
    """Integers are not divided by zero."""
    divisor, dtype = node.value(1), node.inputs[1]
    if divisor is not None and dtype is not None and dtype.dtype.is_integer() and np.any(divisor == 0):
        raise Mismatch("integers cannot be divided by zero")


def matmul_zero_points(node: CheckedNode) -> None:
    """One zero point for all, or one a row or column."""
    for i, operand, axis, what in ((2, 0, -2, "a_zero_point"), (3, 1, -1, "b_zero_point")):
        rank = node.rank(i)
        if rank == 1 and not same(node.dim(i, 0), 1) and not same(node.dim(i, 0), node.dim(operand, axis)):
            raise Mismatch(f"{what} has {node.dim(i, 0)} elements, not {node.dim(operand, axis)}")
