"""Attention of float32 whose scores are never written out: blocks of keys, and a softmax that goes along with them.

The sums of a row are scaled when a later block has a larger score (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao
et al. 2022, arXiv:2205.14135). The heads of a group are rows of the same matrix, so that keys and values are read once
for all of them. Operands lie as they come; few queries read the keys in place, more of them a transposed block.
Keys and values that are cached are concatenations, whose parts are written where they belong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.elementwise_spelling import spelled
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, dense_strides
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.program import RESHAPE, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.schema.dimension import broadcast_shapes
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size_choices import smallest
from eqsat.schema.size_questions import any_free, is_free
from eqsat.schema.types import OpKey, Shape

_FLOAT, _BOOL, _INT64 = ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT64
_ATTENTION, _CONCAT, _TRANSPOSE = OpKey("", "Attention"), OpKey("", "Concat"), OpKey("", "Transpose")
_MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = 3, 4, 5, 6
_PAST = "past"
"""Attribute of the spelled operator: the number of keys before those of the first query."""
_ROWS = 96
"""Queries of a block, so that threads have several blocks even with few heads."""
_MORE_ROWS = 204
"""Queries of a block with many heads that see all keys: each block packs the keys again."""
_MANY = 4
"""Heads of all samples together from which on there are many."""
_KEYS = 112
"""Keys of a block: an odd number of lines of the cache, so that rows of scores spread over its sets."""
_FEW = 4
"""Rows up to which a block of keys is not worth transposing."""
_FAR = 1 << 30
"""A window as wide as any."""


@dataclass(frozen=True, slots=True)
class _Place:
    """An operand: its pointer, type and strides."""

    pointer: str
    shape: Shape
    strides: Shape
    c: str = "float"


def _split(shape: Shape, strides: Shape, heads: int) -> tuple[Shape, Shape]:
    """(batch, positions, heads * size) seen as (batch, heads, positions, size)."""
    if len(shape) == 4:
        return shape, strides
    size = shape[2] // heads
    return (shape[0], heads, shape[1], size), (strides[0], size * strides[2], strides[1], strides[2])


def _heads(task: Task, index: int) -> int:
    name = "q_num_heads" if index == 0 else "kv_num_heads"
    return int(task.attributes.get(name) or 0)


def _shape(task: Task, index: int) -> Shape:
    x = task.inputs[index]
    assert x is not None
    return _split(x.shape, x.shape, _heads(task, index))[0]


def _accepts(task: Task) -> bool:
    given = [x for x in task.inputs[:3] if x is not None]
    if len(given) < 3 or any(to_dtype(x.dtype) != _FLOAT or len(x.shape) != len(given[0].shape) for x in given):
        return False
    if task.outputs[0] is None or any(y is not None for y in task.outputs[1:]) or task.epilogue.steps:
        return False
    rank, attributes = len(given[0].shape), task.attributes
    if rank not in (3, 4) or (rank == 3 and not (_heads(task, 0) and _heads(task, 1))):
        return False
    if (attributes.get("softmax_precision") or _FLOAT) != _FLOAT or attributes.get("softcap", 0.0) < 0:
        return False
    if task.has(_PAST_KEY) or task.has(_PAST_VALUE):
        return False  # Spelled as a concatenation.
    q, k, v = (_shape(task, i) for i in range(3))
    if any_free((q[1], k[1], q[3], v[3])) or 0 in (q[1], k[1], q[3], v[3]) or q[1] % k[1]:
        return False
    if k[:3] != v[:3] or q[0] != k[0] or q[3] != k[3]:
        return False
    lengths = task.inputs[_LENGTHS] if task.has(_LENGTHS) else None
    if lengths is not None and (to_dtype(lengths.dtype) != _INT64 or lengths.shape != (q[0],)):
        return False
    return not task.has(_MASK) or _is_mask(task.inputs[_MASK], (*q[:3], k[2]))


def _is_mask(mask: View | np.ndarray | None, scores: Shape) -> bool:
    """Whether it holds a number or a bool for the first keys of each query."""
    if mask is None or to_dtype(mask.dtype) not in (_FLOAT, _BOOL) or not 2 <= len(mask.shape) <= 4:
        return False
    try:
        return broadcast_shapes(mask.shape[:-1], scores[:-1]) == scores[:-1]
    except ValueError:
        return False


def _placed(task: Task, index: int, constants: list[np.ndarray]) -> _Place:
    """An operand where it lies; a constant becomes a parameter."""
    x = task.inputs[index]
    assert x is not None
    c = c_types.storage(to_dtype(x.dtype)) if index in (_MASK, _LENGTHS) else "float"
    if isinstance(x, View):
        return _Place(f"x{index}", x.shape, x.strides, c)
    constants.append(x)
    return _Place(f"w{len(constants) - 1}", x.shape, dense_strides(x.shape), c)


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    lanes, attributes = isa.lanes(), task.attributes
    constants: list[np.ndarray] = []
    places = []
    for index in range(3):
        found = _placed(task, index, constants)
        places.append(_Place(found.pointer, *_split(found.shape, found.strides, _heads(task, index))))
    q, k, v = places
    y = task.output
    out = _split(y.shape, y.strides, q.shape[1])[1]
    batch, heads, keys, depth = k.shape
    group, size = q.shape[1] // heads, v.shape[3]
    rows, columns = q.shape[2] * group, keys
    mask = _placed(task, _MASK, constants) if task.has(_MASK) else None
    if mask is not None:
        columns = smallest(keys, mask.shape[-1])
        view = View(_FLOAT, mask.shape, mask.strides).broadcast((*q.shape[:3], mask.shape[-1]))
        mask = _Place(mask.pointer, view.shape, view.strides, mask.c)
    lengths = _placed(task, _LENGTHS, constants) if task.has(_LENGTHS) else None
    left, right = (int(attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    reach = [n for n, is_given in ((0, attributes.get("is_causal", 0)), (right, right >= 0)) if is_given]
    is_bounded = bool(reach) or left >= 0  # Smaller blocks of rows skip more keys.
    many = not is_bounded and heads * (1 if is_free(batch) else batch) >= _MANY
    most = _MORE_ROWS if many else _ROWS
    block = most if is_free(rows) else _even(rows, most)
    width = _KEYS if is_free(columns) else min(_KEYS, -(-columns // 16) * 16)
    wide = -(-size // lanes) * lanes
    dots = not is_free(rows) and rows <= _FEW and k.strides[3] == 1 and depth % lanes == 0
    pack_values = v.strides[3] != 1 or size != wide
    lengths_in = {
        "q": block * depth,
        "scores": block * width,
        "y": block * wide,
        "most": block,
        "sums": block * lanes,
        "bias": width if mask else 0,
        "keys": 0 if dots else depth * width,
        "values": width * wide if pack_values else 0,
    }
    at, end = {}, 0
    for name, length in lengths_in.items():
        at[name] = end
        end += -(-length // 16) * 16
    softcap = float(attributes.get("softcap", 0.0))
    scale = attributes.get("scale")
    text = render(
        "vectors/attention.c.jinja",
        q=q,
        k=k,
        v=v,
        out=out,
        mask=mask,
        lengths=lengths,
        batch=batch,
        heads=heads,
        rows=rows,
        columns=columns,
        positions=q.shape[2],
        group=group,
        depth=depth,
        size=size,
        block=block,
        width=width,
        wide=wide,
        lanes=lanes,
        dots=dots,
        pack_values=pack_values,
        at=at,
        past=attributes.get(_PAST, 0),
        left=min(left, _FAR) if left >= 0 else None,
        right=min(*reach, _FAR) if reach else None,
        bounded=is_bounded,
        cut=lengths is not None or is_free(columns) or columns % lanes != 0,
        scale=c_types.literal(1 / math.sqrt(depth) if scale is None else float(scale), _FLOAT),
        softcap=c_types.literal(softcap, _FLOAT) if softcap else "",
    )
    body, helpers = finish(text, isa, "vectors/attention.h.jinja")
    return GeneratedKernel(body, tuple(constants), 4 * end, helpers)


def _even(rows: int, most: int) -> int:
    """Rows of a block, at most ``most``, so that all blocks have nearly as many."""
    blocks = max(-(-rows // most), 1)
    share = -(-rows // blocks)
    return max(share if blocks == 1 else -(-share // 6) * 6, 1)


@spelled("Attention")
def _spelled(node: ProgramNode) -> list[ProgramNode] | None:
    """Keys and values joined to those of the cache, which are further results; None without a cache."""
    inputs = [*node.inputs, *[None] * (_LENGTHS + 1 - len(node.inputs))]
    wanted = [*node.outputs, *[None] * (4 - len(node.outputs))]
    past = inputs[_PAST_KEY]
    if wanted[3] is not None or (past is None and wanted[1] is None and wanted[2] is None):
        return None
    if any(y is not None and len(y.shape) != 4 for y in wanted[1:3]):
        return None  # Without a cache, inference leaves the heads of three axes together.
    made: list[ProgramNode] = []
    for index, cached, result in ((1, inputs[_PAST_KEY], wanted[1]), (2, inputs[_PAST_VALUE], wanted[2])):
        new = inputs[index]
        if new is None:
            return None
        heads = int(node.attributes.get("kv_num_heads") or 1)
        parts = (
            [cached, _by_heads(node, new, heads, made)] if cached is not None else [_by_heads(node, new, heads, made)]
        )
        inputs[index] = _joined(node, parts, result, made)
    if inputs[0] is None:
        return None
    q = _by_heads(node, inputs[0], int(node.attributes.get("q_num_heads") or 1), made)
    y = node.output
    attributes = {**node.attributes, _PAST: 0 if past is None else past.shape[2]}
    operands: list[ProgramOperand | None] = [q, *inputs[1:_PAST_KEY], None, None, inputs[_LENGTHS]]
    if len(y.shape) == 4:
        return [*made, ProgramNode(node.name, _ATTENTION, attributes, operands, [y], node.dtype)]
    size = inputs[2].shape[3] if inputs[2] is not None else 0
    by_heads = ProgramTensor(f"{y.name}_by_heads", y.dtype, (*q.shape[:3], size))
    made.append(ProgramNode(node.name, _ATTENTION, attributes, operands, [by_heads], node.dtype))
    turned = ProgramTensor(f"{y.name}_turned", y.dtype, (q.shape[0], q.shape[2], q.shape[1], size))
    made.append(ProgramNode(node.name, _TRANSPOSE, {"perm": (0, 2, 1, 3)}, [by_heads], [turned], y.dtype))
    made.append(ProgramNode(node.name, RESHAPE, {}, [turned], [y], y.dtype))
    return made


def _by_heads(node: ProgramNode, x: ProgramOperand, heads: int, made: list[ProgramNode]) -> ProgramOperand:
    """(batch, positions, heads * size) as (batch, heads, positions, size)."""
    if len(x.shape) == 4:
        return x
    shape = (x.shape[0], x.shape[1], heads, x.shape[2] // heads)
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x.reshape(shape).transpose(0, 2, 1, 3))
    name = f"{node.name}_{len(made)}"
    parted = ProgramTensor(f"{name}_parted", x.dtype, shape)
    turned = ProgramTensor(f"{name}_turned", x.dtype, (shape[0], shape[2], shape[1], shape[3]))
    made.append(ProgramNode(node.name, RESHAPE, {}, [x], [parted], x.dtype))
    made.append(ProgramNode(node.name, _TRANSPOSE, {"perm": (0, 2, 1, 3)}, [parted], [turned], x.dtype))
    return turned


def _joined(
    node: ProgramNode, parts: Sequence[ProgramOperand], result: ProgramTensor | None, made: list[ProgramNode]
) -> ProgramOperand:
    """The parts one after the other along the positions, as a result if there is one."""
    first = parts[0]
    if len(parts) == 1 and result is None:
        return first
    dtype = to_dtype(first.dtype)
    if result is None:
        shape = (*first.shape[:2], sum(x.shape[2] for x in parts), first.shape[3])
        result = ProgramTensor(f"{node.name}_{len(made)}_joined", dtype, shape)
    made.append(ProgramNode(node.name, _CONCAT, {"axis": 2}, [*parts], [result], dtype))
    return result


register(Family("attention of rows", (_ATTENTION,), _accepts, _generate))
