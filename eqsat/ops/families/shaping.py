"""Views and shapes: operators that rearrange axes, ask for sizes, or make arrays from sizes."""

from __future__ import annotations

import math

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import equal_axes, normal
from eqsat.ops.checks import attributes, lengths, movement
from eqsat.ops.magnitude import OF_FIRST
from eqsat.ops.need_by_parameters import need_constant_of_shape, need_expand, need_range, need_tile
from eqsat.ops.normal import Axes
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.quantization_role import MOVES_DATA
from eqsat.ops.registry import declare
from eqsat.ops.sampling import indexing
from eqsat.ops.sampling import movement as sample
from eqsat.ops.selection import FROM_FIRST
from eqsat.ops.traits import (
    BY_TYPE,
    FIXED,
    FORWARDS,
    MOVES,
    OWN_ATTRIBUTES,
    PARAMETRIC,
    REARRANGES,
    ROUNDS,
    SIZES,
    TAKES_SIZES,
    TOTAL,
)
from eqsat.schema.types import Attributes, TensorAttr


def ints(x: np.ndarray) -> tuple[int, ...]:
    """The elements of an integer array."""
    return tuple(x.reshape(-1).tolist())


def identity(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The operand itself."""
    return x


def reshape(attrs: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The elements in another shape; 0 takes over a dimension, -1 is what remains."""
    dims = list(ints(shape))
    if not attrs.get("allowzero"):
        dims = [x.shape[i] if d == 0 else d for i, d in enumerate(dims)]
    return x.reshape(dims)


def reshape_by_attribute(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 5 the shape is an attribute."""
    return reshape(attrs, x, np.array(attrs["shape"]))


def flatten(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """A matrix: the axes before ``axis`` by those from it on."""
    axis = attrs["axis"] + (x.ndim if attrs["axis"] < 0 else 0)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def squeeze(attrs: Attributes, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    """Without the given axes of length 1, or without all of them."""
    return np.squeeze(x, ints(axes) if axes is not None else None)


def squeeze_by_attribute(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 13 the axes are an attribute."""
    return np.squeeze(x, attrs.get("axes"))


def unsqueeze(attrs: Attributes, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """With axes of length 1 at the given places of the result."""
    return np.expand_dims(x, ints(axes))


def unsqueeze_by_attribute(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 13 the axes are an attribute."""
    return np.expand_dims(x, attrs["axes"])


def transpose(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Permuted axes, in reverse order by default; contiguous, as most operators read it more than once."""
    return np.asarray(np.transpose(x, attrs.get("perm")), order="C")


def expand(attrs: Attributes, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Broadcast against a shape; both may stretch."""
    dims = np.broadcast_shapes(x.shape, ints(shape))
    return np.asarray(np.broadcast_to(x, dims), order="C")


def tile(attrs: Attributes, x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    """Repeated along each axis."""
    return np.tile(x, ints(repeats))


def tile_one_axis(attrs: Attributes, x: np.ndarray, tiles: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Before version 6: repeated along one axis."""
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(tiles.item())
    return np.tile(x, repeats)


def shape_of(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The shape of the operand, or a slice of it."""
    return np.array(np.shape(x)[attrs.get("start", 0) : attrs.get("end")], np.int64)


def size(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The number of elements."""
    return np.array(np.size(x), np.int64)


def constant_of_shape(attrs: Attributes, shape: np.ndarray) -> np.ndarray:
    """An array of one value, zero in float32 by default."""
    value = attrs.get("value")
    fill = value.array if isinstance(value, TensorAttr) else np.zeros(1, np.float32)
    return np.full(ints(shape), fill.reshape(-1)[0], fill.dtype)


def number_range(attrs: Attributes, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Numbers from start to limit, exclusive."""
    if start.dtype.kind not in "iuf" or attrs.get("stash_type", 1) != 1 or start.dtype == np.float16:
        raise Fallback
    count = max(0, math.ceil((limit - start).item() / delta.item()))
    return (start + np.arange(count).astype(start.dtype) * delta).astype(start.dtype).reshape(-1)


def eye_like(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Ones on a diagonal."""
    if "dtype" in attrs:
        from eqsat.ops.families.casting import numpy_dtype

        return np.eye(*x.shape, k=attrs["k"], dtype=numpy_dtype(attrs["dtype"]))
    return np.eye(*x.shape, k=attrs["k"], dtype=x.dtype)


def triangle(attrs: Attributes, x: np.ndarray, k: np.ndarray | None = None) -> np.ndarray:
    """The upper or lower triangle of the last two axes."""
    offset = 0 if k is None else int(k.item())
    return np.triu(x, offset) if attrs["upper"] else np.tril(x, offset)


def depth_to_space(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Blocks of channels become blocks of pixels."""
    n, c, h, w = x.shape
    b = attrs["blocksize"]
    if attrs.get("mode", "DCR") == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


def space_to_depth(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Blocks of pixels become channels."""
    n, c, h, w = x.shape
    b = attrs["blocksize"]
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 1, 3, 5, 2, 4) if attrs.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return blocks.transpose(order).reshape(n, c * b * b, h // b, w // b)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Identity", numpy=identity, traits=MOVES | FORWARDS | SIZES | REARRANGES | TOTAL | FIXED,
    sampling=sample.identity, quantization=MOVES_DATA, bounds=bounds.same, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Reshape", numpy={5: reshape, 1: reshape_by_attribute},
    traits=MOVES | FORWARDS | SIZES | REARRANGES | TAKES_SIZES, shaped_by=(1,),
    checks=(movement.parameters(vectors=(1,)), movement.reshape), sampling=sample.reshape, quantization=MOVES_DATA,
    bounds=bounds.part, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Flatten", numpy=flatten, traits=MOVES | FORWARDS | OWN_ATTRIBUTES | REARRANGES | SIZES,
    normal_form=(normal.axis(),), sampling=sample.flatten, quantization=MOVES_DATA, bounds=bounds.part,
    magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Squeeze", numpy={13: squeeze, 1: squeeze_by_attribute}, traits=MOVES | FORWARDS | SIZES | REARRANGES,
    shaped_by=(1,), checks=(attributes.listed_axes(1), movement.parameters(either=(1,)), movement.squeeze),
    axes=Axes(1), sampling=sample.squeeze, quantization=MOVES_DATA, bounds=bounds.same, together=equal_axes.squeezed,
    magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Unsqueeze", numpy={13: unsqueeze, 1: unsqueeze_by_attribute}, traits=MOVES | FORWARDS | SIZES | REARRANGES,
    shaped_by=(1,),
    checks=(attributes.listed_axes(1, of_result=True), movement.parameters(either=(1,))), axes=Axes(1, of_result=True),
    sampling=sample.unsqueeze, quantization=MOVES_DATA, bounds=bounds.same, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Transpose", numpy=transpose, traits=MOVES | REARRANGES | TOTAL | SIZES, checks=(movement.transpose,),
    normal_form=(normal.permutation,), sampling=sample.transpose, quantization=MOVES_DATA, bounds=bounds.same,
    magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Expand", numpy=expand, traits=MOVES | PARAMETRIC | SIZES | TAKES_SIZES, shaped_by=(1,), need=need_expand,
    checks=(movement.parameters(vectors=(1,)),), sampling=sample.expand, quantization=MOVES_DATA, bounds=bounds.same,
    magnitude=OF_FIRST, together=equal_axes.expanded, selects=FROM_FIRST)
declare("Tile", numpy={6: tile, 1: tile_one_axis}, traits=MOVES | PARAMETRIC | SIZES | TAKES_SIZES, shaped_by=(1,),
    need=need_tile, checks=(movement.parameters(vectors=(1,)), lengths.per_axis(1, "repeats")), sampling=sample.tile,
    quantization=MOVES_DATA, bounds=bounds.part, magnitude=OF_FIRST, selects=FROM_FIRST)
declare("Shape", numpy=shape_of, traits=MOVES | FORWARDS | BY_TYPE | TOTAL, normal_form=(normal.range_of_shape,),
    sampling=sample.shape_of)
declare("Size", numpy=size, traits=MOVES | FORWARDS | BY_TYPE | TOTAL, sampling=sample.shape_of)
declare("ConstantOfShape", numpy=constant_of_shape, traits=MOVES | PARAMETRIC | SIZES | TAKES_SIZES, shaped_by=(0,),
    need=need_constant_of_shape, checks=(movement.parameters(vectors=(0,)),), sampling=sample.constant_of_shape)
declare("Range", numpy=number_range, traits=MOVES | ROUNDS | PARAMETRIC | SIZES, shaped_by=(0, 1, 2), need=need_range,
    checks=(attributes.range_, movement.parameters(numbers=(0, 1, 2))), sampling=indexing.numbers)
declare("EyeLike", numpy=eye_like, traits=MOVES, sampling=indexing.eye, bounds=bounds.identity)
declare("Trilu", numpy=triangle, traits=MOVES, checks=(movement.parameters(numbers=(1,)),), sampling=indexing.triangle,
    magnitude=OF_FIRST)
declare("DepthToSpace", numpy=depth_to_space, traits=MOVES,
    checks=(attributes.words(mode=("DCR", "CRD")), attributes.positive("blocksize"), attributes.depth_to_space),
    sampling=sample.blocks, quantization=MOVES_DATA, bounds=bounds.part, magnitude=OF_FIRST)
declare("SpaceToDepth", numpy=space_to_depth, traits=MOVES,
    checks=(attributes.positive("blocksize"), attributes.space_to_depth), sampling=sample.blocks,
    quantization=MOVES_DATA, bounds=bounds.part, magnitude=OF_FIRST)
declare("Constant", traits=MOVES | TOTAL)
