"""Inputs that list a number for each axis, and operands of layers whose sizes must agree.

See :mod:`eqsat.ops.checks.check`. ONNX's inference looks at such inputs only where their values are known, if at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.ops.checks.check import Check, CheckedNode, Mismatch, require_rank, require_vector, same, show
from eqsat.schema.types import Dim


def per_axis(position: int, what: str, *, times: int = 1, may_be_empty: bool = False) -> Check:
    """A check that an input lists a number, or ``times`` numbers, for each axis.

    Args:
        position: Of the input.
        what: Its name, for the message.
        times: Numbers an axis.
        may_be_empty: Whether an input without elements counts as absent.
    """

    def check(node: CheckedNode) -> None:
        count, axes = node.rank(0), node.attr("axes")
        if isinstance(axes, tuple):
            count = len(axes)
        found = node.dim(position, 0)
        if count is None or found is None or (may_be_empty and found == 0) or found == times * count:
            return
        each = {1: "one", 2: "two"}[times]
        raise Mismatch(f"{what} has {found} elements, not {each} for each of {count} axes")

    return check


def _alike(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    """Whether two shapes may be equal."""
    return a is None or b is None or (len(a) == len(b) and all(map(same, a, b)))


def pads(node: CheckedNode) -> None:
    """Two pads for each axis: for all axes, or for those that the fourth input lists."""
    axes = node.dim(3, 0) if node.rank(3) == 1 else None
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        if axes is not None and not same(node.dim(1, 0), 2 * axes):
            raise Mismatch(f"pads has {node.dim(1, 0)} elements, not two for each of {axes} axes")
        return
    per_axis(1, "pads", times=2)(node)


def one_number(position: int, what: str) -> Check:
    """A check that an input is a vector of one element."""
    return lambda node: require_vector(node, position, 1, what=what)


def parts(node: CheckedNode) -> None:
    """The number of parts is that of the outputs, even if their sizes are unknown."""
    if not same(node.dim(1, 0), len(node.outputs)):
        raise Mismatch(f"{node.dim(1, 0)} parts are not {len(node.outputs)} outputs")


def max_unpool(node: CheckedNode) -> None:
    """An index for each element, and a size for each axis of the result."""
    x, indices = node.shape(0), node.shape(1)
    if not _alike(x, indices):
        raise Mismatch(f"the indices have the shape {show(indices or ())}, not {show(x or ())}")
    per_axis(2, "output_shape")(node)


def affine_grid(node: CheckedNode) -> None:
    """One matrix for each image, of two rows for images and of three for volumes."""
    require_rank(node, 0, 3, what="theta")
    axes = node.dim(1, 0)
    if axes is None:
        return
    if axes not in (4, 5):
        raise Mismatch(f"size has {axes} elements, not 4 or 5")
    matrix = (node.dim(0, 1), node.dim(0, 2))
    if not same(matrix[0], axes - 2) or not same(matrix[1], axes - 1):
        raise Mismatch(f"theta has matrices of shape {show(matrix)}, not [{axes - 2}, {axes - 1}]")
    size = node.value(1)
    if size is not None and not same(node.dim(0, 0), int(size[0])):
        raise Mismatch(f"theta has {node.dim(0, 0)} matrices, and size is for {int(size[0])} images")


def columns(node: CheckedNode) -> None:
    """Columns are whole blocks, and as many as blocks fit on the image."""
    require_rank(node, 0, 3, what="the input")
    axes = node.dim(1, 0)
    if not same(axes, node.dim(2, 0)):
        raise Mismatch(f"image_shape has {axes} elements, and block_shape {node.dim(2, 0)}")
    image, block = node.value(1), node.value(2)
    if block is None:
        return
    whole, channels = math.prod(int(b) for b in block), node.dim(0, 1)
    if channels is not None and (not whole or channels % whole):
        raise Mismatch(f"{channels} rows of columns are no blocks of {whole} elements")
    if image is None:
        return
    count = len(block)
    dilations, strides = (_numbers(node, name, count) for name in ("dilations", "strides"))
    around = _numbers(node, "pads", 2 * count, 0)
    steps = [
        (int(image[a]) + around[a] + around[count + a] - dilations[a] * (int(block[a]) - 1) - 1) // strides[a] + 1
        for a in range(count)
    ]
    if not same(node.dim(0, 2), math.prod(steps)):
        raise Mismatch(f"there are {node.dim(0, 2)} columns, and {math.prod(steps)} blocks on the image")


def _numbers(node: CheckedNode, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    value = node.attr(name)
    found = value if isinstance(value, tuple) and value else (default,) * count
    if len(found) != count:
        raise Mismatch(f"{name} has {len(found)} elements, not {count}")
    return tuple(int(v) for v in found if isinstance(v, int))


def deformable_convolution(node: CheckedNode) -> None:
    """Channels of the filters, and an offset for each of their elements and each place of the result."""
    channels, group = node.dim(0, 1), node.int_attr("group", 1)
    per_group = node.dim(1, 1)
    if channels is not None and per_group is not None and channels != per_group * group:
        raise Mismatch(f"X has {channels} channels, and the filters {per_group} for each of {group} groups")
    result = node.outputs[0].shape if node.outputs and node.outputs[0] is not None else None
    kernel = [node.dim(1, axis) for axis in range(2, node.rank(1) or 2)]
    elements = math.prod(k for k in kernel if k is not None) if None not in kernel and kernel else None
    groups = node.int_attr("offset_group", 1)
    for i, what, each in ((2, "offset", len(kernel)), (4, "mask", 1)):
        shape = node.shape(i)
        if shape is None:
            continue
        if not same(node.dim(i, 0), node.dim(0, 0)):
            raise Mismatch(f"{what} is for {node.dim(i, 0)} images, not {node.dim(0, 0)}")
        if elements is not None and not same(node.dim(i, 1), groups * each * elements):
            raise Mismatch(f"{what} has {node.dim(i, 1)} channels, not {groups * each * elements}")
        if result is not None and not all(map(same, shape[2:], result[2:])):
            raise Mismatch(f"{what} is for places {show(shape[2:])}, not {show(result[2:])}")


def suppression(node: CheckedNode) -> None:
    """Four numbers a box, and a score for each box and class."""
    for i, what in ((0, "boxes"), (1, "scores")):
        require_rank(node, i, 3, what=what)
    if not same(node.dim(0, 2), 4):
        raise Mismatch(f"a box has {node.dim(0, 2)} numbers, not 4")
    for a, b, what in ((0, 0, "batches"), (1, 2, "boxes")):
        if not same(node.dim(0, a), node.dim(1, b)):
            raise Mismatch(f"boxes are of {node.dim(0, a)} {what}, scores of {node.dim(1, b)}")


def loss(node: CheckedNode) -> None:
    """A label for each place of the scores, and a weight for each class."""
    scores, labels = node.shape(0), node.shape(1)
    if scores is not None and labels is not None and len(scores) >= 2:
        wanted = (scores[0], *scores[2:])
        if not _alike(labels, wanted):
            raise Mismatch(f"the labels have the shape {show(labels)}, not {show(wanted)}")
    require_vector(node, 2, node.dim(0, 1), what="weights")


def rotary(node: CheckedNode) -> None:
    """Sines for the cosines; with positions the caches are tables, and there is a position for each place."""
    cosines, sines = node.shape(1), node.shape(2)
    if not _alike(cosines, sines):
        raise Mismatch(f"cos_cache has the shape {show(cosines or ())}, and sin_cache {show(sines or ())}")
    positions = node.shape(3)
    rank = node.rank(0)
    if rank is None:
        return
    places = (node.dim(0, 0), node.dim(0, 1 if rank == 3 else 2))
    if positions is not None and not _alike(positions, places):
        raise Mismatch(f"position_ids have the shape {show(positions)}, not {show(places)}")
