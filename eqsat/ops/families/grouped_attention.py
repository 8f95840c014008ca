"""GroupQueryAttention (``com.microsoft``): queries share keys and values in groups, and a cache holds what is past.

Sizes: batch B, new tokens S, cache P, heads N, shared heads K, width of a head H.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat.ops import counters as count
from eqsat.ops.checks import attributes
from eqsat.ops.definition import Types
from eqsat.ops.kernel import Attributes, Fallback, in_single
from eqsat.ops.need_by_shapes import need_grouped_attention
from eqsat.ops.registry import declare
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import AttrValue, TensorType

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
    """Attention to what is past and to the new tokens up to each one.

    ``lengths`` has one less than the number of tokens of each sample, the new ones included.
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
    """What is past and what is new of each sample, behind each other."""
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
        turned = np.stack([a * c - b * s, b * c + a * s], -1).reshape(*x.shape[:-1], 2 * half)
    else:
        a, b = x[..., :half], x[..., half : 2 * half]
        turned = np.concatenate([a * c - b * s, b * c + a * s], -1)
    return np.concatenate([turned, x[..., 2 * half :]], -1).astype(x.dtype)


def _types(attrs: Mapping[str, AttrValue], inputs: Types) -> tuple[TensorType | None, ...]:
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
declare("GroupQueryAttention", domain=MICROSOFT, numpy=group_query_attention, types=_types, shaped_by=(5, 6),
    contracted=(0, 1, 2), macs=count.grouped_attention, need=need_grouped_attention,
    checks=(attributes.positive("num_heads", "kv_num_heads"), attributes.shared_heads))
