"""Contradictions in layers: convolutions, pools, normalisations, recurrent layers and quantized operators.

See :mod:`eqsat.ops.checks.check`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.ops.checks.check import (
    Check,
    CheckedNode,
    Mismatch,
    normal_axis,
    require_broadcast,
    require_rank,
    require_vector,
    same,
)
from eqsat.ops.windows import windows


def _convolution(node: CheckedNode, x: int = 0, w: int = 1, bias: int | None = None, transposed: bool = False) -> None:
    rank = node.rank(x)
    if rank is not None and rank < 3:
        raise Mismatch(f"the input has rank {rank}: batch, channels and at least one spatial dimension are needed")
    if rank is not None:
        require_rank(node, w, rank, what="the weight")
    groups = node.int_attr("group", 1)
    channels = node.dim(x, 1)
    if groups < 1:
        raise Mismatch(f"group is {groups}")
    if transposed:
        if not same(channels, node.dim(w, 0)):
            raise Mismatch(f"the input has {channels} channels, the weight takes {node.dim(w, 0)}")
        if channels is not None and channels % groups:
            raise Mismatch(f"{channels} channels do not divide into {groups} groups")
        per_group = node.dim(w, 1)
        filters = None if per_group is None else per_group * groups
        _output_shape(node)
    else:
        per_group, filters = node.dim(w, 1), node.dim(w, 0)
        if per_group is not None and not same(channels, per_group * groups):
            raise Mismatch(
                f"the input has {channels} channels, the weight takes {per_group * groups}"
                + (f" ({groups} groups of {per_group})" if groups > 1 else "")
            )
        if filters is not None and filters % groups:
            raise Mismatch(f"{filters} filters do not divide into {groups} groups")
    kernel = node.attr("kernel_shape")
    if isinstance(kernel, tuple):
        for i, k in enumerate(kernel):
            if not same(node.dim(w, 2 + i), k):
                raise Mismatch(
                    f"kernel_shape is {list(kernel)}, the weight's kernel is {node.dim(w, 2 + i)} in axis {i}"
                )
    if bias is not None:
        require_vector(node, bias, filters, what="the bias")
    spatial_outputs(node, x)
    if not transposed:
        _windows_fit(node, x, None if (weight := node.shape(w)) is None else weight[2:])


def convolution(*, transposed: bool = False) -> Check:
    """A check of a convolution with a weight as input 1 and a bias as input 2."""
    return lambda node: _convolution(node, bias=2, transposed=transposed)


def _output_shape(node: CheckedNode) -> None:
    """An output_shape can only be smaller than the size that strides and kernel give: the rest is padding."""
    wanted, shape, kernel = node.attr("output_shape"), node.shape(0), node.shape(1)
    if not isinstance(wanted, tuple) or shape is None or kernel is None or len(kernel) != len(shape):
        return
    rank = len(shape) - 2
    strides, dilations, extra = (_window(node, name, default, rank) for name, default in _WINDOW)
    for i, (d, k, out) in enumerate(zip(shape[2:], kernel[2:], wanted[-rank:], strict=False)):
        if isinstance(d, int) and isinstance(k, int):
            # Up to stride - 1 further elements are output padding.
            largest = strides[i] * d + (k - 1) * dilations[i] + (extra[i] if extra[i] >= strides[i] else 0)
            if out > largest:
                raise Mismatch(f"output_shape {list(wanted)} is larger than the {largest} elements in axis {i}")


def _window(node: CheckedNode, name: str, default: int, rank: int) -> tuple[int, ...]:
    value = node.attr(name)
    return tuple(int(v) for v in value) if isinstance(value, tuple) and value else (default,) * rank


_WINDOW = (("strides", 1), ("dilations", 1), ("output_padding", 0))


def spatial_outputs(node: CheckedNode, x: int = 0) -> None:
    """A window that is larger than the padded input leaves no output."""
    output, shape = node.outputs[0], node.shape(x)
    if output is None or output.shape is None or shape is None:
        return
    for size, result in zip(shape[2:], output.shape[2:], strict=False):
        if isinstance(result, int) and result < 1 and isinstance(size, int) and size > 0:
            raise Mismatch(f"the window is larger than the padded input of {size}")


def pool(node: CheckedNode) -> None:
    """A pool has at least one window."""
    spatial_outputs(node)
    kernel = node.attr("kernel_shape")
    _windows_fit(node, 0, kernel if isinstance(kernel, tuple) else None)


def _windows_fit(node: CheckedNode, x: int, kernel: Sequence[object] | None) -> None:
    """ONNX's inference divides towards zero, and so finds one window where the first does not fit."""
    shape = node.shape(x)
    sizes = [d for d in (shape or ())[2:] if isinstance(d, int)]
    extents = [k for k in kernel or () if isinstance(k, int)]
    if shape is None or kernel is None or not len(sizes) == len(shape) - 2 == len(extents) == len(kernel):
        return
    try:
        windows(dict(node.attrs), sizes, extents, ceil=bool(node.int_attr("ceil_mode")))
    except ValueError as error:
        raise Mismatch(str(error)) from None


def conv_integer(node: CheckedNode) -> None:
    """The checks of a convolution, with zero points."""
    _convolution(node)
    _number(node, 2, "x_zero_point")
    _per_filter(node, 3, node.dim(1, 0), "w_zero_point")


