"""Products and look-ups of weights of 2, 4 or 8 bits that have a scale for each block (``com.microsoft``).

They are defined by integer operators that unpack the weights, so that constant weights are unpacked once.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from eqsat.ops import counters as count
from eqsat.ops import equal_axes
from eqsat.ops.definition import BodyWriter, integer, number, rank
from eqsat.ops.need_by_shapes import need_blocks, need_gathered_blocks
from eqsat.ops.registry import declare
from eqsat.schema.body import Body
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import AttrValue, TensorTypes

_BYTE = ir.DataType.UINT8
_PACKED = (2, 4, 8)


def unpacked(w: BodyWriter, x: int, bits: int, rank: int) -> int:
    """The numbers in each byte of the last axis, the lowest bits first; the other axes stay."""
    if bits == 8:
        return x
    mask = w.constant(2**bits - 1, _BYTE)
    parts = []
    for shift in range(0, 8, bits):
        moved = w.op("BitShift", x, w.constant(shift, _BYTE), direction="RIGHT") if shift else x
        parts.append(w.unsqueezed(w.op("BitwiseAnd", moved, mask), rank))
    return w.reshaped(w.op("Concat", *parts, axis=rank), *(0,) * (rank - 1), -1)


def matmul_n_bits(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """``A B' + bias``.

    Inputs: A (..., K), B (N, blocks, bytes of a block), scales (N * blocks), zero_points (packed or of A's type),
    g_idx (K), bias (N).
    """
    depth, width, block, bits = (integer(attrs, n) for n in ("K", "N", "block_size", "bits"))
    if bits not in _PACKED or block <= 0 or attrs.get("weight_prepacked"):
        return None
    w = BodyWriter(types)
    known = w.type(3)
    if w.given(4) is not None and (bits != 4 or (known is not None and known.dtype == _BYTE)):
        return None  # Here ONNX Runtime does not compute what the schema specifies.
    blocks = -(-depth // block)
    dtype = w.dtype
    levels = w.reshaped(unpacked(w, w.reshaped(1, width, blocks, -1), bits, 3), width, blocks, block)
    scales = w.reshaped(2, width, blocks, 1)
    zero = w.constant(2 ** (bits - 1), dtype)
    if known is not None and known.dtype == _BYTE:
        zeros = unpacked(w, w.reshaped(3, width, -1), bits, 2)
        zeros = w.op("Slice", zeros, *map(w.constant, ([0], [blocks], [1])))
        zero = w.op("Cast", w.reshaped(zeros, width, blocks, 1), to=int(dtype))
    elif known is not None:
        zero = w.reshaped(3, width, blocks, 1)
    levels = w.op("Cast", levels, to=int(dtype))
    if w.given(4) is not None:
        # Each row of B' names its block.
        levels = w.op("Slice", w.reshaped(levels, width, -1), *map(w.constant, ([0], [depth], [1])))
        scales = w.op("Gather", w.reshaped(scales, width, blocks), 4, axis=1)
        zero = zero if known is None else w.op("Gather", w.reshaped(zero, width, blocks), 4, axis=1)
        weights = w.op("Mul", w.op("Sub", levels, zero), scales)
    else:
        weights = w.reshaped(w.op("Mul", w.op("Sub", levels, zero), scales), width, -1)
        if blocks * block != depth:
            weights = w.op("Slice", weights, *map(w.constant, ([0], [depth], [1])))
    y = w.op("MatMul", 0, w.op("Transpose", weights, perm=[1, 0]))
    return w.body(y if w.given(5) is None else w.op("Add", y, 5))


def gather_block_quantized(attrs: Mapping[str, AttrValue], types: TensorTypes) -> Body | None:
    """Rows of dequantized data; bytes hold several numbers along the last axis.

    Inputs: data, indices, scales, zero_points.
    """
    dims, bits, block = rank(types, 0), integer(attrs, "bits"), integer(attrs, "block_size")
    data, at, scales = types[0], rank(types, 1), types[2]
    if dims is None or at is None or data is None or scales is None or bits not in _PACKED:
        return None
    gathered, axis = (integer(attrs, n) % dims for n in ("gather_axis", "quantize_axis"))
    packed = data.dtype == _BYTE
    if data.dtype not in (_BYTE, ir.DataType.INT4, ir.DataType.UINT4) or gathered == axis:
        return None
    if packed and axis != dims - 1:
        return None
    blocks, length = number(types, 2, axis), number(types, 0, axis)
    if blocks is None or length is None:
        return None
    w = BodyWriter(types)
    parts: list[int | None] = [0, 2, w.given(3)]
    if not packed:
        # Gather takes no integers of 4 bits.
        parts = [x if x is None or x == 2 else w.op("Cast", x, to=int(ir.DataType.INT8)) for x in parts]
    parts = [None if x is None else w.op("Gather", x, 1, axis=gathered) for x in parts]
    axis = axis + at - 1 if axis > gathered else axis
    dims = dims + at - 1
    levels, scale, zero = parts
    assert levels is not None and scale is not None
    if packed:
        length = length * (8 // bits)
        levels = unpacked(w, levels, bits, dims)
        if zero is not None:
            zero = w.op("Slice", unpacked(w, zero, bits, dims), *map(w.constant, ([0], [blocks], [axis])))
    default = w.constant(2 ** (bits - 1) if packed else 0, scales.dtype)
    real = w.op("Cast", levels, to=int(scales.dtype))
    offset = default if zero is None else w.op("Cast", zero, to=int(scales.dtype))
    which = w.constant([i // block for i in range(length)])
    if zero is not None:
        offset = w.op("Gather", offset, which, axis=axis)
    y = w.op("Mul", w.op("Sub", real, offset), w.op("Gather", scale, which, axis=axis))
    return w.body(y)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("MatMulNBits", domain=MICROSOFT, definition=matmul_n_bits, contracted=(0,), macs=count.product,
    need=need_blocks, together=equal_axes.columns)
declare("GatherBlockQuantized", domain=MICROSOFT, definition=gather_block_quantized,
    need=need_gathered_blocks)
