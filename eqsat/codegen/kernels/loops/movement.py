"""Data movement with positions known in advance; mirrors ``eqsat/ops/families/shaping.py`` and ``slicing.py``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen import program
from eqsat.codegen.elementwise_spelling import spelled
from eqsat.codegen.expressions.expression_table import Argument
from eqsat.codegen.expressions.qlinear import quantized
from eqsat.codegen.kernel import GeneratedKernel, Step, Task
from eqsat.codegen.kernel_templates import Template, TemplateResult, TemplateTensor, only
from eqsat.codegen.kernels.loops.blocks import AxisRun, Block, affine, boxes, filled, first, runs, whole
from eqsat.codegen.kernels.loops.family import MICROSOFT, dense, ints, loops, shape_of
from eqsat.codegen.program import IDENTITY, ProgramNode, ProgramOperand
from eqsat.model.inference.sized_shapes import slice_start
from eqsat.schema.size import Undecided
from eqsat.schema.size_questions import any_free
from eqsat.schema.slices import taken
from eqsat.schema.types import OpKey


@loops("reshaping loops", "Reshape", "Flatten", "Squeeze", "Unsqueeze", wants=dense(0))
@loops("reshaping loops", "ExpandDims", domain=MICROSOFT, wants=dense(0))
def reshape(task: Task) -> GeneratedKernel:
    """The elements in their order, under another shape."""
    template = Template(task)
    y, x = first(template)
    return filled(template, [whole(y, x.dense(y.shape))])


@loops("bit casts", "BitCast", epilogue=False)
def bit_cast(task: Task) -> GeneratedKernel:
    """The same bits as elements of another type of the same size."""
    return Template(task).fill("loops/bit_cast.c.jinja")


@loops("transposing loops", "Transpose")
def transpose(task: Task) -> GeneratedKernel:
    """Permuted axes."""
    template = Template(task)
    y, x = first(template)
    perm = task.attributes.get("perm") or tuple(reversed(range(x.rank)))
    return filled(template, [whole(y, x.transpose(perm))])


@loops("expanding loops", "Expand")
def expand(task: Task) -> GeneratedKernel:
    """Broadcast to the output's shape."""
    template = Template(task)
    y, x = first(template)
    return filled(template, [whole(y, x.broadcast(y.shape))])


