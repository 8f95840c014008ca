"""Convolutions of 8-bit integers with computed weights, which are packed in each run.

The weights are requested with the channels innermost, so that those of an output channel are one row, in the order in
which runs and taps are read.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.conv import (
    OPERATORS,
    WEIGHT_ZERO_INPUT,
    ZERO_INPUT,
    Convolution,
    Sums,
    is_joined,
    never_overflows,
    summed,
    understood,
    unsigned_zero,
    wants_of,
    weights_input,
)
from eqsat.codegen.kernels.bytes.epilogue_steps import is_supported
from eqsat.codegen.kernels.bytes.scratch import Scratch
from eqsat.codegen.kernels.bytes.weights import PANEL, by_channel
from eqsat.codegen.kernels.shared.families import register
from eqsat.schema.size_questions import any_free

_FEWEST = 8
"""Output channels of a group from which on panels are filled well enough."""


def _understood(task: Task) -> Convolution | None:
    found = understood(task, computed=True)
    if found is None or any_free(found.weights.shape) or not never_overflows(found):
        return None
    return found if found.weights.shape[0] // found.group >= _FEWEST else None


def _accepts(task: Task) -> bool:
    return _understood(task) is not None and is_supported(task.epilogue)


def _wants(task: Task) -> Wants:
    found = _understood(task)
    assert found is not None
    place, rank = weights_input(task), len(found.weights.shape)
    weights = Want(order=(0, *range(2, rank), 1), strict=True, dense=True)
    given = wants_of(task, found)
    return replace(given, inputs=(*given.inputs, *[Want()] * (place - 1), weights))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    found = _understood(task)
    assert found is not None
    x, place = task.view(0), weights_input(task)
    view = task.view(place)
    total, depth, *kernel = view.shape
    outputs = total // found.group
    panels = -(-outputs // PANEL)
    run = depth * kernel[-1] if is_joined(task, found) else depth
    taps, words = math.prod(kernel) * depth // run, -(-run // 4)
    scratch = Scratch()
    packed = scratch.add("packed", "int8_t", panels * PANEL * taps * words * 4, 1)
    bias = scratch.add("bias", "int32_t", panels * PANEL, 4)
    group = found.group != 1
    constants: list[np.ndarray] = []
    start = None
    if found.bias is not None:
        constants.append(by_channel(found.bias.astype(np.int32).reshape(found.group, -1)))
        start = "w0" + (f" + n0 * {panels * PANEL}" if group else "")
    # The packed bytes are signed, 128 less than unsigned ones: so are their zero points.
    unsigned = view.dtype == ir.DataType.UINT8
    shift, filled, moved, zeros = 128 if unsigned else 0, "", {}, None
    if found.weight_zero is None:
        zeros = scratch.add("zeros", "int32_t", panels * PANEL, 4)
        given = task.view(WEIGHT_ZERO_INPUT)
        step = given.strides[0] if given.elements > 1 else 0
        at = f"(n0 * {outputs} + i) * {step}" if group else f"i * {step}"
        filled = (
            f"memset(zeros, 0, {panels * PANEL * 4});\n"
            f"for (size_t i = 0; i < {outputs}; i++) zeros[i] = (int32_t)x{WEIGHT_ZERO_INPUT}[{at}] - {shift};\n"
        )
    else:
        known = np.broadcast_to(found.weight_zero.astype(np.int32).reshape(-1) - shift, (total,))
        if known.any():
            zeros = f"w{len(constants)}"
            constants.append(by_channel(known.reshape(found.group, -1)))
            moved[zeros] = panels * PANEL
    prologue = list(scratch.lines)
    if found.zero is None:
        flip = " + 128" if x.dtype == ir.DataType.INT8 else ""
        prologue.append(f"const int32_t zero = (int32_t)x{ZERO_INPUT}[0]{flip};")
    text = render(
        "bytes/pack.c.jinja",
        source=f"x{place}" + (f" + n0 * {outputs * depth * math.prod(kernel)}" if group else ""),
        kinds=[(n, c) for n, c in ((PANEL, outputs // PANEL), (outputs % PANEL, 1)) if n and c],
        taps=taps,
        run=run,
        words=words,
        row=1,
        column=depth * math.prod(kernel),
        flip=unsigned,
        fill=128 if unsigned else 0,
        lanes=isa.lanes(),
        zero="zero" if found.zero is None else unsigned_zero(found.zero, x.dtype),
        zeros=f"{zeros} + n0 * {moved[zeros]}" if zeros in moved and group else zeros,
        start=start,
    )
    sums = Sums(packed, bias, zeros, constants, moved, scratch.types, prologue, scratch.size, (filled + text,))
    return summed(task, found, isa, sums)


register(Family("integer convolution of computed weights", OPERATORS, _accepts, _generate, _wants, rank=18))
