"""GroupQueryAttention (``com.microsoft``): queries share keys and values in groups, and a cache holds the keys and
values of past tokens.

Sizes: batch B, new tokens S, cache P, heads N, shared heads K, width of a head H.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.checks import attributes
from eqsat.ops.definition import BodyWriter, number
from eqsat.ops.families.contrib_attention import turned
from eqsat.ops.need_by_shapes import need_grouped_attention
from eqsat.ops.numpy_kernel import Fallback, in_single
from eqsat.ops.registry import declare
from eqsat.schema.body import Body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Attributes, AttrValue, TensorType, TensorTypes

_Optional = np.ndarray | None


@in_single
def group_query_attention(
    attrs: Attributes,
    query: np.ndarray,
    key: _Optional,
    value: _Optional,
    past_key: _Optional,
    past_value: _Optional,
    lengths: np.ndarray,
    total: np.ndarray,
    cosines: _Optional = None,
    sines: _Optional = None,
    positions: _Optional = None,
    bias: _Optional = None,
    sink: _Optional = None,
    *unsupported: _Optional,
    outputs: int = 1,
) -> tuple[np.ndarray, ...]:
    """Attention to past tokens, and to the new tokens up to each one.

    ``lengths`` holds the number of tokens of each sample, including the new ones, minus one.
    """
    if any(x is not None for x in unsupported) or outputs > 3 or attrs.get("sliding_window_cache"):
        raise Fallback
    if attrs.get("k_quant_type", "NONE") != "NONE" or attrs.get("v_quant_type", "NONE") != "NONE":
        raise Fallback
    heads, shared = attrs["num_heads"], attrs["kv_num_heads"]
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * shared)
        query, key, value = np.split(query, [heads * size, (heads + shared) * size], axis=2)
    size = query.shape[2] // heads
    q, k, v = _of_heads(query, heads), _of_heads(key, shared), _of_heads(value, shared)
    batch, _, steps, _ = q.shape
    is_first = steps == int(total.reshape(()))
    counts = lengths.reshape(-1).astype(np.int64) + 1
    before = np.zeros(batch, np.int64) if is_first else counts - steps
    if attrs.get("do_rotary"):
        assert cosines is not None and sines is not None
        at = before[:, None] + np.arange(steps) if positions is None else positions.reshape(batch, steps)
        q, k = (_turned(x, cosines[at], sines[at], bool(attrs.get("rotary_interleaved"))) for x in (q, k))
    old = 0 if past_key is None else past_key.shape[2]
    room = max(old, int(total.reshape(())))
    keys, values = (_cached(old, new, before, room) for old, new in ((past_key, k), (past_value, v)))
    y = np.zeros_like(q)
    scale = attrs.get("scale") or size**-0.5
    for b in range(batch):
        for s in range(steps):
            seen = int(before[b]) + s + 1
            if not attrs.get("causal", 1):
                seen = int(before[b]) + steps
            seen = min(seen, room)
            window = attrs.get("local_window_size", -1)
            first = max(0, seen - window) if window >= 0 else 0
            for n in range(heads):
                g = n * shared // heads
                scores = keys[b, g, first:seen] @ q[b, n, s] * np.float32(scale)
                if attrs.get("softcap"):
                    cap = np.float32(attrs["softcap"])
                    scores = cap * np.tanh(scores / cap)
                if bias is not None:
                    scores = scores + bias[b % bias.shape[0], n % bias.shape[1], s, first:seen]
                y[b, n, s] = _shares(scores, attrs, sink, n) @ values[b, g, first:seen]
    y = np.ascontiguousarray(y.transpose(0, 2, 1, 3)).reshape(query.shape)
    return (y, keys, values)[:outputs]


def _shares(scores: np.ndarray, attrs: Attributes, sink: _Optional, head: int) -> np.ndarray:
    """Softmax; with a sink, or a smooth one, a further score takes its share."""
    further = None if sink is None else sink.reshape(-1)[head]
    if further is None and attrs.get("smooth_softmax", -1) == 1:
        further = np.float32(0)
    peak = scores.max(initial=-np.inf) if further is None else max(scores.max(initial=-np.inf), further)
    weights = np.exp(scores - peak)
    return weights / (weights.sum() + (0 if further is None else np.exp(further - peak)))


def _of_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """(B, S, N * H) as (B, N, S, H)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _cached(old: _Optional, new: np.ndarray, before: np.ndarray, room: int) -> np.ndarray:
    """The past and the new tokens of each sample, joined."""
    batch, heads, steps, size = new.shape
    found = np.zeros((batch, heads, room, size), new.dtype)
    for b, past in enumerate(before.tolist()):
        if old is not None and past:
            found[b, :, :past] = old[b, :, :past]
        found[b, :, past : past + steps] = new[b]
    return found


