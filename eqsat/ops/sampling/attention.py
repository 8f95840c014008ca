"""Attention of batch, heads, positions and features, or with the heads within the features, and rotary embeddings."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Shape


def attention(node: SampledNode) -> None:
    """ONNX's attention: four dimensions, or three if the pattern has the number of heads; and past keys and values."""
    chance = node.chance
    by_heads = {"q_num_heads", "kv_num_heads"}
    query = node.known(0)
    three = len(query) == 3 if query is not None else bool(node.asked & by_heads) or chance.happens(0.15)
    wish = node.shape if node.shape is not None and len(node.shape) == 4 else chance.shape(4)
    batch, heads, queries, features = (*wish[:3], chance.number(1, 5))
    if three:
        _of_three(node, batch, heads, queries, features, wish[3])
        return
    query = node.draw(0, (batch, heads, queries, features))
    if len(query) != 4:
        raise Rejected("no heads")
    batch, heads, queries, features = query
    # Several heads of queries may share one of keys and values.
    groups = chance.one_of([heads, heads, *(g for g in range(1, heads + 1) if heads % g == 0)])
    key = node.draw(1, (batch, groups, chance.number(1, 5), features))
    if len(key) != 4:
        raise Rejected("no heads")
    node.draw(2, (batch, groups, key[2], wish[3]))
    _rest(node, batch, (heads, groups), (queries, key[2]), (features, wish[3]))


def _of_three(node: SampledNode, batch: int, heads: int, queries: int, features: int, values: int) -> None:
    chance = node.chance
    known = node.known(0)
    if known is not None:
        batch, queries, features = known
    groups = node.attr("kv_num_heads", chance.number(1, 2))
    heads = node.attr("q_num_heads", groups * chance.number(1, 2))
    if groups < 1 or heads < 1 or heads % groups:
        raise Rejected("no heads")
    if known is None:
        features *= heads
        node.draw(0, (batch, queries, features))
    if features % heads:
        raise Rejected("no heads")
    size = features // heads
    key = node.draw(1, (batch, chance.number(1, 5), groups * size))
    if len(key) != 3:
        raise Rejected("no heads")
    node.draw(2, (batch, key[1], groups * values))
    _rest(node, batch, (heads, groups), (queries, key[1]), (size, values))


def _rest(
    node: SampledNode, batch: int, heads: tuple[int, int], steps: tuple[int, int], sizes: tuple[int, int]
) -> None:
    """Mask, past keys and values, and lengths; then the attributes that change no shape."""
    chance, total = node.chance, steps[1]
    if node.has(4) and node.has(5):
        past = chance.number(1, 3)
        node.draw(4, (batch, heads[1], past, sizes[0]))
        node.draw(5, (batch, heads[1], past, sizes[1]))
        total += past
        node.outputs = max(node.outputs, 3)
    if node.has(3):
        shapes: list[Shape] = [(steps[0], total), (1, 1, steps[0], total), (batch, heads[0], steps[0], total)]
        node.draw(3, chance.one_of(shapes), dtype=node.dtype(0))
    if node.has(6):
        lengths = chance.rng.integers(1, steps[1], (batch,), endpoint=True) if steps[1] else np.zeros(batch)
        node.draw(6, (batch,), values=lengths.astype(np.int64), dtype=ir.DataType.INT64)
    if chance.happens(0.7):
        node.attr("scale", chance.one_of((1.0, 0.5, 0.125)))
    if chance.happens(0.2):
        node.attr("is_causal", 1)
    if chance.happens(0.2):
        node.attr("softcap", chance.one_of((0.5, 2.0)))
    if node.outputs > 3:
        node.attr("qk_matmul_output_mode", chance.number(0, 3))


def rotary(node: SampledNode) -> None:
    """For both domains: ONNX Runtime's operator has the positions before the cosines and always needs them."""
    chance = node.chance
    microsoft = node.op.domain == MICROSOFT
    tables, places = ((2, 3), 1) if microsoft else ((1, 2), 3)
    half = chance.number(1, 3)
    shape = node.known(0)
    if shape is None:
        wish = node.shape
        if wish is None or len(wish) not in (3, 4):
            size = (chance.number(1, 2), chance.number(1, 3), chance.number(1, 3), 2 * half)
            wish = size if chance.happens(0.6) else (size[0], size[2], size[1] * size[3])
        shape = node.draw(0, wish)
    if len(shape) not in (3, 4) or 0 in shape or shape[-1] % 2:
        raise Rejected("no pairs")
    node.attr("interleaved", int(chance.happens(0.5)))
    if len(shape) == 4:
        batch, heads, steps, size = shape
    else:
        batch, steps, width = shape
        heads = chance.one_of([n for n in range(1, 4) if width % (2 * n) == 0])
        if not microsoft:
            heads = node.attr("num_heads", heads)
        if heads < 1 or width % (2 * heads):
            raise Rejected("no heads")
        size = width // heads
    # Besides the features that are rotated there may be others, which stay unchanged.
    turned = 2 * chance.number(1, size // 2) if not microsoft and chance.happens(0.3) else 0
    turned = turned if microsoft else node.attr("rotary_embedding_dim", turned)
    half = (turned or size) // 2
    if node.has(places):
        limit = steps + chance.number(0, 2)
        for table in tables:
            node.draw(table, (limit, half))
        at = chance.rng.integers(0, limit, (batch, steps))
        node.draw(places, (batch, steps), values=at.astype(np.int64), dtype=ir.DataType.INT64)
    else:
        for table in tables:
            node.draw(table, (batch, steps, half))


def multi_head(node: SampledNode) -> None:
    """ONNX Runtime's, of queries, keys and values of three dimensions."""
    if not node.has(1) or not node.has(2):
        raise Rejected("queries, keys and values in one operand are not drawn")
    chance = node.chance
    known = node.known(0)
    heads = node.attr("num_heads", chance.number(1, 3))
    shape = known if known is not None else (chance.number(1, 2), chance.number(1, 4), heads * chance.number(1, 4))
    shape = node.draw(0, shape)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise Rejected("no heads")
    key = node.draw(1, (shape[0], chance.number(1, 4), shape[2]))
    if len(key) != 3:
        raise Rejected("no heads")
    values = node.draw(2, (shape[0], key[1], heads * chance.number(1, 4)))
    if node.has(3):
        node.draw(3, (2 * shape[2] + values[-1],))
    if node.has(4):
        raise Rejected("masks of ONNX Runtime's attention are not drawn")
    if node.has(5):
        node.draw(5, (chance.one_of((1, shape[0])), chance.one_of((1, heads)), shape[1], key[1]))


def packed(node: SampledNode) -> None:
    """ONNX Runtime's, of an input that is projected to queries, keys and values."""
    chance = node.chance
    heads = node.attr("num_heads", chance.number(1, 3))
    shape = node.known(0)
    if shape is None:
        shape = node.draw(0, (chance.number(1, 2), chance.number(1, 4), chance.number(1, 5)))
    if len(shape) != 3 or heads < 1:
        raise Rejected("no heads")
    hidden = heads * chance.number(1, 3)
    node.draw(1, (shape[2], 3 * hidden))
    if node.has(2):
        node.draw(2, (3 * hidden,))
