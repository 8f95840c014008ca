"""Embeddings of words, positions and segments, summed and normalized (``com.microsoft``)."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops.definition import BodyWriter
from eqsat.ops.need_by_shapes import need_embedding
from eqsat.ops.registry import declare
from eqsat.schema.body import Body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import AttrValue, TensorTypes


def embed_layer_normalization(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Also returns how many words of each sample the mask keeps, and the sum before normalisation.

    Inputs: input_ids (B, S), segment_ids, word_embedding (words, D), position_embedding, segment_embedding, gamma (D),
    beta, mask (B, S), position_ids (B or 1, S).
    """
    w = BodyWriter(types)
    segment = None if w.given(1) is None or w.given(4) is None else 4
    return _normalized(w, attrs, 2, 3, segment, 5, 6, mask=7, positions=w.given(8))


def quantized(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """The same for quantized tables, gamma and beta.

    Inputs: the first eight as above, the scales of the five quantized ones, and their zero points.
    """
    w = BodyWriter(types)
    segments = w.given(1) is not None and w.given(4) is not None
    # Tables are dequantized row by row, after the look-up.
    gamma, beta = (w.op("DequantizeLinear", x, x + 6, x + 11) for x in (5, 6))
    return _normalized(w, attrs, 2, 3, 4 if segments else None, gamma, beta, mask=7, positions=None, quantized=True)


def _normalized(
    w: BodyWriter,
    attrs: Mapping[str, AttrValue],
    words: int,
    places: int,
    segments: int | None,
    gamma: int,
    beta: int,
    *,
    mask: int,
    positions: int | None,
    quantized: bool = False,
) -> Body:
    """``LayerNormalization`` of the sum of rows of tables."""

    def rows(table: int, indices: int) -> int:
        found = w.op("Gather", table, indices, axis=0)
        return w.op("DequantizeLinear", found, table + 6, table + 11) if quantized else found

    if positions is None:
        positions = w.unsqueezed(w.counted(w.size(0, 1)), 0)
    total = rows(words, 0)
    total = w.op("Add", total, rows(places, positions))
    if segments is not None:
        total = w.op("Add", total, rows(segments, 1))
    y = w.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=attrs["epsilon"])
    if w.given(mask) is not None:
        kept = w.op("ReduceSum", mask, w.constant([1]), keepdims=0)
    else:
        zero = w.constant([0], ir.DataType.INT32)
        kept = w.op("Expand", zero, w.size(0, 0))
    return w.body(y, kept, total)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("EmbedLayerNormalization", domain=MICROSOFT, definition=embed_layer_normalization,
    macs=count.output_elements, need=need_embedding(2))
declare("QEmbedLayerNormalization", domain=MICROSOFT, definition=quantized, macs=count.output_elements,
    need=need_embedding(2))
