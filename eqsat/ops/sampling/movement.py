"""Operators that move data: their operands after the first are constants with the destination."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.types import Shape

_INT64 = ir.DataType.INT64


def _first(node: SampledNode, shape: Shape | None, least: int = 0, *, of_size: bool = False) -> Shape:
    found = node.draw(0, shape if shape is not None else node.chance.shape(least=least), of_size=of_size)
    if len(found) < least:
        raise Rejected("too few dimensions")
    return found


def _regrouped(chance: Chance, shape: Shape) -> Shape:
    """Another shape of as many elements."""
    size = math.prod(shape)
    kind = chance.number(0, 5)
    if kind == 0 or size == 0:
        return shape
    if kind == 1:
        return (size,)
    if kind == 2 and len(shape) >= 2:
        k = chance.number(0, len(shape) - 2)
        return (*shape[:k], shape[k] * shape[k + 1], *shape[k + 2 :])
    if kind == 3:
        k = chance.number(0, len(shape))
        return (*shape[:k], 1, *shape[k:])
    if kind == 4 and 1 in shape:
        k = shape.index(1)
        return (*shape[:k], *shape[k + 1 :])
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    first = chance.one_of(divisors)
    return (first, size // first)


def _of_rank(chance: Chance, shape: Shape, rank: int) -> Shape:
    """The same number of elements in this many dimensions: neighbours are merged, or axes of size 1 are added."""
    found = list(shape)
    while len(found) > max(rank, 1):
        k = chance.number(0, len(found) - 2)
        found[k : k + 2] = [found[k] * found[k + 1]]
    while len(found) < rank:
        found.insert(chance.number(0, len(found)), 1)
    return tuple(found) if rank or math.prod(found) != 1 else ()


def transpose(node: SampledNode) -> None:
    chance = node.chance
    known, given = node.known(0), node.attrs.get("perm")
    least = node.shape is None and known is None and given is None
    rank = len(given if given is not None else known if known is not None else node.shape or ())
    if least:
        rank = chance.number(1, 4)
    perm = given
    if perm is None:
        kind = chance.number(0, 5)
        perm = tuple(range(rank)) if kind == 0 else tuple(reversed(range(rank))) if kind == 1 else None
        if perm is None:
            perm = tuple(chance.shuffled(range(rank)))
        perm = node.attr("perm", perm)
    wish = node.shape if node.shape is not None and len(node.shape) == len(perm) else chance.shape(len(perm))
    inner = [1] * len(perm)
    for i, p in enumerate(perm):
        inner[p] = wish[i]
    # Dimensions that are all equal hide nothing of a permutation of more than two.
    if chance.happens(0.15 if len(perm) < 3 else 0.3) and node.shape is None:
        inner = [chance.number(2, 3)] * len(perm)
    elif chance.happens(0.3) and node.shape is None:
        keep = chance.number(0, max(len(perm) - 1, 0))
        inner = [d if i == keep or chance.happens(0.5) else 1 for i, d in enumerate(inner)]
    node.draw(0, tuple(inner))


def reshape(node: SampledNode) -> None:
    chance = node.chance
    wish = node.shape
    shape = node.known(0)
    if shape is None:
        shape = _first(node, _regrouped(chance, wish) if wish is not None else None, of_size=wish is not None)
    size = math.prod(shape)
    target = wish if wish is not None and math.prod(wish) == size else _regrouped(chance, shape)
    if wish is not None and len(target) != len(wish):
        target = _of_rank(chance, shape, len(wish))
    asked = node.wished(target)
    if math.prod(asked) == size:
        target = asked
    if chance.happens(0.25) and wish is None:
        target = shape
    said = list(target)
    if said and 0 not in said and chance.happens(0.4):
        said[chance.number(0, len(said) - 1)] = -1
    literally = node.attr("allowzero", int(chance.happens(0.15)))
    for i in range(min(len(said), len(shape))):
        if said[i] == shape[i] and not literally and chance.happens(0.3):
            said[i] = 0
    node.draw(1, (len(said),), values=np.asarray(said, np.int64))


def flatten(node: SampledNode) -> None:
    shape = _first(node, None)
    node.attr("axis", node.chance.number(-len(shape), len(shape)))


def squeeze(node: SampledNode) -> None:
    chance, wish = node.chance, node.shape
    shape = node.known(0)
    if shape is None:
        base = list(wish if wish is not None else chance.shape())
        for _ in range(chance.number(1, 2)):
            base.insert(chance.number(0, len(base)), 1)
        shape = _first(node, tuple(base))
    if node.has(1):
        ones = [i for i, d in enumerate(shape) if d == 1]
        count = max(len(shape) - len(wish), 0) if wish is not None else chance.number(min(len(ones), 1), len(ones))
        axes = chance.shuffled(ones)[:count]
        said = [a - len(shape) if chance.happens(0.2) else a for a in axes]
        node.draw(1, (len(said),), values=np.asarray(said, np.int64))


def unsqueeze(node: SampledNode) -> None:
    chance, wish = node.chance, node.shape
    shape = node.known(0)
    if shape is None:
        ones = [i for i, d in enumerate(wish or ()) if d == 1]
        gone = chance.one_of(ones) if ones else None
        base = None if wish is None else tuple(d for i, d in enumerate(wish) if i != gone)
        shape = _first(node, base)
    rank = len(shape) + (1 if chance.happens(0.7) else 2)
    axes = chance.shuffled(range(rank))[: rank - len(shape)]
    node.draw(1, (len(axes),), values=np.asarray([a - rank if chance.happens(0.2) else a for a in axes], np.int64))


def identity(node: SampledNode) -> None:
    node.draw(0, node.shape)


def dropout(node: SampledNode) -> None:
    node.draw(0, node.shape)
    if node.has(1):
        node.draw(1, (), values=np.asarray(0.5, np.float32), dtype=ir.DataType.FLOAT)
    if node.has(2):
        node.draw(2, (), values=np.asarray(node.chance.happens(0.1)))


def expand(node: SampledNode) -> None:
    chance, wish = node.chance, node.shape
    if wish is None:
        shape = _first(node, None)
        target = shape if chance.happens(0.4) else tuple(chance.dim() if d == 1 else d for d in shape)
        if chance.happens(0.15):
            target = (chance.number(1, 3), *target)
    else:
        target = wish
        start = chance.number(0, len(wish)) if chance.happens(0.3) else 0
        _first(node, tuple(d if chance.happens(0.6) else 1 for d in wish)[start:])
    said = [1 if chance.happens(0.1) else d for d in target] if wish is None else list(target)
    node.draw(1, (len(said),), values=np.asarray(said, np.int64))


def tile(node: SampledNode) -> None:
    chance, wish = node.chance, node.shape
    if wish is None:
        shape = _first(node, None)
        repeats = [1 if chance.happens(0.6) else chance.number(1, 3) for _ in shape]
    else:
        repeats = [chance.one_of([r for r in (1, 1, 2, 3) if d % r == 0]) for d in wish]
        _first(node, tuple(d // r for d, r in zip(wish, repeats, strict=True)))
    node.draw(1, (len(repeats),), values=np.asarray(repeats, np.int64))


def concat(node: SampledNode) -> None:
    chance = node.chance
    shape = next((s for i in range(node.count) if (s := node.known(i)) is not None), None)
    wish = node.shape
    rank = len(shape) if shape is not None else len(wish) if wish is not None else chance.number(1, 4)
    if not rank:
        raise Rejected("a scalar")
    axis = node.attr("axis", chance.number(-rank, rank - 1))
    if not -rank <= axis < rank:
        rank = axis + 1 if axis >= 0 else -axis
    axis %= rank
    base = list(shape if shape is not None else wish if wish is not None and len(wish) == rank else chance.shape(rank))
    left = base[axis]
    for i in range(node.count):
        own = list(base)
        if wish is not None and shape is None:
            most = max(left // 2, 1) if left >= node.count else chance.number(0, left)
            own[axis] = left if i == node.count - 1 else most
            left -= own[axis]
        else:
            own[axis] = 0 if chance.happens(0.1) else chance.number(1, 4)
        found = node.draw(i, tuple(own))
        if len(found) == rank:
            base = list(found)


def split(node: SampledNode) -> None:
    chance = node.chance
    shape = node.known(0)
    if "num_outputs" in node.required:
        # Type inference does not survive another number of outputs.
        if node.attrs["num_outputs"] < node.outputs:
            raise Rejected("fewer outputs than are used")
        node.outputs = node.attrs["num_outputs"]
    elif node.outputs == 1 or chance.happens(0.25):
        node.outputs += 1
    count = node.outputs
    if shape is None:
        rank = len(node.shape) if node.shape else chance.number(1, 4)
        axis = node.attr("axis", chance.number(-rank, rank - 1))
        rank = max(rank, axis + 1, -axis)
        base = list(node.shape if node.shape is not None and len(node.shape) == rank else chance.shape(rank))
        sizes = range(max(1, count - 1), 9)
        fitting = [n for n in sizes if node.has(1) or _is_even(n, count)]
        if not fitting:
            raise Rejected("too many parts")
        base[axis] = fitting[chance.number(0, len(fitting) - 1)]
        shape = _first(node, tuple(base), 1)
    axis = node.attr("axis", chance.number(-len(shape), len(shape) - 1))
    if not -len(shape) <= axis < len(shape):
        raise Rejected("no such axis")
    if node.has(1):
        size, sizes = shape[axis], []
        for k in range(count - 1):
            most = max(size - (count - 1 - k), 0)
            sizes.append(chance.number(0 if chance.happens(0.1) else min(1, most), most))
            size -= sizes[-1]
        node.draw(1, (count,), values=np.asarray([*sizes, size], np.int64))
    elif _is_even(shape[axis], count):
        node.attr("num_outputs", count)
    else:
        raise Rejected("the parts do not fit")


def _is_even(size: int, count: int) -> bool:
    """Whether parts of equal size and a smaller last one make up a dimension."""
    return (count - 1) * math.ceil(size / count) <= size


def slice_(node: SampledNode) -> None:
    chance = node.chance
    shape = node.known(0)
    shape = _first(node, node.shape, 1) if shape is None else shape
    if not shape:
        raise Rejected("a scalar")
    axes = sorted(chance.shuffled(range(len(shape)))[: chance.number(1, len(shape))])
    if not node.has(3):
        axes = list(range(len(axes)))
    starts, ends, steps = [], [], []
    style = chance.weighted({0: 0.3, 1: 0.25, 2: 0.25, 3: 0.2})
    for axis in axes:
        if style == 3:
            starts.append(chance.one_of((-1, shape[axis] - 1)))
            ends.append(chance.one_of((-shape[axis] - 1, 1 - 2**63)))
            steps.append(-1)
            continue
        step = 1 if style == 0 or chance.happens(0.6) else chance.one_of((2, -1, 3))
        start = 0 if style == 0 else chance.number(-shape[axis] - 1, shape[axis])
        end = chance.one_of((shape[axis], 2**31 - 1, 2**63 - 1))
        if style == 2:
            end = chance.number(-shape[axis], shape[axis] + 1)
        if style == 1 and chance.happens(0.5):
            start = 0 if step > 0 else shape[axis]
            end = end if step > 0 else -shape[axis] - 1
        starts.append(start)
        ends.append(end)
        steps.append(step)
    for i, values in ((1, starts), (2, ends), (3, axes), (4, steps)):
        if node.has(i):
            node.draw(i, (len(axes),), values=np.asarray(values, np.int64), dtype=_INT64)


def pad(node: SampledNode) -> None:
    chance = node.chance
    wish, shape = node.shape, node.known(0)
    rank = len(shape if shape is not None else wish if wish is not None else chance.shape(least=1))
    axes = list(range(rank))
    if node.has(3):
        axes = sorted(chance.shuffled(axes)[: chance.number(0, rank)])
    style = chance.number(0, 4)
    widths = [0] * (2 * len(axes))
    for k in range(len(widths)):
        spatial = axes[k % max(len(axes), 1)] >= 2
        if style == 1 or (style >= 2 and spatial):
            widths[k] = chance.number(0, 2) if chance.happens(0.95) else -1
    if shape is None:
        base = list(wish if wish is not None else chance.shape(rank))
        if wish is not None:
            for k, axis in enumerate(axes):
                base[axis] = max(base[axis] - widths[k] - widths[k + len(axes)], 1)
        node.draw(0, tuple(base))
    node.attr("mode", "constant" if chance.happens(0.7) else chance.one_of(("reflect", "edge", "wrap")))
    node.draw(1, (len(widths),), values=np.asarray(widths, np.int64))
    if node.has(2):
        zero = node.kind(2) in ("input", "constant") and chance.happens(0.5)
        node.draw(2, (), values=np.zeros((), node.dtype(0).numpy()) if zero else None, dtype=node.dtype(0))
    if node.has(3):
        node.draw(3, (len(axes),), values=np.asarray(axes, np.int64), dtype=_INT64)


def gather(node: SampledNode) -> None:
    """Some indices are those of a channel shuffle, or of an image of repeated pixels."""
    chance = node.chance
    shape = _first(node, None, 1) if node.known(0) is None else node.known(0)
    if not shape:
        raise Rejected("a scalar")
    axis = node.attr("axis", chance.number(-len(shape), len(shape) - 1))
    if not -len(shape) <= axis < len(shape) or not shape[axis]:
        raise Rejected("no such axis")
    size = shape[axis]
    parts = [n for n in range(2, size) if size % n == 0]
    if parts and chance.happens(0.3):
        values = np.arange(size).reshape(-1, chance.one_of(parts)).T.ravel()
    elif chance.happens(0.1):
        values = np.repeat(np.arange(size), chance.number(1, 3))
    else:
        values = chance.rng.integers(-size, size, chance.shape(chance.number(0, 2)))
    values = np.asarray(values, np.int64)
    node.draw(1, values.shape, values=values, dtype=_INT64)


def scatter_nd(node: SampledNode) -> None:
    """Half of the updates are a part of one dimension, in order: what exporters make of an assignment to a slice."""
    chance = node.chance
    shape = node.known(0)
    shape = _first(node, node.shape, 1) if shape is None else shape
    if not shape or 0 in shape:
        raise Rejected("nothing to replace")
    depth = chance.number(1, len(shape))
    if chance.happens(0.5):
        axis = chance.number(0, depth - 1)
        size = chance.number(1, shape[axis])
        part = (*shape[:axis], size, *shape[axis + 1 :])
        places = np.moveaxis(np.indices(part[:depth]), 0, -1).copy()
        places[..., axis] += chance.number(0, shape[axis] - size)
    else:
        # The order of updates of one element is not specified.
        every = np.moveaxis(np.indices(shape[:depth]), 0, -1).reshape(-1, depth)
        places = chance.rng.permutation(every)[: chance.number(1, len(every))]
        places = np.where(chance.rng.random(places.shape) < 0.2, places - np.asarray(shape[:depth]), places)
    node.attr("reduction", "none" if chance.happens(0.7) else chance.one_of(("add", "mul", "min", "max")))
    node.draw(1, places.shape, values=places.astype(np.int64), dtype=_INT64)
    node.draw(2, (*places.shape[:-1], *shape[depth:]), dtype=node.dtype(0))


def blocks(node: SampledNode) -> None:
    chance = node.chance
    b = node.attr("blocksize", chance.one_of((2, 2, 2, 3, 1)))
    if b < 1:
        raise Rejected("no blocks")
    if node.op.name == "DepthToSpace":
        node.attr("mode", chance.one_of(("DCR", "CRD")))
        node.draw(0, (chance.number(1, 2), b * b * chance.number(1, 2), chance.number(1, 3), chance.number(1, 3)))
    else:
        node.draw(0, (chance.number(1, 2), chance.number(1, 3), b * chance.number(1, 2), b * chance.number(1, 2)))


def shape_of(node: SampledNode) -> None:
    node.draw(0)


def constant_of_shape(node: SampledNode) -> None:
    shape = node.shape if node.shape is not None else node.chance.shape()
    node.draw(0, (len(shape),), values=np.asarray(shape, np.int64))
