"""Checks attributes against the specification: unknown words, axes beyond the rank, sizes of zero.

See :mod:`eqsat.ops.checks.check`. ONNX's schemas do not know the allowed words, and its inference looks at some axes
only.
"""

from __future__ import annotations

import numpy as np

from eqsat.ops.checks.check import Check, CheckedNode, Mismatch, normal_axis, show
from eqsat.ops.normal_windows import AUTO_PAD

# ---- words ---------------------------------------------------------------------------------------


def words(**allowed: tuple[str, ...]) -> Check:
    """A check that attributes, if given, are among the words allowed."""

    def check(node: CheckedNode) -> None:
        for name, known in allowed.items():
            word = node.attr(name)
            if isinstance(word, str) and word not in known:
                raise Mismatch(f"{name} is {word!r}, not {', '.join(known[:-1])} or {known[-1]}")

    return check


auto_pad = words(auto_pad=AUTO_PAD)
direction = words(direction=("forward", "reverse", "bidirectional"))
scatter_reduction = words(reduction=("none", "add", "mul", "max", "min"))
loss_reduction = words(reduction=("none", "sum", "mean"))


# ---- axes ----------------------------------------------------------------------------------------


def axis(node: CheckedNode) -> None:
    """The attribute ``axis`` is one of the first input."""
    rank, axis = node.rank(0), node.attr("axis")
    if rank is not None and isinstance(axis, int):
        normal_axis(axis, rank)


def listed_axes(position: int, *, of_result: bool = False) -> Check:
    """A check of axes that an input lists: each is within the rank, none is named twice.

    Args:
        position: Position of the input.
        of_result: Whether they are axes of the result, which has one more axis for each.
    """

    def check(node: CheckedNode) -> None:
        rank, axes = node.rank(0), node.value(position)
        if rank is not None and axes is not None:
            _distinct([int(a) for a in np.ravel(axes)], rank + (axes.size if of_result else 0))

    return check


def axes_attribute(node: CheckedNode) -> None:
    """The attribute ``axes`` lists axes of the first input, none twice."""
    rank, axes = node.rank(0), node.attr("axes")
    if rank is not None and isinstance(axes, tuple):
        _distinct([int(a) for a in axes], rank)


def _distinct(axes: list[int], rank: int) -> None:
    counted = [normal_axis(a, rank) for a in axes]
    if len(set(counted)) != len(counted):
        raise Mismatch(f"the axes {axes} name one of the {rank} axes twice")


def reverse_sequence(node: CheckedNode) -> None:
    """Time and batch are the first two axes."""
    time, batch = node.int_attr("time_axis"), node.int_attr("batch_axis", 1)
    if {time, batch} != {0, 1}:
        raise Mismatch(f"time_axis {time} and batch_axis {batch} are not 0 and 1")


# ---- numbers -------------------------------------------------------------------------------------


def positive(*names: str) -> Check:
    """A check that attributes, if given, are positive numbers."""

    def check(node: CheckedNode) -> None:
        for name in names:
            value = node.attr(name)
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(v, int) and v < 1 for v in numbers):
                found = list(numbers) if isinstance(value, tuple) else value
                raise Mismatch(f"{name} is {found}, which is not positive")

    return check


def shared_heads(node: CheckedNode) -> None:
    """Each head of keys and values serves equally many heads of queries."""
    heads, shared = node.int_attr("num_heads", 1), node.int_attr("kv_num_heads", 1)
    if heads % shared:
        raise Mismatch(f"num_heads is {heads}, which kv_num_heads = {shared} does not divide")


def depth_to_space(node: CheckedNode) -> None:
    """Channels make whole blocks."""
    block, channels = node.int_attr("blocksize", 1), node.dim(0, 1)
    if channels is not None and channels % (block * block):
        raise Mismatch(f"{channels} channels do not divide into blocks of {block} x {block}")


def space_to_depth(node: CheckedNode) -> None:
    """Rows and columns make whole blocks."""
    block = node.int_attr("blocksize", 1)
    for axis in (2, 3):
        size = node.dim(0, axis)
        if size is not None and size % block:
            raise Mismatch(f"{size} elements in axis {axis} do not divide into blocks of {block}")


def norm(node: CheckedNode) -> None:
    """Only the 1-norm and the 2-norm are defined."""
    if node.int_attr("p", 2) not in (1, 2):
        raise Mismatch(f"p is {node.int_attr('p', 2)}, not 1 or 2")


def mod(node: CheckedNode) -> None:
    """Floats have the remainder of C only."""
    x = node.inputs[0]
    if x is not None and x.dtype.is_floating_point() and not node.int_attr("fmod"):
        raise Mismatch("fmod must be 1 for floats")


# ---- inputs that are parameters ------------------------------------------------------------------


def slice_(node: CheckedNode) -> None:
    """Starts, ends, axes and steps belong together; no step is 0."""
    sizes = {i: node.dim(i, 0) for i in range(1, 5) if node.dim(i, 0) is not None}
    if len(set(sizes.values())) > 1:
        raise Mismatch(f"starts, ends, axes and steps differ in length: {', '.join(map(str, sizes.values()))}")
    steps = node.value(4)
    if steps is not None and np.any(steps == 0):
        raise Mismatch("a step is 0")


def range_(node: CheckedNode) -> None:
    """The step is not 0."""
    delta = node.value(2)
    if delta is not None and np.any(delta == 0):
        raise Mismatch("the step is 0")


def resize(node: CheckedNode) -> None:
    """Scales and sizes are positive."""
    scales, sizes = node.value(2), node.value(3)
    if scales is not None and np.any(~(scales > 0)):
        raise Mismatch(f"the scales {scales.tolist()} are not all positive")
    if sizes is not None and np.any(sizes < 0):
        raise Mismatch(f"the sizes {sizes.tolist()} are not all positive")


def pad(node: CheckedNode) -> None:
    """Other modes than ``constant`` need something to repeat."""
    pads, axes, shape = node.value(1), node.value(3), node.shape(0)
    if pads is None or shape is None or node.attr("mode", "constant") == "constant" or 2 * len(shape) != pads.size:
        return
    if axes is None and node.shape(3) is None:
        for axis, size in enumerate(shape):
            if size == 0 and (pads[axis] > 0 or pads[axis + len(shape)] > 0):
                raise Mismatch(f"there is nothing to repeat in axis {axis} of {show(shape)}")


def indices_along(node: CheckedNode) -> None:
    """Indices along ``axis`` are within the data."""
    rank, indices = node.rank(0), node.value(1)
    if rank is None or indices is None or not indices.size:
        return
    _within(indices, node.dim(0, normal_axis(node.int_attr("axis"), rank)))


def indices_nd(node: CheckedNode) -> None:
    """Indices of several dimensions are within the data."""
    indices, batch = node.value(1), node.int_attr("batch_dims")
    if indices is not None and indices.size and indices.ndim:
        for k in range(indices.shape[-1]):
            _within(indices[..., k], node.dim(0, batch + k))


def _within(indices: np.ndarray, size: int | None) -> None:
    low, high = int(indices.min()), int(indices.max())
    if size is not None and (low < -size or high >= size):
        raise Mismatch(f"index {low if low < -size else high} is not within {size} elements")
