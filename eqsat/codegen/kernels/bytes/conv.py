"""Convolutions of 8-bit integers: ``QLinearConv`` and ``ConvInteger`` in NHWC, as implicit GEMM on bytes.

The padding lies around the input and holds its zero point, so that the bias accounts for it like for any element. Where
the input is quantized at run time, the bias is computed from the zero point at the beginning of the kernel. A row of a
window is one run of bytes unless dilation or groups split it; a first layer of 3 channels and a 7 x 7 window then
sums runs of 21 bytes instead of 49 triples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Halo, Task, View, Want, Wants
from eqsat.codegen.kernels.bytes.byte_names import finish
from eqsat.codegen.kernels.bytes.c_values import Value
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.epilogue_steps import is_supported
from eqsat.codegen.kernels.bytes.gemm import IntegerGemm, write
from eqsat.codegen.kernels.bytes.weights import FoldedWeights, by_channel, fold, pack
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis
from eqsat.ops.windows import Windows, windows
from eqsat.schema.dtypes import BYTES, to_dtype
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import OpKey

ZERO_INPUT = 2
"""Number of the input of a ``ConvInteger`` that is the zero point of the data."""
WEIGHT_ZERO_INPUT = 3
"""Number of the input of a ``ConvInteger`` that is the zero point of the weights."""
OPERATORS = (OpKey("", "QLinearConv"), OpKey("com.microsoft", "QLinearConv"), OpKey("", "ConvInteger"))


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution whose quantization is known, except for zero points that the program computes.

    Attributes:
        at: Geometry of the windows.
        channel: Axis of the channels.
        spatial: The other axes, without the batch.
        group: Number of groups.
        weights: As in the model, ``[channels, channels of a group, *kernel]``: constant, or a view.
        weight_zero: Zero points of the weights, one or one per channel; None if the program computes them.
        zero: Zero point of the input; None where the program computes it.
        bias: int32, None without.
        scale: float32 ``[channels]`` from sums to the output's steps; None if the sums are the result.
        result_zero: Zero point of the result.
    """

    at: Windows
    channel: int
    spatial: tuple[int, ...]
    group: int
    weights: np.ndarray | View
    weight_zero: np.ndarray | None
    zero: int | None
    bias: np.ndarray | None
    scale: np.ndarray | None
    result_zero: int

    @property
    def order(self) -> tuple[int, ...]:
        """Axes from the outermost to the innermost: channels last."""
        return (0, *self.spatial, self.channel)

    def halo(self, x: View) -> Halo:
        """The number of elements that windows read beyond the input, by axis."""
        found, at = [(0, 0)] * x.rank, self.at
        for i, axis in enumerate(self.spatial):
            reach = (at.out[i] - 1) * at.strides[i] + at.extent[i] - at.begin[i] - x.shape[axis]
            # For a free size, the padding bounds the reads.
            found[axis] = (max(at.begin[i], 0), max(at.end[i] if is_free(reach) else reach, 0))
        return tuple(found)


def _scalar(value: np.ndarray | None) -> int:
    return 0 if value is None else int(value.reshape(()))


def weights_input(task: Task) -> int:
    """Number of the input that holds the weights."""
    return 3 if task.operator.name == "QLinearConv" else 1


