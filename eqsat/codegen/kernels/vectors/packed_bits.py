"""Products with constant weights of 4 or 8 bits that have a scale for each block, unpacked in registers.

A decoder reads each weight once for one row of its input, so what counts is the number of bytes. Weights are arranged
when the program is generated: a vector is 16 columns, and a lane holds neighbouring weights of its column. Zero points
take no time in the inner loop: what they subtract is a multiple of the sum of a block of the row.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import OpKey

_PANEL = 16
_SCALES, _ZEROS, _GROUPS, _BIAS = 2, 3, 4, 5
_HEIGHTS = (4, 2, 1)


def _number(task: Task, name: str) -> int:
    return int(task.attributes.get(name) or 0)


def _accepts(task: Task) -> bool:
    x, bits = task.inputs[0], _number(task, "bits")
    if not isinstance(x, View) or x.dtype != ir.DataType.FLOAT or task.epilogue.steps or x.elements == 0:
        return False
    if bits not in (4, 8) or _number(task, "weight_prepacked") or task.has(_GROUPS):
        return False
    given = [task.constant(n) for n in range(1, _BIAS + 1) if task.has(n)]
    if any(v is None for v in given) or 0 in task.output.shape:
        return False
    # A word belongs to one block.
    held = 32 // bits
    return _number(task, "K") % held == 0 and _number(task, "block_size") % held == 0


def _wants(task: Task) -> Wants:
    rows = Want(order=tuple(range(task.output.rank)), strict=True, dense=True)
    return Wants((rows,), (rows,))


def _in_panels(x: np.ndarray) -> np.ndarray:
    """(columns, n) as (panels, n, 16), with zeros for the columns that the last panel lacks."""
    columns, count = x.shape
    padded = np.concatenate([x, np.zeros((-columns % _PANEL, count), x.dtype)])
    return np.ascontiguousarray(padded.reshape(-1, _PANEL, count).swapaxes(1, 2))


def _levels(packed: np.ndarray, bits: int) -> np.ndarray:
    """The numbers in each byte of the last axis, the lowest bits first."""
    parts = [packed >> shift & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)


def _words(weights: np.ndarray, columns: int, depth: int, bits: int) -> np.ndarray:
    """The weights of each column as words whose lowest bits are the first weight."""
    words = np.ascontiguousarray(weights.reshape(columns, -1)[:, : depth * bits // 8]).view("<u4")
    return _in_panels(words.astype(np.int32))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    bits, block = _number(task, "bits"), _number(task, "block_size")
    depth, columns = _number(task, "K"), _number(task, "N")
    blocks, held, half = -(-depth // block), 32 // bits, 2 ** (bits - 1)
    weights, scales = task.constant(1), task.constant(_SCALES)
    assert weights is not None and scales is not None
    rows = math.prod(task.view(0).shape[:-1])
    constants = [
        _words(weights, columns, depth, bits),
        _in_panels(scales.reshape(columns, blocks).astype(np.float32)),
    ]
    zeros, bias = task.constant(_ZEROS), task.constant(_BIAS)
    if zeros is not None:
        if zeros.dtype == np.uint8:
            zeros = _levels(zeros.reshape(columns, -1), bits)[:, :blocks]
        constants.append(_in_panels(zeros.reshape(columns, blocks).astype(np.float32) - half))
    if bias is not None:
        constants.append(_in_panels(bias.reshape(columns, 1).astype(np.float32)))
    text = render(
        "vectors/packed_bits.c.jinja",
        bits=bits,
        half=half,
        zeros=zeros is not None,
        bias=len(constants) - 1 if bias is not None else 0,
        rows=rows,
        columns=columns,
        depth=depth,
        block=block,
        blocks=blocks,
        panels=-(-columns // _PANEL),
        held=held,
        words=depth // held,
        words_of_block=block // held,
        lanes=isa.lanes(),
        heights=[h for h in _HEIGHTS if not isinstance(rows, int) or h <= rows],
    )
    body, helpers = finish(text, isa)
    scratch = 4 * rows * blocks if zeros is not None else 0
    return GeneratedKernel(body, tuple(c.reshape(-1) for c in constants), scratch, helpers)


register(Family("product with packed bits", (OpKey(MICROSOFT, "MatMulNBits"),), _accepts, _generate, _wants, rank=10))
