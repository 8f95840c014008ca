"""``DynamicQuantizeLSTM``: an LSTM whose products are of bytes, on both sides.

Inputs are quantized as a whole by their range, states in each step, as :mod:`eqsat.ops.families.recurrent` has it. The
weights are constant: they are packed, with their zero points folded, when the program is generated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Epilogue, Family, GeneratedKernel, Task
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.byte_names import TEMPLATE
from eqsat.codegen.kernels.bytes.c_values import Value
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.gemm import IntegerGemm, write
from eqsat.codegen.kernels.bytes.weights import FoldedWeights, by_channel, fold, pack
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop
from eqsat.codegen.kernels.vectors.recurrent import (
    Products,
    accepts_floats,
    cell,
    floats_of,
    length_of,
    parts_of,
    wants,
)
from eqsat.codegen.parallel import whole
from eqsat.schema.dtypes import BYTES
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import OpKey

_WEIGHTS = ((1, 8, 9), (2, 10, 11))
"""Operands of both products: weights, their scales and zero points."""
_ALIGNED = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Matrix:
    """Constant weights of all directions.

    Attributes:
        folded: Bytes and what belongs to them.
        scale: float32 ``[directions, channels]``.
    """

    folded: FoldedWeights
    scale: np.ndarray

    @property
    def run(self) -> int:
        """Elements that are summed."""
        return self.folded.weights.shape[3]

    @property
    def row(self) -> int:
        """Bytes of a row of the other operand: whole words."""
        return -(-self.run // 4) * 4


def _matrix(task: Task, weights: int, scales: int, zeros: int) -> _Matrix | None:
    w, scale, zero = task.constant(weights), task.constant(scales), task.constant(zeros)
    if w is None or scale is None or scale.dtype != np.float32 or (zero is None and task.has(zeros)):
        return None
    if ir.DataType.from_numpy(w.dtype) not in BYTES or (zero is not None and zero.dtype != w.dtype):
        return None
    directions, _, channels = w.shape
    columns = (directions, channels)
    zero = np.zeros((directions, 1), w.dtype) if zero is None else zero.reshape(directions, -1)
    folded = fold(w.transpose(0, 2, 1)[:, :, None, :], np.broadcast_to(zero, columns), None)
    return _Matrix(folded, np.array(np.broadcast_to(scale.reshape(directions, -1), columns)))


def _accepts(task: Task) -> bool:
    if not accepts_floats(task, 0, 3, 5, 6, 7) or (task.has(3) and task.constant(3) is None):
        return False
    found = [_matrix(task, *numbers) for numbers in _WEIGHTS]
    return all(m is not None and m.folded.fits() for m in found)


class _Scratch:
    """Pieces of the working memory, after the floats of the cell."""

    def __init__(self, floats: int) -> None:
        self.start = -(-4 * floats // _ALIGNED) * _ALIGNED
        self.size = self.start
        self.lines: list[str] = []

    def add(self, name: str, c: str, size: int) -> None:
        """Adds a piece of ``size`` bytes."""
        self.lines.append(f"{c} *const {name} = ({c} *)((unsigned char *)scratch + {self.size});")
        self.size += -(-size // _ALIGNED) * _ALIGNED


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    x, matrices = task.view(0), [_matrix(task, *numbers) for numbers in _WEIGHTS]
    of_input, of_state = (m for m in matrices if m is not None)
    (time, batch, _), n = x.shape, of_state.run
    directions, gates = of_input.scale.shape
    biases = np.zeros((directions, 2, gates), np.float32)
    if (b := task.constant(3)) is not None:
        biases = b.reshape(biases.shape)
    constants: list[np.ndarray] = []
    # Lines that define the variables of a direction, and the types of all pointers that a product reads.
    lines: list[str] = []
    types = {"levels": "uint8_t", "start": "int32_t", "factor": "float", "projected": "float", "sums": "float"}

    def of_direction(name: str, c: str, values: np.ndarray) -> str:
        constants.append(values)
        types[name] = c
        lines.append(f"const {c} *const {name} = w{len(constants) - 1} + d * {values.size // directions};")
        return name

    added = of_direction("added", "float", by_channel(biases.sum(1, dtype=np.float32)))
    length = length_of(task, constants)
    count = by_channel(of_input.scale).size // directions
    scratch = _Scratch(floats_of(batch, time, gates, n))
    scratch.add("levels", "uint8_t", batch * (time * of_input.row + of_state.row))
    scratch.add("start", "int32_t", 4 * count)
    scratch.add("factor", "float", 4 * count)

    def product(number: int, matrix: _Matrix, rows: list[NestLoop], pixels: list[Axis], target: str, step: int) -> str:
        weights = of_direction(f"bytes{number}", "int8_t", pack(matrix.folded.weights))
        totals = of_direction(f"totals{number}", "int32_t", by_channel(matrix.folded.sums).astype(np.int32))
        scales = of_direction(f"scales{number}", "float", by_channel(matrix.scale))
        zeros = matrix.folded.zeros
        if zeros is not None:
            of_direction(f"zeros{number}", "int32_t", by_channel(zeros).astype(np.int32))
        made = next(v for v in task.outputs if v is not None)
        epilogue = ByteEpilogue(Epilogue(ir.DataType.FLOAT), made.shape, made.rank - 1, isa, 0)
        epilogue.result = target
        problem = IntegerGemm(
            "levels",
            False,
            weights,
            "start",
            target,
            (),
            tuple(pixels),
            (),
            matrix.run,
            gates,
            True,
            window_zeros=None if zeros is None else f"zeros{number}",
            vectors=("factor", added) if target == "projected" else ("factor",),
        )

        def result(total: str, address, into: ByteEpilogue) -> Value:
            text = f"FLOAT@({total}) * LD@({address('factor')})"
            return into.floats(f"{text} + LD@({address(added)})" if target == "projected" else text)

        return render(
            "bytes/recurrent.c.jinja",
            rows=rows,
            source="x0" if target == "projected" else "h",
            step=step,
            row=matrix.row,
            parts=parts_of(matrix.run, isa),
            lanes=isa.lanes(),
            ends=bool(length) and target == "projected",
            count=count,
            totals=totals,
            scales=scales,
            product=whole(write(problem, epilogue, result, types, isa)),
        )

    every = [
        NestLoop("t", time, strides={"source": x.strides[0], "levels": batch * of_input.row}),
        NestLoop("b", batch, strides={"source": x.strides[1], "levels": of_input.row}),
    ]
    pixels = [
        Axis(time, {"levels": batch * of_input.row, "projected": batch * gates}),
        Axis(batch, {"levels": of_input.row, "projected": gates}),
    ]
    inputs = product(0, of_input, every, pixels, "projected", x.strides[2])
    state = [NestLoop("b", batch, strides={"source": n, "levels": of_state.row})]
    states = product(1, of_state, state, [Axis(batch, {"levels": of_state.row, "sums": gates})], "sums", 1)
    products = Products(
        "LSTM",
        directions,
        gates,
        n,
        "\n".join([*scratch.lines, *lines, inputs]) + "\n",
        states,
        scratch=scratch.size - 4 * floats_of(batch, time, gates, n),
        templates=(TEMPLATE,),
    )
    return cell(task, isa, products, constants, length)


register(Family("recurrent bytes", (OpKey(MICROSOFT, "DynamicQuantizeLSTM"),), _accepts, _generate, wants, rank=10))
