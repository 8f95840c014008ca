"""Normalisations; mirrors ``eqsat/ops/families/normalization.py`` and the fused ones of ``fused.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.elementwise_spelling import spelled
from eqsat.codegen.kernel import GeneratedKernel, Step, Task
from eqsat.codegen.kernel_templates import Template, TemplateTensor
from eqsat.codegen.kernels.loops.family import MICROSOFT, are, loops, shape_of
from eqsat.codegen.kernels.loops.reductions import axes_apart, joined
from eqsat.codegen.loop_writer import Indices
from eqsat.codegen.program import IDENTITY, ProgramNode, ProgramTensor
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import OpKey

_REAL = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def floats(task: Task) -> bool:
    """Whether a task has only floats, and its first output has readers."""
    return are(task, FLOATS) and task.outputs[0] is not None


def suffix(c: str) -> str:
    """Suffix of C's mathematics in a type."""
    return "f" if c == "float" else ""


def _standardized(
    template: Template,
    shape: Sequence[int],
    axes: Sequence[int],
    element: Callable[[Indices], str],
    scaled: Callable[[str, Indices], str],
    *,
    dtype: ir.DataType,
    place: Callable[[Indices], list[str]] = list,
    centred: bool = True,
    divided: bool = False,
    rounds: bool = False,
    statistics: Sequence[tuple[int, str]] = (),
    total: int | None = None,
) -> GeneratedKernel:
    """Lines by their statistics.

    Args:
        template: The writer of the kernel.
        shape: Shape of the elements.
        axes: Axes along which statistics are taken.
        element: An element from its index.
        scaled: The result from the standardized value and the element's index.
        dtype: Element type of the data.
        place: Maps the index of an element to that of its result; the same by default.
        centred: Whether the mean is subtracted.
        divided: Whether the last step is a division by the deviation and not a product with its inverse.
        rounds: Whether half precision is rounded before the scale.
        statistics: Further outputs that hold a value for each line.
        total: Output that holds the elements themselves, if it has readers.
    """
    kept, reduced = axes_apart(shape, axes)
    at = joined(axes)
    c = c_types.computed(dtype)
    used = total if total is not None and total < len(template.y) and template.y[total] is not None else None
    return template.fill(
        "loops/normalize.c.jinja",
        kept=kept,
        reduced=reduced,
        element=lambda i, j: element(at(i, j)),
        scaled=lambda v, i, j: scaled(v, at(i, j)),
        rounded=lambda v: template.rounded(v, dtype) if rounds else v,
        place=lambda i, j: place(at(i, j)),
        count=math.prod(reduced),
        c=c,
        f=suffix(c),
        epsilon=c_types.literal(template.task.attributes.get("epsilon", 1e-5), dtype),
        centred=centred,
        divided=divided,
        statistics=statistics,
        sum=used,
    )


def _loaded(x: TemplateTensor) -> Callable[[Indices], str]:
    return lambda at: x.load(*at)


def _affine(scale: TemplateTensor, bias: TemplateTensor | None = None) -> Callable[[str, Indices], str]:
    """Scale and bias, both as seen from the elements' indices."""

    def scaled(v: str, at: Indices) -> str:
        value = f"{v} * {scale.load(*at)}"
        return value if bias is None else f"{value} + {bias.load(*at)}"

    return scaled


def _stretched(template: Template, scale: int, bias: int | None = None) -> Callable[[str, Indices], str]:
    """Scale and bias by their operands' numbers, as broadcasting gives them the shape of the data."""
    shape = template.operand(0).shape
    added = None if bias is None else template.x[bias]
    return _affine(template.operand(scale).broadcast(shape), None if added is None else added.broadcast(shape))


@loops("batch normalisation loops", "BatchNormalization", accepts=floats)
def batch_normalization(task: Task) -> GeneratedKernel:
    """By given statistics, or in training by the batch's own."""
    template = Template(task)
    x = template.operand(0)
    others = tuple(n for a, n in enumerate(x.shape) if a != 1)
    training = bool(task.attributes.get("training_mode", 0))
    keep = task.attributes.get("momentum", 0.9)
    work = x.dtype if x.c == "double" else ir.DataType.FLOAT

    def element(c: Indices, j: Indices) -> list[str]:
        return [j[0], c[0], *j[1:]] if len(x.shape) > 1 else list(j)

    return template.fill(
        "loops/batch_normalize.c.jinja",
        specialised=True,
        channels=x.shape[1] if x.rank > 1 else 1,
        others=others,
        element=element,
        training=training,
        work=x.c,
        f=suffix(x.c),
        count=math.prod(others),
        epsilon=c_types.literal(task.attributes["epsilon"], work),
        keep=c_types.literal(keep, work),
        rest=c_types.literal(1 - keep, work),
    )


