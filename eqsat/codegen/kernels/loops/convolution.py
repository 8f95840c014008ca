"""Convolutions of any rank and type; mirrors ``eqsat/ops/families/convolution.py`` and ``integer.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.codegen.expressions.quantization import saturated
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, TemplateTensor, only
from eqsat.codegen.kernels.loops.family import MICROSOFT, are, loops
from eqsat.codegen.kernels.loops.fused import activated, can_activate
from eqsat.ops.families.convolution import transposed_padding
from eqsat.ops.windows import integers, windows
from eqsat.schema.dtypes import BYTES, FLOATS
from eqsat.schema.size_questions import is_free

WIDTH = 64
"""Outputs of a row whose sums are kept at a time."""


def _convolution(
    template: Template,
    source: TemplateTensor,
    weights: TemplateTensor,
    finish: Callable[[str], str],
    *,
    accumulator: str,
    zeros: tuple[TemplateTensor | None, TemplateTensor | None] = (None, None),
    added: TemplateTensor | None = None,
    channels_last: bool = False,
) -> GeneratedKernel:
    """A convolution.

    Args:
        template: The writer of the kernel.
        source: (N, C, *spatial).
        weights: (M, C / group, *kernel).
        finish: The result from ``sums[i]`` for the channel ``m``; ``added`` is in it already.
        accumulator: C type of the sums.
        zeros: Zero points of the operands; the weights may have one per channel.
        added: An operand of the output's shape, added to the sum.
        channels_last: Whether output 0 has its channels last.
    """
    y = template.result()
    maps, depth = weights.shape[:2]
    groups = source.shape[1] // max(depth, 1)
    at = windows(template.task.attributes, source.shape[2:], weights.shape[2:])
    x_zero, w_zero = zeros

    def weight(m: str, c: str, k: Sequence[str]) -> str:
        text = weights.load(m, c, *k)
        return text if w_zero is None else f"({accumulator})({text} - {w_zero.vector(0, 1).load(m)})"

    def element(b: str, c: str, outer: Sequence[str], column: str) -> str:
        text = source.load(b, c, *outer, column)
        return text if x_zero is None else f"({accumulator})({text} - {only(x_zero)})"

    def place(b: str, m: str, o: Sequence[str], column: str) -> list[str]:
        return [b, *o, column, m] if channels_last else [b, m, *o, column]

    def finished(b: str, m: str, o: Sequence[str], column: str) -> str:
        value = finish("sums[i]")
        return value if added is None else f"{value} + {added.load(*place(b, m, o, column))}"

    return template.fill(
        "loops/conv.c.jinja",
        specialised=True,
        contract=accumulator in ("float", "double"),
        source=source,
        at=at,
        maps=maps,
        depth=depth,
        width=WIDTH if is_free(at.out[-1]) else min(WIDTH, at.out[-1]),
        accumulator=accumulator,
        weight=weight,
        element=element,
        channel=lambda m, c: c if groups == 1 else f"{m} / {maps // groups} * {depth} + {c}",
        outer=[f"p{axis}" for axis in range(len(at.kernel) - 1)],
        result=y.c,
        finish=finished,
        place=place,
    )


@loops("convolution loops", "Conv", accepts=lambda task: are(task, FLOATS))
def conv(task: Task) -> GeneratedKernel:
    """Convolution of floats, plus a bias."""
    template = Template(task)
    x, w = template.operands(0, 1)
    bias = template.x[2]
    added = "" if bias is None else f" + {bias.load('m')}"
    return _convolution(template, x, w, lambda v: v + added, accumulator=x.c)


@loops(
    "convolution loops", "FusedConv", domain=MICROSOFT, accepts=lambda task: are(task, FLOATS) and can_activate(task)
)
def fused_conv(task: Task) -> GeneratedKernel:
    """Convolution plus a residual, then an activation."""
    template = Template(task)
    x, w = template.operands(0, 1)
    y = template.result()
    bias, residual = template.x[2], template.x[3]
    added = "" if bias is None else f" + {bias.load('m')}"
    name = str(task.attributes.get("activation") or "")
    outer = [f"o{axis}" if n != 1 else "0" for axis, n in enumerate(y.shape[2:-1])]
    rest = "" if residual is None else f" + {residual.load('b', 'm', *outer, 'first + i')}"
    return _convolution(
        template, x, w, lambda v: activated(name, f"{v}{added}{rest}", task.attributes), accumulator=x.c
    )


@loops("integer convolution loops", "ConvInteger", accepts=lambda task: are(task, BYTES))
def conv_integer(task: Task) -> GeneratedKernel:
    """Convolution of 8-bit integers in int32."""
    template = Template(task)
    x, w = template.operands(0, 1)
    zeros = (template.x[2], template.x[3])
    return _convolution(template, x, w, lambda v: f"(int32_t){v}", accumulator="uint32_t", zeros=zeros)


@loops("integer convolution loops", "QLinearConv", accepts=lambda task: are(task, BYTES, 0, 2, 3, 5, 7))
@loops(
    "integer convolution loops", "QLinearConv", domain=MICROSOFT, accepts=lambda task: are(task, BYTES, 0, 2, 3, 5, 7)
)
def qlinear_conv(task: Task) -> GeneratedKernel:
    """Convolution of quantized operands; weights may have a scale and zero point for each output channel."""
    template = Template(task)
    x, w = template.operands(0, 3)
    y = template.result()
    w_scale = template.operand(4)
    dtype = y.value_dtype
    last = bool(task.attributes.get("channels_last"))
    if last:
        x = x.transpose((0, x.rank - 1, *range(1, x.rank - 1)))
    bias = template.x[8]
    scale = f"({only(template.x[1])} * {w_scale.vector(0, 1).load('m')} / {only(template.x[6])})"
    zero = only(template.x[7])

    def finish(value: str) -> str:
        total = f"(int32_t){value}" if bias is None else f"((int64_t)(int32_t){value} + {bias.load('m')})"
        return saturated(f"rintf((float){total} * {scale}) + (float){zero}", dtype)

    zeros = (template.x[2], template.x[5])
    return _convolution(template, x, w, finish, accumulator="uint32_t", zeros=zeros, channels_last=last)


@loops("transposed convolution loops", "ConvTranspose", accepts=lambda task: are(task, FLOATS))
def conv_transpose(task: Task) -> GeneratedKernel:
    """Transposed convolution, gathered by the outputs."""
    template = Template(task)
    x, w = template.operands(0, 1)
    y = template.result()
    rank = x.rank - 2
    spatial, kernel = x.shape[2:], w.shape[2:]
    strides = integers(task.attributes, "strides", (1,) * rank)
    dilations = integers(task.attributes, "dilations", (1,) * rank)
    begin, out = transposed_padding(task.attributes, spatial, kernel, strides, dilations)
    groups = task.attributes.get("group", 1)
    return template.fill(
        "loops/conv_transpose.c.jinja",
        spatial=spatial,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        begin=begin,
        out=out,
        maps=y.shape[1],
        per_group=w.shape[1],
        depth=x.shape[1] // groups,
        places=[f"p{axis}" for axis in range(rank)],
    )