def understood(task: Task, *, computed: bool = False) -> Convolution | None:
    """The convolution of a task; None if a parameter is not constant or a tensor does not have 8 bits.

    Args:
        task: The task.
        computed: Whether the weights are a view; then the zero points of a ``ConvInteger`` may be views too.
    """
    quantized = task.operator.name == "QLinearConv"
    place = weights_input(task)
    x, weights = task.inputs[0], task.inputs[place]
    if not isinstance(x, View) or weights is None or isinstance(weights, View) != computed:
        return None
    w_type = to_dtype(weights.dtype)
    if x.dtype not in BYTES or w_type not in BYTES or x.rank < 3:
        return None
    if task.outputs[0] is None or 0 in (*x.shape, *weights.shape, *task.output.shape):
        return None
    given = range(1, len(task.inputs)) if quantized else range(3, 3 if computed else len(task.inputs))
    if any(isinstance(task.inputs[i], View) for i in given if i != place):
        return None
    last = bool(task.attributes.get("channels_last"))
    channel = x.rank - 1 if last else 1
    spatial = tuple(a for a in range(1, x.rank) if a != channel)
    try:
        at = windows(task.attributes, [x.shape[a] for a in spatial], weights.shape[2:])
    except ValueError:
        return None
    group = int(task.attributes.get("group", 1))
    outputs = weights.shape[0]
    if outputs % group or x.shape[channel] != weights.shape[1] * group:
        return None
    if not quantized:
        zero, weight_zero = (task.inputs[i] if task.has(i) else None for i in (ZERO_INPUT, WEIGHT_ZERO_INPUT))
        weight_zero = np.zeros((), np.int8) if weight_zero is None else weight_zero
        if math.prod(weight_zero.shape) not in (1, outputs) or (zero is not None and math.prod(zero.shape) != 1):
            return None
        known = None if isinstance(zero, View) else _scalar(zero)
        weight_zero = None if isinstance(weight_zero, View) else weight_zero
        return Convolution(at, channel, spatial, group, weights, weight_zero, known, None, None, 0)
    numbers = [task.constant(i) for i in (1, 2, 4, 5, 6, 7)]
    if any(n is None for n in numbers):
        return None
    x_scale, x_zero, w_scale, w_zero, y_scale, y_zero = (n for n in numbers if n is not None)
    if any(n.size != 1 for n in (x_scale, x_zero, y_scale, y_zero)):
        return None
    if w_scale.size not in (1, outputs) or w_zero.size not in (1, outputs):
        return None
    scale = (x_scale.reshape(()) * w_scale / y_scale.reshape(())).astype(np.float32).reshape(-1)
    return Convolution(
        at,
        channel,
        spatial,
        group,
        weights,
        w_zero,
        _scalar(x_zero),
        task.constant(8),
        np.array(np.broadcast_to(scale, (outputs,))),
        _scalar(y_zero),
    )