@loops("normalisation loops", "InstanceNormalization", accepts=floats)
def instance_normalization(task: Task) -> GeneratedKernel:
    """Each channel of each sample."""
    template = Template(task)
    x, scale, bias = template.operands(0, 1, 2)
    scaled = _affine(scale.vector(1, x.rank), bias.vector(1, x.rank))
    return _standardized(template, x.shape, range(2, x.rank), _loaded(x), scaled, dtype=x.dtype)


@loops("normalisation loops", "GroupNormalization", accepts=floats)
def group_normalization(task: Task) -> GeneratedKernel:
    """Groups of channels of each sample; scale and bias are per channel."""
    template = Template(task)
    x, scale, bias = template.operands(0, 1, 2)
    groups = int(task.attributes["num_groups"])
    many = x.shape[1] // groups
    parts = x.split(1, (groups, many))

    def channel(at: Indices) -> str:
        return f"{at[1]} * {many} + {at[2]}"

    return _standardized(
        template,
        parts.shape,
        range(2, parts.rank),
        _loaded(parts),
        lambda v, at: f"{v} * {scale.load(channel(at))} + {bias.load(channel(at))}",
        dtype=x.dtype,
        place=lambda at: [at[0], channel(at), *at[3:]],
        rounds=True,
    )


def _from_axis(task: Task) -> range:
    rank = len(shape_of(task, 0))
    return range(int(task.attributes.get("axis", -1)) % rank, rank)


@loops("normalisation loops", "LayerNormalization", accepts=floats)
def layer_normalization(task: Task) -> GeneratedKernel:
    """All elements from an axis on; mean and inverse deviation are outputs as well."""
    template = Template(task)
    x = template.operand(0)
    return _standardized(
        template,
        x.shape,
        _from_axis(task),
        _loaded(x),
        _stretched(template, 1, 2),
        dtype=x.dtype,
        rounds=True,
        statistics=((1, "mean"), (2, "inverse")),
    )


@loops("normalisation loops", "RMSNormalization", accepts=floats)
def rms_normalization(task: Task) -> GeneratedKernel:
    """All elements from an axis on by their root mean square."""
    template = Template(task)
    x = template.operand(0)
    return _standardized(
        template,
        x.shape,
        _from_axis(task),
        _loaded(x),
        _stretched(template, 1),
        dtype=x.dtype,
        centred=False,
        divided=True,
        rounds=True,
    )


def _skipped(template: Template, bias: int) -> Callable[[Indices], str]:
    """Elements of ``x + skip + bias``; ``skip`` may have no batch."""
    x, skip = template.operands(0, 1)
    spread = skip.broadcast(x.shape)
    extra = template.x[bias]
    last = None if extra is None else extra.broadcast(x.shape)

    def element(at: Indices) -> str:
        rest = "" if last is None else f" + {last.load(*at)}"
        return f"({x.load(*at)} + {spread.load(*at)}{rest})"

    return element


@loops("normalisation loops", "SkipLayerNormalization", domain=MICROSOFT, accepts=floats)
def skip_layer_normalization(task: Task) -> GeneratedKernel:
    """Layer normalisation over the last axis of ``x + skip + bias``; statistics and the sum are outputs as well."""
    template = Template(task)
    x = template.operand(0)
    return _standardized(
        template,
        x.shape,
        (x.rank - 1,),
        _skipped(template, 4),
        _stretched(template, 2, 3),
        dtype=x.dtype,
        statistics=((1, "mean"), (2, "inverse")),
        total=3,
    )


@loops("normalisation loops", "SkipSimplifiedLayerNormalization", domain=MICROSOFT, accepts=floats)
def skip_rms_normalization(task: Task) -> GeneratedKernel:
    """RMS normalisation over the last axis of ``x + skip + bias``."""
    template = Template(task)
    x = template.operand(0)
    return _standardized(
        template,
        x.shape,
        (x.rank - 1,),
        _skipped(template, 3),
        _stretched(template, 2),
        dtype=x.dtype,
        centred=False,
        statistics=((1, "0"), (2, "inverse")),
        total=3,
    )


@spelled("BatchNormalization")
def _batch_normalization(node: ProgramNode) -> list[ProgramNode] | None:
    """With known statistics ``x * k + (bias - mean * k)``, as inference runs it."""
    x, *parameters = node.inputs
    if node.attributes.get("training_mode") or any(node.outputs[1:]) or not isinstance(x, ProgramTensor):
        return None
    if not all(isinstance(p, np.ndarray) for p in parameters) or x.dtype not in _REAL:
        return None
    scale, bias, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    k = scale / np.sqrt(variance + node.attributes["epsilon"])
    per_channel = (-1, *[1] * (len(x.shape) - 2))
    dtype = x.dtype.numpy()
    factor = k.astype(dtype).reshape(per_channel)
    offset = (bias - mean * k).astype(dtype).reshape(per_channel)
    steps = [
        Step(OpKey("", "Mul"), {}, (0, 1), x.dtype),
        Step(OpKey("", "Add"), {}, (3, 2), x.dtype),
    ]
    return [ProgramNode(node.name, IDENTITY, {}, [x], [node.output], x.dtype, [factor, offset], steps)]