def _turned(x: np.ndarray, cosines: np.ndarray, sines: np.ndarray, interleaved: bool) -> np.ndarray:
    """Pairs of elements turned by angles (B, S, R / 2)."""
    half = cosines.shape[-1]
    c, s = cosines[:, None], sines[:, None]
    if interleaved:
        a, b = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        pairs = np.stack([a * c - b * s, b * c + a * s], -1).reshape(*x.shape[:-1], 2 * half)
    else:
        a, b = x[..., :half], x[..., half : 2 * half]
        pairs = np.concatenate([a * c - b * s, b * c + a * s], -1)
    return np.concatenate([pairs, x[..., 2 * half :]], -1).astype(x.dtype)


def defined(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The same by standard operators, computed in float32."""
    heads, shared = attrs["num_heads"], attrs["kv_num_heads"]
    packed = len(types) < 3 or types[1] is None or types[2] is None
    width = number(types, 0, 2)
    if width is None or not isinstance(heads, int) or not isinstance(shared, int):
        return None
    if any(t is not None for t in types[12:]) or attrs.get("sliding_window_cache"):
        return None
    if any(attrs.get(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        return None
    w = BodyWriter(types)
    size = width // (heads + 2 * shared if packed else heads)
    parts: tuple[int, ...] = (0, 1, 2)
    if packed:
        parts = w.several("Split", 3, 0, w.constant([heads * size, shared * size, shared * size]), axis=2)
    q, k, v = (
        w.op("Transpose", w.reshaped(_single(w, part), 0, 0, n, size), perm=[0, 2, 1, 3])
        for part, n in zip(parts, (heads, shared, shared), strict=True)
    )
    steps = w.size(q, 2)
    total = w.reshaped(w.op("Cast", 6, to=int(ir.DataType.INT64)), 1)
    counts = w.op("Add", w.reshaped(w.op("Cast", 5, to=int(ir.DataType.INT64)), -1), w.constant(1))
    zero = w.constant([0])
    before = w.op("Where", w.op("Equal", steps, total), zero, w.op("Sub", counts, steps))
    starts = w.unsqueezed(before, 1)
    if attrs.get("do_rotary"):
        at = w.op("Add", starts, w.counted(steps))
        if w.given(9) is not None:
            at = w.op("Reshape", 9, w.op("Concat", w.size(q, 0), steps, axis=0))
        cosines, sines = (w.unsqueezed(_single(w, w.op("Gather", i, at, axis=0)), 1) for i in (7, 8))
        half = number(types, 7, 1)
        if half is None:
            return None
        q, k = (turned(w, x, cosines, sines, half, size, bool(attrs.get("rotary_interleaved"))) for x in (q, k))
    pasts = [w.given(i) for i in (3, 4)]
    old = zero if pasts[0] is None else w.size(pasts[0], 2)
    room = w.op("Max", old, total)
    place = w.unsqueezed(w.counted(room), 0)
    after = w.op("Sub", place, starts)
    is_old = w.op("Less", after, zero)
    is_known = w.op("Less", after, steps)
    newest = w.op("Sub", steps, w.constant([1]))
    index = w.op("Where", is_old, place, w.op("Add", old, w.op("Max", zero, w.op("Min", after, newest))))
    cache = w.op("Concat", w.size(q, 0), w.constant([shared]), room, w.constant([size]), axis=0)
    index, is_known = (w.op("Expand", w.unsqueezed(x, 1, 3), cache) for x in (index, is_known))
    keys, values = (
        w.op(
            "Where",
            is_known,
            w.op(
                "GatherElements",
                new if past is None else w.op("Concat", _single(w, past), new, axis=2),
                index,
                axis=2,
            ),
            w.constant(0, ir.DataType.FLOAT),
        )
        for past, new in zip(pasts, (k, v), strict=True)
    )
    # The heads of a group are rows of one product.
    scores = w.op("MatMul", w.reshaped(q, 0, shared, -1, size), w.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = w.op("Mul", scores, w.constant(_number(attrs, "scale") or size**-0.5, ir.DataType.FLOAT))
    cap = _number(attrs, "softcap")
    if cap:
        limit = w.constant(cap, ir.DataType.FLOAT)
        scores = w.op("Mul", limit, w.op("Tanh", w.op("Div", scores, limit)))
    by_head = w.op("Concat", w.size(q, 0), w.constant([heads]), steps, room, axis=0)
    scores = w.op("Reshape", scores, by_head)
    if w.given(10) is not None:
        # Positions after the last token are masked.
        at = w.op("Min", w.counted(room), w.op("Sub", w.size(10, 3), w.constant([1])))
        scores = w.op("Add", scores, w.op("Gather", _single(w, 10), at, axis=3))
    seen = w.op("Add", starts, steps)
    if attrs.get("causal", 1):
        seen = w.op("Add", starts, w.op("Add", w.counted(steps), w.constant([1])))
    seen = w.unsqueezed(seen, 2)
    counted = w.op("Less", w.unsqueezed(place, 0), seen)
    window = attrs.get("local_window_size", -1)
    if isinstance(window, int) and window >= 0:
        first = w.op("Sub", w.op("Min", seen, room), w.constant([window]))
        counted = w.op("And", counted, w.op("GreaterOrEqual", w.unsqueezed(place, 0), first))
    lowest = w.constant(np.finfo(np.float32).min, ir.DataType.FLOAT)
    scores = w.op("Where", w.unsqueezed(counted, 1), scores, lowest)
    further = w.reshaped(_single(w, 11), 1, heads, 1, 1) if w.given(11) is not None else None
    if further is None and attrs.get("smooth_softmax", -1) == 1:
        further = w.constant(np.zeros((1, 1, 1, 1)), ir.DataType.FLOAT)
    if further is not None:
        column = w.op("Concat", w.size(q, 0), w.constant([heads]), steps, w.constant([1]), axis=0)
        scores = w.op("Concat", scores, w.op("Expand", further, column), axis=3)
    shares = w.op("Softmax", scores, axis=-1)
    if further is not None:
        shares = w.op("Slice", shares, zero, room, w.constant([3]))
    by_group = w.op(
        "Concat", w.size(q, 0), w.constant([shared]), w.op("Mul", steps, w.constant([heads // shared])), room, axis=0
    )
    y = w.op("MatMul", w.op("Reshape", shares, by_group), values)
    y = w.op("Reshape", y, w.op("Concat", w.size(q, 0), w.constant([heads]), steps, w.constant([size]), axis=0))
    y = w.reshaped(w.op("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, heads * size)
    results = (y, keys, values)
    if w.dtype != ir.DataType.FLOAT:
        results = tuple(w.op("Cast", x, to=int(w.dtype)) for x in results)
    return w.body(*results)


def _single(w: BodyWriter, x: int) -> int:
    """A value in float32."""
    return x if w.dtype == ir.DataType.FLOAT else w.op("Cast", x, to=int(ir.DataType.FLOAT))


def _number(attrs: Mapping[str, AttrValue], name: str) -> float:
    value = attrs.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _types(attrs: Mapping[str, AttrValue], inputs: TensorTypes) -> tuple[TensorType | None, ...]:
    """The values of an input decide how much of the cache there is."""
    query, key, past = inputs[0], inputs[1], inputs[3]
    if query is None or query.shape is None or len(query.shape) != 3:
        return (None,) * 3
    heads, shared = attrs["num_heads"], attrs["kv_num_heads"]
    batch, steps, width = query.shape
    if not isinstance(width, int) or not isinstance(heads, int) or not isinstance(shared, int):
        return (TensorType(query.dtype, (batch, steps, None if key is None else width)), None, None)
    size = width // (heads + 2 * shared if key is None else heads)
    cache = TensorType(query.dtype if past is None else past.dtype, (batch, shared, None, size))
    return TensorType(query.dtype, (batch, steps, heads * size)), cache, cache


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("GroupQueryAttention", domain=MICROSOFT, numpy=group_query_attention, definition=defined, types=_types,
    shaped_by=(5, 6), contracted=(0, 1, 2), macs=count.grouped_attention, need=need_grouped_attention,
    checks=(attributes.positive("num_heads", "kv_num_heads"), attributes.shared_heads))