def qlinear_conv(node: CheckedNode) -> None:
    """The checks of a convolution, with scales and zero points."""
    _convolution(node, 0, 3, 8)
    for i, name in ((1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")):
        _number(node, i, name)
    filters = node.dim(3, 0)
    _per_filter(node, 4, filters, "w_scale")
    _per_filter(node, 5, filters, "w_zero_point")


def _number(node: CheckedNode, i: int, what: str) -> None:
    shape = node.shape(i)
    if shape is not None and (len(shape) > 1 or not all(same(d, 1) for d in shape)):
        raise Mismatch(f"{what} is one number, not of rank {len(shape)} with {node.dim(i, 0)} elements")


def _per_filter(node: CheckedNode, i: int, filters: int | None, what: str) -> None:
    require_rank(node, i, 0, 1, what=what)
    if node.rank(i) == 1 and not same(node.dim(i, 0), 1) and not same(node.dim(i, 0), filters):
        raise Mismatch(f"{what} has {node.dim(i, 0)} elements, neither 1 nor {filters}")


def qlinear_matmul(node: CheckedNode) -> None:
    """Scales and zero points are one number, or one a row or column."""
    for first, operand, axis, name in ((1, 0, -2, "a"), (4, 3, -1, "b"), (6, 0, -2, "y")):
        for i, part in ((first, "scale"), (first + 1, "zero_point")):
            shape = node.shape(i)
            if shape is None or all(same(d, 1) for d in shape):
                continue
            index = axis if len(shape) > 1 else -1
            if not same(node.dim(i, index), node.dim(operand, axis)):
                wanted = node.dim(operand, axis)
                raise Mismatch(f"{name}_{part} has {node.dim(i, index)} elements, neither 1 nor {wanted}")


def quantize(node: CheckedNode) -> None:
    """Scale and zero point fit each other and the input."""
    shape, scale = node.shape(0), node.shape(1)
    if shape is None or scale is None:
        return
    zero = node.shape(2)
    single = node.inputs[1] is not None and node.inputs[1].elements == 1
    if single and zero is not None and all(same(d, 1) for d in zero):
        zero = scale  # one number of any rank
    if zero is not None and (len(zero) != len(scale) or not all(map(same, zero, scale))):
        raise Mismatch("scale and zero point differ in shape")
    block = node.int_attr("block_size")
    if not block:
        if len(scale) > 1:
            raise Mismatch(f"a scale of rank {len(scale)} needs block_size")
        if len(scale) == 1 and scale[0] != 1:
            axis = normal_axis(node.int_attr("axis", 1), len(shape))
            if not same(scale[0], shape[axis]):
                raise Mismatch(f"the scale has {scale[0]} elements, axis {axis} has {shape[axis]}")
        return
    if len(scale) != len(shape):
        raise Mismatch(f"a blocked scale has the rank of the input {len(shape)}, not {len(scale)}")
    axis = normal_axis(node.int_attr("axis", 1), len(shape))
    for i, (d, s) in enumerate(zip(shape, scale, strict=True)):
        wanted = math.ceil(d / block) if i == axis and isinstance(d, int) else None if i == axis else d
        if not same(wanted, s):
            raise Mismatch(f"the scale has {s} elements in dimension {i}, not {wanted}")


def instance_normalization(node: CheckedNode) -> None:
    """Scale and bias have one number per channel."""
    _channelwise(node, 1, 2)


def _channelwise(node: CheckedNode, *inputs: int) -> None:
    channels = node.dim(0, 1)
    for i in inputs:
        require_vector(node, i, channels, what=f"input {i + 1}")


def group_normalization(node: CheckedNode) -> None:
    """Channels make whole groups."""
    _channelwise(node, 1, 2)
    channels, groups = node.dim(0, 1), node.int_attr("num_groups", 1)
    if channels is not None and (groups < 1 or channels % groups):
        raise Mismatch(f"{channels} channels do not divide into {groups} groups")


def layer_normalization(node: CheckedNode) -> None:
    """Scale and bias broadcast to the input."""
    shape = node.shape(0)
    if shape is None:
        return
    normal_axis(node.int_attr("axis", -1), len(shape))
    for i in (1, 2):
        require_broadcast(node.shape(i), shape, what="the scale" if i == 1 else "the bias")


def last_axis(node: CheckedNode) -> None:
    """The attribute ``axis``, by default the last one, is one of the input."""
    rank = node.rank(0)
    if rank is not None:
        normal_axis(node.int_attr("axis", -1), rank)


def lrn(node: CheckedNode) -> None:
    """Batch and channels are there."""
    rank = node.rank(0)
    if rank is not None and rank < 2:
        raise Mismatch(f"the input has rank {rank}: batch and channels are needed")


def recurrent(gates: int) -> Check:
    """A check of a recurrent layer by the number of its gates."""
    return lambda node: _recurrent(node, gates)


def _recurrent(node: CheckedNode, gates: int) -> None:
    hidden = node.attr("hidden_size")
    size = hidden if isinstance(hidden, int) else node.dim(2, -1)
    directions = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    features = node.dim(0, 2)
    batch = node.dim(0, 0 if node.attr("layout", 0) else 1)
    rows = None if size is None else gates * size
    state = (batch, directions, size) if node.attr("layout", 0) else (directions, batch, size)
    expected = {
        1: (directions, rows, features),
        2: (directions, rows, size),
        3: (directions, None if rows is None else 2 * rows),
        4: (batch,),
        5: state,
        6: state,
    }
    if gates == 4:
        expected[7] = (directions, None if size is None else 3 * size)
    require_rank(node, 0, 3, what="the input")
    for i, dims in expected.items():
        shape = node.shape(i)
        if shape is None:
            continue
        if len(shape) != len(dims) or not all(map(same, shape, dims)):
            wanted = ", ".join("?" if d is None else str(d) for d in dims)
            raise Mismatch(f"input {i + 1} does not have the shape [{wanted}]")
