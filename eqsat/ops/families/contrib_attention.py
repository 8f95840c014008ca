"""ONNX Runtime's attention operators (``com.microsoft``), defined by products, masks and a softmax.

Sizes: batch B, queries S, past P, keys T, heads N, width of a head H.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.checks import attributes
from eqsat.ops.definition import BodyWriter, integer, integers, number, rank
from eqsat.ops.need_by_shapes import need_contrib_attention
from eqsat.ops.registry import declare
from eqsat.ops.sampling import attention as sample
from eqsat.schema.body import Body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import AttrValue, OpKey, TensorTypes

_LOWEST = -10000.0
"""The number that ONNX Runtime adds to masked scores by default."""


def attention(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Projection of the input to queries, keys and values, then attention.

    Inputs: input (B, S, D), weights (D, N * (H + H + Hv)), bias, mask_index, past (2, B, N, P, H), attention_bias.
    """
    columns, width = integers(attrs, "qkv_hidden_sizes"), number(types, 1, 1)
    if attrs.get("do_rotary") or attrs.get("past_present_share_buffer") or (len(types) > 6 and types[6] is not None):
        return None
    if width is None or rank(types, 0) != 3:
        return None
    w = BodyWriter(types)
    projected = w.op("MatMul", 0, 1)
    if w.given(2) is not None:
        projected = w.op("Add", projected, 2)
    return attend_projected(w, attrs, projected, columns or (width // 3,) * 3, mask=3, past=4, bias=5)


def quantized_attention(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """As :func:`attention`, with a projection of 8-bit operands.

    Inputs: input, weight, bias, their scales, mask_index, their zero points, past.
    """
    width = number(types, 1, 1)
    if attrs.get("do_rotary") or attrs.get("past_present_share_buffer") or width is None or rank(types, 0) != 3:
        return None
    w = BodyWriter(types)
    zeros = [w.given(6), w.given(7)]
    projected = w.op(OpKey(MICROSOFT, "MatMulIntegerToFloat"), 0, 1, 3, 4, *zeros, 2)
    w.dtype = ir.DataType.FLOAT if types[3] is None else types[3].dtype
    return attend_projected(w, attrs, projected, (width // 3,) * 3, mask=5, past=8, bias=9)


def attend_projected(
    w: BodyWriter,
    attrs: Mapping[str, AttrValue],
    projected: int,
    columns: tuple[int, ...],
    *,
    mask: int,
    past: int,
    bias: int,
) -> Body | None:
    """Attention of queries, keys and values that lie side by side in one tensor (B, S, columns).

    Args:
        w: Writes the definition.
        attrs: Of the operator.
        projected: The tensor.
        columns: How many each of the three has.
        mask: Position of the input ``mask_index``.
        past: Position of the input ``past``.
        bias: Position of the input that is added to the scores.
    """
    heads = integer(attrs, "num_heads")
    parts = w.several("Split", 3, projected, w.constant(list(columns)), axis=2)
    q, k, v = (_of_heads(w, part, heads, size) for part, size in zip(parts, columns, strict=True))
    before = None
    if w.given(past) is not None:
        old_k = w.op("Squeeze", w.op("Slice", past, *map(w.constant, ([0], [1], [0]))), w.constant([0]))
        old_v = w.op("Squeeze", w.op("Slice", past, *map(w.constant, ([1], [2], [0]))), w.constant([0]))
        k, v = w.op("Concat", old_k, k, axis=2), w.op("Concat", old_v, v, axis=2)
        before = w.size(past, 3)
    added = _masks(w, attrs, mask, k, before, w.size(q, 2))
    if added is False:
        return None
    y = _attended(w, attrs, q, k, v, columns[0] // heads, [*added, w.given(bias)])
    y = w.reshaped(w.op("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, columns[2])
    if columns[1] != columns[2]:
        return w.body(y)
    present = w.op("Concat", w.unsqueezed(k, 0), w.unsqueezed(v, 0), axis=0)
    return w.body(y, present)


def multi_head_attention(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Attention of given queries, keys and values.

    Inputs: query (B, S, D), key (B, T, D) or (B, N, T, H), value likewise, bias, key_padding_mask, attention_bias,
    past_key (B, N, P, H), past_value. The first may be all three (B, S, N, 3, H), the second two (B, T, N, 2, H).
    """
    heads = integer(attrs, "num_heads")
    ranks = [rank(types, i) for i in range(3)]
    if any(t is not None for t in types[8:]):
        return None
    w = BodyWriter(types)
    q, k, v = 0, 1, 2
    if ranks == [5, None, None] or ranks == [3, 5, None]:
        # Each head has its keys and values, or all three, side by side.
        size, packed = number(types, 0 if ranks[0] == 5 else 1, 4), 0 if ranks[0] == 5 else 1
        if size is None:
            return None
        width = values = heads * size
        parts = w.several("Split", 3 - packed, packed, axis=3, num_outputs=3 - packed)
        flat = [w.reshaped(part, 0, 0, width) for part in parts]
        q, k, v = flat if ranks[0] == 5 else (q, *flat)
        ranks = [3, 3, 3]
    else:
        width = number(types, 0, 2)
        values = number(types, 2, 2) if ranks[2] == 3 else None
        if ranks[2] == 4:
            size = number(types, 2, 3)
            values = None if size is None else heads * size
    if ranks[0] != 3 or ranks[1:] not in ([3, 3], [4, 4]) or width is None or values is None:
        return None
    if w.given(3) is not None:
        part_q, part_k, part_v = w.several("Split", 3, 3, w.constant([width, width, values]), axis=0)
        q = w.op("Add", q, part_q)
        if ranks[1] == 3:
            k, v = w.op("Add", k, part_k), w.op("Add", v, part_v)
    q = _of_heads(w, q, heads, width)
    if ranks[1] == 3:
        k, v = _of_heads(w, k, heads, width), _of_heads(w, v, heads, values)
    before = None
    if w.given(6) is not None and w.given(7) is not None:
        k, v = w.op("Concat", 6, k, axis=2), w.op("Concat", 7, v, axis=2)
        before = w.size(6, 2)
    added = _masks(w, attrs, 4, k, before, w.size(q, 2), crosses=before is None)
    if added is False:
        return None
    y = _attended(w, attrs, q, k, v, width // heads, [*added, w.given(5)])
    y = w.reshaped(w.op("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, values)
    return w.body(y, k, v)


def _of_heads(w: BodyWriter, x: int, heads: int, width: int) -> int:
    """(B, S, N * H) as (B, N, S, H)."""
    return w.op("Transpose", w.reshaped(x, 0, 0, heads, width // heads), perm=[0, 2, 1, 3])


def _attended(
    w: BodyWriter, attrs: Mapping[str, AttrValue], q: int, k: int, v: int, size: int, added: list[int | None]
) -> int:
    """``softmax(scale * Q K' + added) V``."""
    given = attrs.get("scale")
    scale = float(given) if isinstance(given, int | float) and given else max(size, 1) ** -0.5
    dtype = w.dtype
    scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = w.op("Mul", scores, w.constant(scale, dtype))
    for mask in added:
        if mask is not None:
            scores = w.op("Add", scores, mask)
    return w.op("MatMul", w.op("Softmax", scores, axis=-1), v)


def _masks(
    w: BodyWriter,
    attrs: Mapping[str, AttrValue],
    at: int,
    k: int,
    before: int | None,
    queries: int,
    *,
    crosses: bool = False,
) -> list[int | None] | Literal[False]:
    """The addend of the scores (B, N, S, T) that masks them; False for forms that are not supported."""
    found: list[int | None] = []
    dtype = w.dtype
    low = attrs.get("mask_filter_value")
    lowest = w.constant(float(low) if isinstance(low, int | float) else _LOWEST, dtype)
    zero = w.constant(0, dtype)
    keys = w.size(k, 2)
    mask = w.type(at)
    if mask is not None:
        counts = _counted_keys(w, at, keys)
        if counts is None:
            return False
        found.append(w.op("Where", counts, zero, lowest))
    if attrs.get("unidirectional"):
        rows = w.counted(queries)
        if before is not None:
            rows = w.op("Add", rows, before)
        ahead = w.op("Greater", w.unsqueezed(w.counted(keys), 0), w.unsqueezed(rows, 1))
        if crosses:
            # ONNX Runtime lets the last query see all keys, even if there are more keys than queries.
            row = w.counted(queries)
            ahead = w.op("And", ahead, w.unsqueezed(w.op("Less", row, w.op("Sub", queries, w.constant([1]))), 1))
        found.append(w.op("Where", ahead, w.constant(largest_negative(dtype), dtype), zero))
    return found


def _counted_keys(w: BodyWriter, at: int, keys: int) -> int | None:
    """Which keys are visible, by a mask (B, T) or (B, S, T), or by ends, or by ends and starts, of each sample."""
    known = w.type(at)
    assert known is not None
    shape = known.shape
    if shape is None or len(shape) > 3:
        return None
    if len(shape) > 1:
        positive = w.op("Greater", at, w.constant(0, known.dtype))
        return w.unsqueezed(positive, 1, 2) if len(shape) == 2 else w.unsqueezed(positive, 1)
    if len(shape) != 1:
        return None
    first = w.type(0)
    batch = first.shape[0] if first is not None and first.shape is not None else None
    place = w.op("Cast", w.counted(keys), to=int(known.dtype))
    if shape[0] == batch and batch is not None:
        return w.op("Less", place, w.unsqueezed(at, 1, 2, 3))
    if not isinstance(batch, int) or shape[0] != 2 * batch:
        return None
    ends, starts = w.several("Split", 2, w.unsqueezed(at, 1, 2, 3), w.constant([batch, batch]), axis=0)
    return w.op("And", w.op("Less", place, ends), w.op("GreaterOrEqual", place, starts))


def largest_negative(dtype: ir.DataType) -> float:
    """The number that ONNX Runtime writes over the scores of later keys: the lowest of the type."""
    return float(np.finfo(dtype.numpy()).min) if dtype in _NUMPY_FLOATS else -3.38953139e38


_NUMPY_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)


def rotary_embedding(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Pairs of elements turned by angles that depend on the position.

    Inputs: input (B, S, D) or (B, N, S, H), position_ids (B, S) or the first position (1), and the cosines and sines
    (positions, R / 2).
    """
    if attrs.get("is_packed_batching") or rank(types, 0) not in (3, 4):
        return None
    w = BodyWriter(types)
    heads, partly = integer(attrs, "num_heads"), integer(attrs, "rotary_embedding_dim")
    x = 0
    flat = rank(types, 0) == 3
    width, half = number(types, 0, 2 if flat else 3), number(types, 2, 1)
    if width is None or half is None:
        return None
    size = width if not flat else width // heads if heads and partly else 2 * half
    if flat:
        x = _of_heads(w, x, width // size, width)
    positions = 1
    if rank(types, 1) == 1:
        positions = w.unsqueezed(w.op("Add", w.counted(w.size(x, 2)), 1), 0)
    elif rank(types, 1) != 2:
        return None
    cosines, sines = (w.unsqueezed(w.op("Gather", i, positions, axis=0), 1) for i in (2, 3))
    y = turned(w, x, cosines, sines, half, size, bool(attrs.get("interleaved")))
    if flat:
        y = w.reshaped(w.op("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, width)
    return w.body(y)


def turned(w: BodyWriter, x: int, cosines: int, sines: int, half: int, size: int, interleaved: bool) -> int:
    """The first ``2 * half`` of ``size`` elements turned in pairs, (B, N, S, H) by angles (B, 1, S, half)."""
    rest: tuple[int, ...] = ()
    if 2 * half < size:
        x, *others = w.several("Split", 2, x, w.constant([2 * half, size - 2 * half]), axis=3)
        rest = tuple(others)
    if interleaved:
        pairs = w.reshaped(x, 0, 0, 0, half, 2)
        a, b = (w.op("Squeeze", part, w.constant([4])) for part in w.several("Split", 2, pairs, axis=4, num_outputs=2))
    else:
        a, b = w.several("Split", 2, x, axis=3, num_outputs=2)
    left = w.op("Sub", w.op("Mul", a, cosines), w.op("Mul", b, sines))
    right = w.op("Add", w.op("Mul", b, cosines), w.op("Mul", a, sines))
    if interleaved:
        y = w.reshaped(w.op("Concat", w.unsqueezed(left, 4), w.unsqueezed(right, 4), axis=4), 0, 0, 0, 2 * half)
    else:
        y = w.op("Concat", left, right, axis=3)
    return w.op("Concat", y, *rest, axis=3) if rest else y


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Attention", domain=MICROSOFT, definition=attention, contracted=(0, 1), macs=count.projected_attention,
    need=need_contrib_attention, checks=(attributes.positive("num_heads"),), sampling=sample.packed)
declare("MultiHeadAttention", domain=MICROSOFT, definition=multi_head_attention, contracted=(0, 1, 2),
    macs=count.multi_head_attention, need=need_contrib_attention, checks=(attributes.positive("num_heads"),),
    sampling=sample.multi_head)
declare("QAttention", domain=MICROSOFT, definition=quantized_attention, macs=count.projected_attention,
    need=need_contrib_attention, checks=(attributes.positive("num_heads"),))
declare("RotaryEmbedding", domain=MICROSOFT, definition=rotary_embedding, macs=count.rotary)
