"""Operators that look up, order or replace elements by their position."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Shape

_INT64 = ir.DataType.INT64
_ONES = (ir.DataType.FLOAT, ir.DataType.INT32, _INT64)


def _data(node: SampledNode) -> Shape:
    """The operand that is looked up in: of at least one dimension, and not empty."""
    shape = node.known(0)
    if shape is None:
        shape = node.draw(0, node.shape if node.shape else node.chance.shape(least=1))
    if not shape or 0 in shape:
        raise Rejected("nothing to look up in")
    return shape


def _axis(node: SampledNode, rank: int) -> int:
    axis = node.attr("axis", node.chance.number(-rank, rank - 1))
    if not -rank <= axis < rank:
        raise Rejected("no such axis")
    return axis % rank


def gather_elements(node: SampledNode) -> None:
    chance, shape = node.chance, _data(node)
    axis = _axis(node, len(shape))
    known = node.known(1)
    wanted = known if known is not None else tuple(chance.number(1, d if i != axis else 4) for i, d in enumerate(shape))
    node.draw(1, wanted, values=chance.rng.integers(-shape[axis], shape[axis], wanted), dtype=_INT64)


def scatter_elements(node: SampledNode) -> None:
    """Each element is replaced at most once: the order of several updates is not specified."""
    chance, shape = node.chance, _data(node)
    axis = _axis(node, len(shape))
    wanted = tuple(chance.number(1, d) for d in shape)
    places = np.argsort(chance.rng.random((*wanted[:axis], shape[axis], *wanted[axis + 1 :])), axis=axis)
    places = np.take(places, range(wanted[axis]), axis=axis)
    places = np.where(chance.rng.random(wanted) < 0.2, places - shape[axis], places)
    node.attr("reduction", "none" if chance.happens(0.6) else chance.one_of(("add", "mul", "min", "max")))
    node.draw(1, wanted, values=places.astype(np.int64), dtype=_INT64)
    node.draw(2, wanted, dtype=node.dtype(0))


def gather_nd(node: SampledNode) -> None:
    chance, shape = node.chance, _data(node)
    none = len(shape) == 1 or node.op.domain == MICROSOFT or chance.happens(0.6)
    batch = 0 if none else chance.number(1, len(shape) - 1)
    if node.op.domain != MICROSOFT:
        batch = node.attr("batch_dims", batch)
    if not 0 <= batch < len(shape):
        raise Rejected("no dimension to look up in")
    depth = chance.number(1, len(shape) - batch)
    lead = (*shape[:batch], *(chance.number(1, 3) for _ in range(chance.number(0, 2))))
    sizes = np.asarray(shape[batch : batch + depth])
    values = chance.rng.integers(-sizes, sizes, (*lead, depth))
    node.draw(1, (*lead, depth), values=values.astype(np.int64), dtype=_INT64)


def compress(node: SampledNode) -> None:
    """Without an axis it selects from the flattened tensor; the condition may be shorter than the selected axis."""
    chance, shape = node.chance, _data(node)
    along = "axis" in node.attrs or "axis" in node.asked or chance.happens(0.7)
    size = shape[_axis(node, len(shape))] if along else int(np.prod(shape))
    wanted = chance.number(1, size) if chance.happens(0.3) else size
    node.draw(1, (wanted,), values=chance.rng.random(wanted) < 0.6, dtype=ir.DataType.BOOL)


def one_hot(node: SampledNode) -> None:
    chance = node.chance
    depth = chance.number(1, 5)
    shape = node.known(0)
    if shape is None:
        values = chance.rng.integers(-depth, depth + 1, chance.shape(chance.number(1, 3)))
        if chance.happens(0.5):
            shape = node.draw(0, values.shape, values=values.astype(np.int64), dtype=_INT64)
        else:
            shape = node.draw(0, values.shape, dtype=_INT64)
    node.attr("axis", chance.number(-len(shape) - 1, len(shape)))
    node.draw(1, (), values=np.asarray(depth, np.int64), dtype=_INT64)
    node.draw(2, (2,))


def top_k(node: SampledNode) -> None:
    chance, shape = node.chance, _data(node)
    axis = _axis(node, len(shape))
    node.attr("largest", int(chance.happens(0.7)))
    if chance.happens(0.2):
        node.attr("sorted", 0)
    node.draw(1, (1,), values=np.asarray([chance.number(1, shape[axis])], np.int64), dtype=_INT64)


def eye(node: SampledNode) -> None:
    """Ones on any diagonal, possibly on one outside of the matrix."""
    chance = node.chance
    shape = node.draw(0, node.shape if node.shape is not None and len(node.shape) == 2 else chance.shape(2))
    if len(shape) != 2:
        raise Rejected("no matrix")
    node.attr("k", chance.number(-shape[0], shape[1]) if chance.happens(0.6) else 0)
    wished = node.result()
    if chance.happens(0.4) or wished not in (None, node.dtype(0)):
        node.attr("dtype", int(wished if wished is not None else chance.one_of(_ONES)))


def triangle(node: SampledNode) -> None:
    chance = node.chance
    shape = node.known(0)
    if shape is None:
        wish = node.shape if node.shape is not None and len(node.shape) >= 2 else chance.shape(least=2)
        shape = node.draw(0, wish)
    if len(shape) < 2:
        raise Rejected("no matrix")
    node.attr("upper", int(chance.happens(0.5)))
    if node.has(1):
        offset = chance.number(-shape[-2], shape[-1]) if chance.happens(0.7) else 0
        node.draw(1, (), values=np.asarray(offset, np.int64), dtype=_INT64)


def numbers(node: SampledNode) -> None:
    """A range that ends after some steps, also backwards."""
    chance, kind = node.chance, node.dtype(0)
    length = node.shape[0] if node.shape is not None and len(node.shape) == 1 else chance.number(0, 6)
    step = chance.one_of((1, 1, 1, 2, 3, -1, -2))
    start = chance.number(-4, 9) if chance.happens(0.6) else 0
    for i, number in enumerate((start, start + length * step, step)):
        node.draw(i, (), values=np.asarray(number, kind.numpy()), dtype=kind)


def reverse_sequence(node: SampledNode) -> None:
    chance = node.chance
    time = node.attr("time_axis", chance.number(0, 1))
    batch = node.attr("batch_axis", 1 - time)
    shape = node.known(0)
    if shape is None:
        wish = node.shape if node.shape is not None and len(node.shape) >= 2 else chance.shape(least=2)
        shape = node.draw(0, wish)
    if len(shape) < 2 or {time, batch} != {0, 1} or 0 in shape:
        raise Rejected("no sequences")
    lengths = chance.rng.integers(1, shape[time], (shape[batch],), endpoint=True)
    node.draw(1, lengths.shape, values=lengths.astype(np.int64), dtype=_INT64)


def cache_update(node: SampledNode) -> None:
    """Keys or values of some positions, written into the keys or values of all positions."""
    chance = node.chance
    shape = node.known(0)
    if shape is None:
        shape = node.draw(0, (chance.number(1, 2), chance.number(1, 3), chance.number(1, 5), chance.number(1, 3)))
    if len(shape) < 3 or 0 in shape:
        raise Rejected("nothing to write into")
    axis = node.attr("axis", -2)
    if not -len(shape) <= axis < len(shape) or not axis % len(shape):
        raise Rejected("no such axis")
    axis %= len(shape)
    steps = chance.number(1, shape[axis])
    node.attr("mode", chance.one_of(("linear", "circular")))
    node.draw(1, (*shape[:axis], steps, *shape[axis + 1 :]))
    if node.has(2):
        starts = chance.rng.integers(0, shape[axis] - steps, (shape[0],), endpoint=True)
        node.draw(2, (shape[0],), values=starts.astype(np.int64), dtype=_INT64)