def folded(found: Convolution, joined: bool) -> FoldedWeights:
    """The weights in the order that runs and taps are read; ``joined`` runs take in the last spatial axis."""
    assert isinstance(found.weights, np.ndarray)
    assert found.weight_zero is not None
    outputs, depth, *kernel = found.weights.shape
    grouped = found.weights.reshape(found.group, outputs // found.group, depth, *kernel)
    moved = np.moveaxis(grouped, 2, -1)
    run = depth * kernel[-1] if joined else depth
    shaped = moved.reshape(found.group, outputs // found.group, -1, run)
    zero = found.weight_zero
    zero = zero.reshape(found.group, -1) if zero.size > 1 else zero.reshape(1, 1)
    bias = None if found.bias is None else found.bias.reshape(found.group, -1)
    return fold(shaped, zero, bias)


def unsigned_zero(zero: int, dtype: ir.DataType) -> int:
    """Zero point of activations as kernels see them."""
    return zero + 128 if dtype == ir.DataType.INT8 else zero


def accepts(task: Task) -> bool:
    """Constant weights and quantization, and an epilogue on bytes."""
    found = understood(task)
    return found is not None and is_supported(task.epilogue) and (never_overflows(found) or folded(found, False).fits())


def never_overflows(found: Convolution) -> bool:
    """Whether sums stay within 32 bits for all weights and zero points."""
    depth = math.prod(found.weights.shape[1:])
    bias = 0 if found.bias is None else int(np.abs(found.bias.astype(np.int64)).max(initial=0))
    return bias + 3 * 255 * 255 * depth < 2**31


def result_order(view: View, order: tuple[int, ...]) -> tuple[int, ...]:
    """Channels last; row-major where both are the same except for halos, so that no copy is made only for another
    order.
    """
    return tuple(range(view.rank)) if all(view.shape[a] == 1 for a in order[1:-1]) else order


def wants(task: Task) -> Wants:
    """Channels last, and the padding around the input."""
    found = understood(task)
    assert found is not None
    return wants_of(task, found)


def wants_of(task: Task, found: Convolution) -> Wants:
    """The wants for the input and the result of a convolution."""
    source = ZERO_INPUT if found.zero is None else None
    x = Want(found.order, strict=True, halo=found.halo(task.view(0)), pad=found.zero or 0, pad_input=source)
    in_place = tuple(
        (-1 - k, 0)
        for k, operand in enumerate(task.epilogue.operands)
        if isinstance(operand, View) and operand.dtype == task.output.dtype
    )
    return Wants((x,), (Want(result_order(task.output, found.order), strict=True),), in_place)


def pointer_types(task: Task, constants: list[np.ndarray]) -> dict[str, str]:
    """C types that the parameters of a kernel point to."""
    found: dict[str, str] = {}
    for letter, views in (("x", task.inputs), ("e", task.epilogue.operands), ("y", task.outputs)):
        found |= {f"{letter}{i}": c_types.storage(v.dtype) for i, v in enumerate(views) if isinstance(v, View)}
    return found | {f"w{i}": c_types.c_type(c_types.as_stored(c)) for i, c in enumerate(constants)}


@dataclass(frozen=True, slots=True)
class Start:
    """The integers from which sums start.

    Attributes:
        name: Name of the pointer to them.
        constants: The kernel's constants after the weights.
        lines: Statements that compute them.
        scratch: Bytes of working memory.
        types: C types that further pointers point to.
    """

    name: str
    constants: list[np.ndarray]
    lines: list[str]
    scratch: int
    types: dict[str, str]


def start(found: Convolution, weights: FoldedWeights, dtype: ir.DataType, first: int) -> Start:
    """The start values of a convolution's sums, which depend on the zero point of the input.

    Args:
        found: The convolution.
        weights: Its folded weights.
        dtype: Element type of the input.
        first: Number of the first free parameter ``w<k>``.
    """
    if found.zero is not None:
        return Start(f"w{first}", [by_channel(weights.start(unsigned_zero(found.zero, dtype)))], [], 0, {})
    bias, sums = (by_channel(v.astype(np.int32)) for v in (weights.bias, weights.sums))
    shift = " + 128" if dtype == ir.DataType.INT8 else ""
    lines = [
        "int32_t *restrict bias = (int32_t *)scratch;",
        f"const int32_t zero = (int32_t)x{ZERO_INPUT}[0]{shift};",
        f"for (size_t i = 0; i < {bias.size}; i++) bias[i] = w{first}[i] - zero * w{first + 1}[i];",
    ]
    return Start("bias", [bias, sums], lines, bias.nbytes, {"bias": "int32_t"})


def output_axes(task: Task, epilogue: ByteEpilogue, axis: int) -> dict[str, int]:
    """Strides of the output and the epilogue's operands along an axis of the output."""
    return {"y0": task.output.strides[axis]} | {n: s[axis] for n, s in epilogue.strides.items()}


def generate(task: Task, isa: Isa) -> GeneratedKernel:
    """An implicit GEMM over the windows."""
    found = understood(task)
    assert found is not None
    x = task.view(0)
    weights = folded(found, is_joined(task, found))
    first = start(found, weights, x.dtype, 1)
    constants = [pack(weights.weights), *first.constants]
    zeros = None
    if weights.zeros is not None:
        zeros = f"w{len(constants)}"
        constants.append(by_channel(weights.zeros.astype(np.int32)))
    moved = {f"w{i}": c.size // found.group for i, c in enumerate(constants)}
    moved[first.name] = first.constants[0].size // found.group
    return summed(
        task, found, isa, Sums("w0", first.name, zeros, constants, moved, first.types, first.lines, first.scratch)
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The inputs of a convolution's sums.

    Attributes:
        weights: Name of the pointer to packed weights; the other names likewise.
        bias: Integers from which sums start.
        zeros: Zero points of the weights by channel, None where they are folded into the weights.
        constants: Of the kernel: ``w0``, ``w1``, ...
        moved: How far pointers move from one group to the next.
        types: C types of pointers other than operands and constants.
        prologue: Statements before everything.
        scratch: Bytes of working memory.
        packing: Statements for each group.
    """

    weights: str
    bias: str
    zeros: str | None
    constants: list[np.ndarray]
    moved: dict[str, int]
    types: dict[str, str]
    prologue: list[str]
    scratch: int
    packing: tuple[str, ...] = ()


def is_joined(task: Task, found: Convolution) -> bool:
    """Whether a row of a window is one run of bytes."""
    along = task.view(0).strides[found.spatial[-1]]
    return found.group == 1 and found.at.dilations[-1] == 1 and along == found.weights.shape[1]


def summed(task: Task, found: Convolution, isa: Isa, sums: Sums) -> GeneratedKernel:
    """The kernel of a convolution."""
    x, y, at = task.view(0), task.output, found.at
    depth, joined = found.weights.shape[1], is_joined(task, found)
    steps = [x.strides[a] for a in found.spatial]
    constants, moved = list(sums.constants), dict(sums.moved)
    scale = None
    if found.scale is not None:
        scale = f"w{len(constants)}"
        constants.append(by_channel(found.scale.reshape(found.group, -1)))
        moved[scale] = constants[-1].size // found.group
    epilogue = ByteEpilogue(task.epilogue, y.shape, found.channel, isa, len(constants))
    epilogue.result_stride = y.strides[found.channel]
    taps = [(k, s * d) for k, s, d in zip(at.kernel, steps, at.dilations, strict=True)]
    outputs = y.shape[found.channel] // found.group
    batch = Axis(y.shape[0], {"x0": x.strides[0]} | output_axes(task, epilogue, 0))
    pixels = [
        Axis(y.shape[a], {"x0": steps[i] * at.strides[i]} | output_axes(task, epilogue, a))
        for i, a in enumerate(found.spatial)
    ]
    groups = ()
    if found.group != 1:
        along = {n: s * outputs for n, s in output_axes(task, epilogue, found.channel).items()}
        groups = (Axis(found.group, {"x0": depth} | along | moved),)
    problem = IntegerGemm(
        "x0",
        x.dtype == ir.DataType.INT8,
        sums.weights,
        sums.bias,
        "y0",
        groups,
        (batch, *pixels),
        tuple(taps[:-1] if joined else taps),
        depth * at.kernel[-1] if joined else depth,
        outputs,
        x.slack >= 3,
        corner=-sum(b * s for b, s in zip(at.begin, steps, strict=True)),
        window_zeros=sums.zeros,
        vectors=() if scale is None else (scale,),
    )

    def result(total: str, address: Callable[[str], str], into: ByteEpilogue) -> Value:
        if scale is None:
            return Value(total, "i", ir.DataType.INT32)
        return into.rounded(f"FLOAT@({total}) * LD@({address(scale)})", found.result_zero, task.epilogue.dtype)

    types = pointer_types(task, [*constants, *epilogue.constants]) | sums.types
    text = write(problem, epilogue, result, types, isa, prologue=sums.prologue, packing=sums.packing)
    return kernel(text, constants, epilogue, isa, sums.scratch)


def kernel(
    text: str, constants: Sequence[np.ndarray], epilogue: ByteEpilogue, isa: Isa, scratch: int = 0
) -> GeneratedKernel:
    """A body, its constants, and the declarations it uses."""
    body, helpers = finish(text, isa)
    arrays = (*constants, *epilogue.constants, *epilogue.parameters.constants)
    return GeneratedKernel(body, arrays, scratch, (*helpers, *epilogue.helpers), contract=False)


FAMILY = register(Family("integer convolution", OPERATORS, accepts, generate, wants, rank=20))
