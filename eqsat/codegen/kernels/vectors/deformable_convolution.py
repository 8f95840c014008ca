"""Deformable convolution of float32 in NHWC: a block of places is sampled into columns, which are multiplied.

Dai et al. 2017 (arXiv:1703.06211) and Zhu et al. 2018 (arXiv:1811.11168) describe the operator. The channels of a pixel
lie side by side, so that one sample of the offsets moves whole vectors of channels. The columns of a block stay in the
second cache while they are multiplied by the packed weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants, dense_strides
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop, collapse
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.codegen.kernels.vectors import convolution_geometry as convolution
from eqsat.codegen.kernels.vectors.computed_convolution import with_bias
from eqsat.codegen.kernels.vectors.epilogue import SLACK, is_vector_epilogue
from eqsat.codegen.kernels.vectors.implicit_gemm import ImplicitGemm, Packed, pack, packed_size, write
from eqsat.codegen.kernels.vectors.matmul import Matrix, packing
from eqsat.ops.windows import integers
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size_questions import any_free, is_free
from eqsat.schema.types import OpKey, Shape

_OFFSET, _BIAS, _MASK = 2, 3, 4
_NEAR_FLOATS = 1 << 16
"""Floats of the columns of a block."""
_FEWEST, _MOST = 24, 256
"""Places of a block: each block reads all weights."""
_LINE = 16
"""Floats of a line of the cache."""


def _accepts(task: Task) -> bool:
    given = [x for x in (*task.inputs, task.output) if x is not None]
    if any(to_dtype(x.dtype) != convolution.FLOAT or len(x.shape) not in (1, 4) or 0 in x.shape for x in given):
        return False
    x, w = task.view(0), task.inputs[1]
    if w is None or x.rank != 4 or any_free((x.shape[1], *w.shape)):
        return False
    return task.attributes.get("auto_pad", "NOTSET") == "NOTSET" and is_vector_epilogue(task.epilogue)


def _wants(task: Task) -> Wants:
    found = convolution.nhwc(task)
    weights = Want(order=convolution.channels_last(4), strict=True, dense=True)
    return Wants((*found.inputs, weights), found.outputs, found.in_place)


@dataclass(frozen=True, slots=True)
class _Moved:
    """An operand that says where or how much is sampled: its pointer and strides."""

    name: str
    strides: Shape

    def at(self, channel: str) -> str:
        """The element of a place."""
        steps = zip(("image", "row", "column"), (self.strides[0], *self.strides[2:]), strict=True)
        text = "".join(f" + (ptrdiff_t){variable} * ({step})" for variable, step in steps)
        return f"{self.name}[{channel} * ({self.strides[1]}){text}]"


@dataclass(frozen=True, slots=True)
class _Block:
    """Places that are sampled together: some rows and columns of the result.

    Attributes:
        loops: Over images, blocks of rows and blocks of columns.
        first: Row and column of the first one.
        size: Rows and columns.
    """

    loops: tuple[NestLoop, ...]
    first: tuple[int, int]
    size: tuple[int, int]


def _sides(places: Shape, floats: int) -> tuple[int, int]:
    """Rows and columns of a block.

    Args:
        places: Rows and columns of the result.
        floats: Of the column of a place.
    """
    rows, columns = places
    most = min(max(_NEAR_FLOATS // floats, _FEWEST), _MOST)
    if is_free(columns):
        return 1, most
    if columns > most:
        return 1, _even(columns, most)
    return (most // columns if is_free(rows) else _even(rows, most // columns)), columns


def _even(extent: int, most: int) -> int:
    """The size of parts that are about equal."""
    return -(-extent // -(-extent // most))


def _blocks(task: Task, floats: int, made: dict[str, Shape]) -> Iterator[_Block]:
    """All blocks, as loops over those of equal size."""
    images, _, *places = task.output.shape
    sides = _sides(tuple(places), floats)
    for parts in product(*(split(n, side) for n, side in zip(places, sides, strict=True))):
        (top, height, down), (left, width, right) = parts
        yield _Block(
            (
                NestLoop("image", images, strides={n: s[0] for n, s in made.items()}),
                NestLoop("below", down, strides={n: height * s[2] for n, s in made.items()}),
                NestLoop("beside", right, strides={n: width * s[3] for n, s in made.items()}),
            ),
            (top, left),
            (height, width),
        )


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, w, attributes = task.view(0), task.inputs[1], task.attributes
    assert w is not None
    groups, parts = int(attributes.get("group", 1)), int(attributes.get("offset_group", 1))
    channels, inputs, outputs, kernel = x.shape[1], w.shape[1], w.shape[0] // groups, w.shape[2:]
    taps = math.prod(kernel)
    steps, shared = inputs * taps, channels // parts
    size = packed_size(outputs, steps, bias=False)
    constants: list[np.ndarray] = []

    def moved(index: int) -> _Moved:
        found = task.inputs[index]
        if isinstance(found, View):
            return _Moved(f"x{index}", found.strides)
        assert found is not None
        constants.append(found)
        return _Moved(f"w{len(constants) - 1}", dense_strides(found.shape))

    offset, mask = moved(_OFFSET), moved(_MASK) if task.has(_MASK) else None
    prologue, filters = "", "filters"
    if isinstance(w, View):
        matrix = Matrix("x1", (steps, outputs), (1, steps))
        prologue, _ = packing(matrix, f" + g * {outputs * steps}", isa)
    else:
        filters = f"w{len(constants)}"
        constants.append(pack(w.transpose(0, 2, 3, 1).reshape(groups, outputs, steps), None))
    epilogue = with_bias(task, isa, _BIAS, len(constants))
    made = convolution.results(task, epilogue)

    def product_of(block: _Block) -> str:
        (height, width), column = block.size, channels * taps
        rows = Axis(height, {"columns": width * column, **{n: s[2] for n, s in made.items()}})
        places = Axis(width, {"columns": column, **{n: s[3] for n, s in made.items()}})
        group = {"columns": inputs, filters: size, **{n: outputs * s[1] for n, s in made.items()}}
        problem = ImplicitGemm(
            input="columns",
            weights=filters,
            output="y0",
            outer=collapse([Axis(groups, group)]),
            pixels=collapse([rows, places]),
            taps=((taps, channels), (inputs, 1)) if groups > 1 else ((steps, 1),),
            channels=outputs,
            channel={n: s[1] for n, s in made.items()},
            layout=Packed(bias=False),
            origin={n: block.first[0] * s[2] + block.first[1] * s[3] for n, s in made.items()},
        )
        return write(problem, epilogue, isa, around=block.loops)

    blocks = list(_blocks(task, channels * taps, made))
    places = max(math.prod(block.size) for block in blocks)
    zeros = -(-shared // _LINE) * _LINE
    packed = -(-(groups * size + SLACK) // _LINE) * _LINE if prologue else 0
    done, rest = shared // isa.lanes() * isa.lanes(), shared % isa.lanes()
    text = render(
        "vectors/deformable_convolution.c.jinja",
        blocks=[(block, product_of(block)) for block in blocks],
        prologue=prologue,
        groups=groups,
        size=size,
        zeros=zeros,
        packed=packed,
        x=x,
        parts=parts,
        shared=shared,
        kernel=kernel,
        strides=integers(attributes, "strides", (1, 1)),
        dilations=integers(attributes, "dilations", (1, 1)),
        begin=integers(attributes, "pads", (0,) * 4)[:2],
        offset=offset,
        mask=mask,
        lanes=isa.lanes(),
        whole=lambda pointer: f"LD@({pointer} + e)",
        rest=lambda pointer: f"load_part@({pointer} + {done}, {rest})",
    )
    body, helpers = finish(text, isa)
    scratch = 4 * (zeros + packed + places * channels * taps + SLACK)
    return GeneratedKernel(body, (*constants, *epilogue.constants), scratch, (*epilogue.helpers, *helpers))


register(
    Family(
        "deformable convolution",
        (OpKey("", "DeformConv"),),
        _accepts,
        _generate,
        _wants,
        rank=10,
    )
)