@loops("tiling loops", "Tile")
def tile(task: Task) -> GeneratedKernel:
    """Repeated along each axis."""
    template = Template(task)
    y, x = first(template)
    # Each axis within its repetitions, so that the result is written in the order of its memory.
    shape = tuple(k for n, m in zip(y.shape, x.shape, strict=True) for k in (n // (m or 1), m))

    def place(i: Sequence[str]) -> list[str]:
        return [
            f"{outer} * {m} + {inner}" if n != 1 else inner
            for n, m, outer, inner in zip(shape[::2], x.shape, i[::2], i[1::2], strict=True)
        ]

    return filled(template, [Block(shape, place, x, lambda i: list(i[1::2]))])


def slice_places(task: Task) -> list[list[AxisRun]] | None:
    """Runs of ``Slice``; None unless its bounds are constants."""
    given = [ints(task.constant(i)) for i in range(1, 5)]
    if any(task.has(i) and given[i - 1] is None for i in range(1, 5)):
        return None
    starts, ends, axes, steps = given
    assert starts is not None and ends is not None
    shape = shape_of(task, 0)
    kept = [AxisRun(0, n, 0) for n in shape]
    along = range(len(starts)) if axes is None else axes
    for start, end, axis, step in zip(starts, ends, along, steps or (1,) * len(starts), strict=True):
        if any_free((start, end, shape[axis])):
            kept[axis] = AxisRun(0, task.output.shape[axis], slice_start(start, step, shape[axis]), step)
        else:
            at = taken(start, end, step, shape[axis])
            kept[axis] = AxisRun(0, len(at), at[0] if at else 0, step if len(at) > 1 else 1)
    return [[run] for run in kept]


@loops("slicing loops", "Slice", accepts=lambda task: slice_places(task) is not None)
def slices(task: Task) -> GeneratedKernel:
    """From start to end with a step."""
    template = Template(task)
    y, x = first(template)
    return filled(template, boxes(y, x, slice_places(task) or []))


@loops("splitting loops", "Split", epilogue=False)
def split(task: Task) -> GeneratedKernel:
    """Pieces along an axis."""
    template = Template(task)
    x = template.operand(0)
    axis = task.attributes["axis"] % x.rank
    blocks, at = [], 0
    sizes = ints(task.constant(1)) if task.has(1) else None
    count = task.attributes.get("num_outputs") or len(task.outputs)
    each = -(-x.shape[axis] // count)
    for number, y in enumerate(template.y):
        start = at
        at += sizes[number] if sizes is not None else each
        if y is None:
            continue
        rows = [[AxisRun(0, n, start if a == axis else 0)] for a, n in enumerate(y.shape)]
        blocks += boxes(y, x, rows)
    return filled(template, blocks)


@loops("concatenating loops", "Concat")
def concat(task: Task) -> GeneratedKernel:
    """The operands one after the other."""
    template = Template(task)
    y = template.result()
    axis = task.attributes["axis"] % y.rank
    blocks, at = [], 0
    for number in range(len(task.inputs)):
        if 0 not in shape_of(task, number):
            x = template.operand(number)
            blocks.append(_piece(y, x, axis, at))
        at += shape_of(task, number)[axis]
    return filled(template, blocks)


def _piece(y: TemplateResult, x: TemplateTensor, axis: int, at: int) -> Block:
    def place(i: Sequence[str]) -> list[str]:
        return [affine(k, 1, at) if a == axis else k for a, k in enumerate(i)]

    return Block(x.shape, place, x, order=y.order)


def _pad_places(task: Task) -> list[list[AxisRun]] | None:
    """For each axis the sources of its places; None if the widths are not constant."""
    widths = ints(task.constant(1))
    axes = ints(task.constant(3)) if task.has(3) else tuple(range(len(shape_of(task, 0))))
    if widths is None or axes is None:
        return None
    shape = shape_of(task, 0)
    mode = task.attributes.get("mode", "constant")
    places = [[AxisRun(0, n, 0)] if n else [] for n in shape]
    for k, axis in enumerate(axes):
        n = shape[axis]
        before, after = widths[k], widths[k + len(axes)]
        if any_free((n, before, after)):
            places[axis % len(shape)] = _free_pad(n, before, after, mode)
            continue
        kept = np.arange(n)[max(-before, 0) : n - max(-after, 0)]
        before, after = max(before, 0), max(after, 0)
        if mode == "constant" or not len(kept):
            places[axis % len(shape)] = runs([*[None] * before, *map(int, kept), *[None] * after])
        else:
            padded = np.pad(kept, (before, after), mode=mode)
            places[axis % len(shape)] = runs([int(p) for p in padded])
    return places


def _free_pad(n: int, before: int, after: int, mode: str) -> list[AxisRun]:
    """The runs of an axis of a free size; what negative widths leave is padded."""
    left, right = max(before, 0), max(after, 0)
    start, kept = left - before, n + (before - left) + (after - right)
    if (before < 0 or after < 0) and kept < (0 if mode == "constant" else 1):
        raise Undecided("an axis that negative pads leave empty")
    first: dict[str, tuple[int | None, int]] = {"constant": (None, 1), "edge": (0, 0), "reflect": (left, -1)}
    last: dict[str, tuple[int | None, int]] = {"constant": (None, 1), "edge": (kept - 1, 0), "reflect": (kept - 2, -1)}
    first["wrap"], last["wrap"] = (kept - left, 1), (0, 1)
    parts = [(0, left, *first[mode]), (left, kept, 0, 1), (left + kept, right, *last[mode])]
    found = [AxisRun(at, count, None if source is None else start + source, step) for at, count, source, step in parts]
    return [run for run in found if run.count != 0]


_PADS = "padding loops"


def _pads(task: Task) -> bool:
    return _pad_places(task) is not None and task.attributes.get("mode", "constant") in (
        "constant", "reflect", "edge", "wrap",
    )  # fmt: skip


@loops(_PADS, "Pad", accepts=_pads)
@loops(_PADS, "Pad", domain=MICROSOFT, accepts=_pads)
def pad(task: Task) -> GeneratedKernel:
    """Padded, or cropped where widths are negative."""
    template = Template(task)
    y, x = first(template)
    fill = "0"
    if task.has(2) and 0 not in shape_of(task, 2):
        fill = only(template.operand(2))
    return filled(template, boxes(y, x, _pad_places(task) or [], fill))


@loops("centering loops", "CenterCropPad", accepts=lambda task: task.constant(1) is not None)
def center_crop_pad(task: Task) -> GeneratedKernel:
    """Cropped or padded around the centre."""
    template = Template(task)
    y, x = first(template)
    rows = []
    for have, wanted in zip(x.shape, y.shape, strict=True):
        if wanted < have:
            rows.append([AxisRun(0, wanted, (have - wanted) // 2)])
        else:
            start = (wanted - have) // 2
            rows.append(runs([*[None] * start, *range(have), *[None] * (wanted - have - start)]))
    return filled(template, boxes(y, x, rows))


@loops("depth to space", "DepthToSpace")
def depth_to_space(task: Task) -> GeneratedKernel:
    """Blocks of channels become blocks of pixels."""
    template = Template(task)
    y, x = first(template)
    b = task.attributes["blocksize"]
    depth_first = task.attributes.get("mode", "DCR") == "DCR"
    channels = y.shape[1]
    # Axes of the loops: n, c, h, row, w, column.
    parts = x.split(1, (b, b, channels) if depth_first else (channels, b, b))
    source = parts.transpose((0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3))

    def place(i: Sequence[str]) -> list[str]:
        return [i[0], i[1], f"{i[2]} * {b} + {i[3]}", f"{i[4]} * {b} + {i[5]}"]

    return filled(template, [Block(source.shape, place, source)])


@loops("space to depth", "SpaceToDepth")
def space_to_depth(task: Task) -> GeneratedKernel:
    """Blocks of pixels become channels."""
    template = Template(task)
    y, x = first(template)
    b = task.attributes["blocksize"]
    channel_first = task.attributes.get("mode", "DCR") == "CRD"
    channels, h, w = x.shape[1], y.shape[2], y.shape[3]
    # Axes of the loops: n, c, row, column, h, w.
    source = x.split(3, (w, b)).split(2, (h, b)).transpose((0, 1, 3, 5, 2, 4))

    def place(i: Sequence[str]) -> list[str]:
        if channel_first:
            channel = f"({i[1]} * {b} + {i[2]}) * {b} + {i[3]}"
        else:
            channel = f"({i[2]} * {b} + {i[3]}) * {channels} + {i[1]}"
        return [i[0], channel, i[4], i[5]]

    return filled(template, [Block(source.shape, place, source)])


@loops("quantized concatenation", "QLinearConcat", domain=MICROSOFT)
def qlinear_concat(task: Task) -> GeneratedKernel:
    """Operands one after the other, each converted to the output's scale and zero point."""
    template = Template(task)
    y = template.result()
    axis = task.attributes["axis"] % y.rank
    pieces, at = [], 0
    scale, zero = (_single(template.x[k]) for k in (0, 1))
    for number in range(2, len(task.inputs), 3):
        x = template.operand(number)
        own_scale, own_zero = (_single(template.x[number + k]) for k in (1, 2))
        real = f"((float)value - (float){own_zero or '0.0f'}) * {own_scale}"
        text = quantized(f"({real})", scale, zero, y.dtype).text
        pieces.append({"x": x, "at": at, "value": text})
        at += x.shape[axis]
    return template.fill("loops/qlinear_concat.c.jinja", pieces=pieces, axis=axis)


def _single(operand: TemplateTensor | None) -> Argument | None:
    return None if operand is None else Argument(only(operand), operand.dtype)


@spelled("QLinearConcat", domain=MICROSOFT)
def _spelled_concat(node: ProgramNode) -> list[ProgramNode] | None:
    """Chains that convert operands to the result's parameters, and a ``Concat``; None if these are not all known."""
    y_scale, y_zero, *rest = node.inputs
    numbers = [y_scale, y_zero, *rest[1::3], *rest[2::3]]
    if any(not isinstance(n, np.ndarray) or n.size != 1 for n in numbers):
        return None
    made: list[ProgramNode] = []
    parts: list[ProgramOperand | None] = []
    for k, (x, scale, zero) in enumerate(zip(rest[::3], rest[1::3], rest[2::3], strict=True)):
        assert isinstance(scale, np.ndarray) and isinstance(zero, np.ndarray)
        assert isinstance(y_scale, np.ndarray) and isinstance(y_zero, np.ndarray)
        if not isinstance(x, program.ProgramTensor):
            return None
        if float(scale.reshape(())) == float(y_scale.reshape(())) and int(zero.reshape(())) == int(y_zero.reshape(())):
            parts.append(x)
            continue
        converted = program.ProgramTensor(f"{node.output.name}_{k}", x.dtype, x.shape)
        steps = [
            Step(OpKey("", "DequantizeLinear"), {"axis": 1, "block_size": 0}, (0, 1, 2), ir.DataType.FLOAT),
            Step(OpKey("", "QuantizeLinear"), {"axis": 1, "block_size": 0, "saturate": 1}, (5, 3, 4), x.dtype),
        ]
        operands: list[ProgramOperand] = [v.reshape(()) for v in (scale, zero, y_scale, y_zero)]
        made.append(ProgramNode(f"{node.name}_{k}", IDENTITY, {}, [x], [converted], x.dtype, operands, steps))
        parts.append(converted)
    concat = ProgramNode(
        node.name, OpKey("", "Concat"), {"axis": node.attributes["axis"]}, parts, list(node.outputs), node.dtype
    )
    return [*made, concat]
