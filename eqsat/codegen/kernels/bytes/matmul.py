"""Matrix products of 8-bit integers: ``QLinearMatMul``, ``QGemm``, ``MatMulInteger`` and ``MatMulIntegerToFloat``.

A constant right matrix is packed when the program is generated, and all known parameters are folded into it. A computed
right matrix (attention) is packed and summed by the kernel, once for each matrix of a batch. Zero points of tensors
that are quantized at run time (``DynamicQuantizeLinear``) are numbers that the kernel reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.bytes.c_values import Value
from eqsat.codegen.kernels.bytes.conv import kernel, pointer_types, unsigned_zero
from eqsat.codegen.kernels.bytes.epilogue import ByteEpilogue
from eqsat.codegen.kernels.bytes.epilogue_steps import is_supported
from eqsat.codegen.kernels.bytes.gemm import IntegerGemm, write
from eqsat.codegen.kernels.bytes.scratch import Scratch
from eqsat.codegen.kernels.bytes.weights import PANEL, by_channel, fold, pack
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis
from eqsat.schema.dtypes import BYTES, to_dtype
from eqsat.schema.types import OpKey, Shape

_MS = "com.microsoft"
OPERATORS = (
    OpKey("", "QLinearMatMul"),
    OpKey("", "MatMulInteger"),
    OpKey(_MS, "QGemm"),
    OpKey(_MS, "MatMulIntegerToFloat"),
)
_RIGHT = {"QLinearMatMul": 3, "QGemm": 3, "MatMulInteger": 1, "MatMulIntegerToFloat": 1}
"""Number of the input that is the right matrix."""
_ZEROS = {"QLinearMatMul": (2, 5), "QGemm": (2, 5), "MatMulInteger": (2, 3), "MatMulIntegerToFloat": (4, 5)}
"""Numbers of the inputs that are the zero points of both matrices."""
_Number = np.ndarray | int
"""A constant, or the index of the input that holds it."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductOperations:
    """The operations around the product.

    Attributes:
        transposed: Whether each matrix is stored transposed.
        a_zero: Zero point of the left matrix: a number, or the index of its input.
        b_zero: The same for the right matrix; a constant may have one per column.
        bias: int32 of the columns.
        scale: float32 of the columns from sums to the result; None where sums are the result.
        scale_input: Index of the input with a further factor.
        addend: float32 of the columns, added to a result in floats.
        result_zero: Zero point of a result in bytes; None for floats.
    """

    transposed: tuple[bool, bool]
    a_zero: _Number
    b_zero: _Number
    bias: np.ndarray | None = None
    scale: np.ndarray | None = None
    scale_input: int | None = None
    addend: np.ndarray | None = None
    result_zero: int | None = None


def _number(task: Task, index: int, columns: int = 1) -> _Number | None:
    """A zero point or scale: a constant (possibly one per column), or the index of its input; None if it is neither."""
    found = task.inputs[index] if index < len(task.inputs) else None
    if found is None:
        return np.zeros((), np.int8)
    size = found.elements if isinstance(found, View) else found.size
    if isinstance(found, View):
        return index if size == 1 else None
    if size == 1:
        return found.reshape(())
    return found.reshape(-1) if size == columns and found.ndim == 1 else None


def _columns(value: np.ndarray, columns: int) -> np.ndarray:
    return np.array(np.broadcast_to(value.reshape(-1), (columns,)))


def understood(task: Task) -> ProductOperations | None:
    """The problem of a task; None if these kernels cannot compute it."""
    zeros = _zeros(task) if _has_matrices(task) else None
    return None if zeros is None else _READERS[task.operator.name](task, *zeros)


def _has_matrices(task: Task) -> bool:
    """Whether a task multiplies matrices of bytes that have elements, by one matrix if that is constant."""
    a, b = task.inputs[0], task.inputs[_RIGHT[task.operator.name]]
    if not isinstance(a, View) or b is None or len(a.shape) < 2 or len(b.shape) < 2 or task.outputs[0] is None:
        return False
    b_type = to_dtype(b.dtype)
    if a.dtype not in BYTES or b_type not in BYTES or 0 in (*a.shape, *b.shape, *task.output.shape):
        return False
    return isinstance(b, View) or math.prod(b.shape[:-2]) == 1


def _zeros(task: Task) -> tuple[_Number, _Number] | None:
    """The zero points of both matrices, None where these kernels cannot use them."""
    name = task.operator.name
    a_zero, b_zero = (_number(task, i, n) for i, n in zip(_ZEROS[name], (1, task.output.shape[-1]), strict=True))
    if a_zero is None or b_zero is None:
        return None
    if isinstance(task.inputs[_RIGHT[name]], View):
        return None if isinstance(b_zero, np.ndarray) and b_zero.ndim else (a_zero, b_zero)
    return None if isinstance(b_zero, int) else (a_zero, b_zero)


def _sums(task: Task, a_zero: _Number, b_zero: _Number) -> ProductOperations | None:
    """``MatMulInteger``."""
    return ProductOperations((False, False), a_zero, b_zero)


def _floats(task: Task, a_zero: _Number, b_zero: _Number) -> ProductOperations | None:
    """``MatMulIntegerToFloat``."""
    columns = task.output.shape[-1]
    a_scale, b_scale = _number(task, 2), _number(task, 3, columns)
    addend = task.constant(6)
    if a_scale is None or not isinstance(b_scale, np.ndarray) or (task.has(6) and addend is None):
        return None
    if addend is not None and addend.size not in (1, columns):
        return None
    scale = _columns(b_scale, columns) if isinstance(a_scale, int) else _columns(a_scale * b_scale, columns)
    return ProductOperations(
        (False, False),
        a_zero,
        b_zero,
        scale=scale.astype(np.float32),
        scale_input=a_scale if isinstance(a_scale, int) else None,
        addend=None if addend is None else _columns(addend, columns),
    )


def _linear(task: Task, a_zero: _Number, b_zero: _Number) -> ProductOperations | None:
    """``QLinearMatMul``."""
    numbers = _known_numbers(task, (1, 4, 6, 7))
    if numbers is None:
        return None
    f4 = np.float32
    a_scale, b_scale, scale, zero = numbers
    factor = (a_scale.astype(f4) * b_scale.astype(f4) / scale.astype(f4)).astype(f4)
    columns = _columns(factor, task.output.shape[-1])
    return ProductOperations((False, False), a_zero, b_zero, scale=columns, result_zero=int(zero))


def _gemm(task: Task, a_zero: _Number, b_zero: _Number) -> ProductOperations | None:
    """``QGemm``."""
    columns = task.output.shape[-1]
    c = task.constant(6)
    if task.has(6) and (c is None or c.size not in (1, columns) or (c.size > 1 and c.shape[-1] != columns)):
        return None
    numbers = _known_numbers(task, (1, 4, 7, 8) if task.has(7) else (1, 4))
    if numbers is None:
        return None
    f4 = np.float32
    a_scale, b_scale, *result = numbers
    scale = (f4(task.attributes.get("alpha", 1.0)) * f4(a_scale) * b_scale).astype(f4)
    return ProductOperations(
        (bool(task.attributes.get("transA", 0)), bool(task.attributes.get("transB", 0))),
        a_zero,
        b_zero,
        bias=None if c is None else _columns(c, columns),
        scale=_columns(np.asarray(scale / f4(result[0]) if result else scale, f4), columns),
        result_zero=int(result[1]) if result else None,
    )


def _known_numbers(task: Task, places: Sequence[int]) -> list[np.ndarray] | None:
    """Constant scales and zero points, the second possibly one per column; None if one of them is computed."""
    columns = task.output.shape[-1]
    numbers = [_number(task, index, columns if k == 1 else 1) for k, index in enumerate(places)]
    known = [n for n in numbers if isinstance(n, np.ndarray)]
    return known if len(known) == len(numbers) else None


_READERS = {"QLinearMatMul": _linear, "QGemm": _gemm, "MatMulInteger": _sums, "MatMulIntegerToFloat": _floats}


def accepts(task: Task) -> bool:
    """Known quantization, and an epilogue on bytes, sums or floats."""
    found = understood(task)
    if found is None or not is_supported(task.epilogue):
        return False
    a = task.view(0)
    depth = a.shape[-2] if found.transposed[0] else a.shape[-1]
    bias = 0 if found.bias is None else int(np.abs(found.bias.astype(np.int64)).max(initial=0))
    b = task.constant(_RIGHT[task.operator.name])
    return bias + 3 * 255 * 255 * depth < 2**31 or (b is not None and _folded(found, b).fits())


def wants(task: Task) -> Wants:
    """Rows of the left matrix and of the result contiguous, if possible."""
    found = understood(task)
    assert found is not None

    def order(rank: int, transposed: bool) -> tuple[int, ...]:
        return (*range(rank - 2), rank - 1, rank - 2) if transposed else tuple(range(rank))

    inputs = [Want()] * len(task.inputs)
    inputs[0] = Want(order(task.view(0).rank, found.transposed[0]))
    return Wants(tuple(inputs), (Want(tuple(range(task.output.rank))),))


def _folded(found: ProductOperations, b: np.ndarray):
    matrix = b.reshape(b.shape[-2:])
    rows = matrix if found.transposed[1] else matrix.T
    assert isinstance(found.b_zero, np.ndarray)
    bias = None if found.bias is None else found.bias.reshape(1, -1)
    return fold(rows[None, :, None, :], found.b_zero.reshape(1, -1), bias)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix, or a batch of them."""

    batch: Shape
    row: int
    column: int

    @classmethod
    def of(cls, view: View, transposed: bool, rank: int) -> _Matrix:
        *batch, row, column = view.strides
        lead = [0 if n == 1 else s for n, s in zip(view.shape, batch, strict=False)]
        return cls((*[0] * (rank - view.rank), *lead), *((column, row) if transposed else (row, column)))


def generate(task: Task, isa: Isa) -> GeneratedKernel:
    """An implicit GEMM over the rows of the left matrix."""
    return _Generator(task, isa).kernel()


class _Generator:
    def __init__(self, task: Task, isa: Isa) -> None:
        found = understood(task)
        assert found is not None
        self.task, self.isa, self.found = task, isa, found
        self.x, self.y = task.view(0), task.output
        self.a = _Matrix.of(self.x, found.transposed[0], self.y.rank)
        self.depth = self.x.shape[-2] if found.transposed[0] else self.x.shape[-1]
        self.rows, self.columns = self.y.shape[-2:]
        self.scratch = Scratch()
        self.constants: list[np.ndarray] = []
        self.prologue: list[str] = []
        self.packing: list[str] = []
        self.b: _Matrix | None = None
        self.right = _RIGHT[task.operator.name]
        b = task.inputs[self.right]
        if isinstance(b, View):
            self.b = _Matrix.of(b, found.transposed[1], self.y.rank)
        batch = range(self.y.rank - 2)
        self.apart = [k for k in batch if self.b is not None and self.b.batch[k] and self.y.shape[k] > 1]
        self.shared = [k for k in batch if k not in self.apart]

    def _constant(self, array: np.ndarray) -> str:
        self.constants.append(array)
        return f"w{len(self.constants) - 1}"

    def kernel(self) -> GeneratedKernel:
        found, task = self.found, self.task
        zero = self._zero(found.a_zero, self.x.dtype, "za")
        weights, bias, zeros = self._constant_weights(zero) if self.b is None else self._computed_weights(zero)
        scale = None if found.scale is None else self._scale(found.scale)
        addend = None if found.addend is None else self._constant(by_channel(found.addend.reshape(1, -1)))
        epilogue = ByteEpilogue(task.epilogue, self.y.shape, self.y.rank - 1, self.isa, len(self.constants))
        left, strides, packed = self._left()
        epilogue.result_stride = self.y.strides[-1] if self.columns > 1 else 1
        moves = {"y0": self.y.strides} | dict(epilogue.strides)

        def axis(k: int) -> dict[str, int]:
            return {left: strides[k]} | {name: s[k] for name, s in moves.items()}

        pixels = [Axis(self.y.shape[k], axis(k)) for k in (*self.shared, self.y.rank - 2)]
        problem = IntegerGemm(
            left,
            self.x.dtype == ir.DataType.INT8,
            weights,
            bias,
            "y0",
            tuple(Axis(self.y.shape[k], axis(k)) for k in self.apart),
            tuple(pixels),
            (),
            self.depth,
            self.columns,
            packed or self.x.slack >= 3,
            window_zeros=zeros,
            vectors=tuple(v for v in (scale, addend) if v is not None),
        )

        def result(total: str, address: Callable[[str], str], into: ByteEpilogue) -> Value:
            if scale is None:
                return Value(total, "i", ir.DataType.INT32)
            text = f"FLOAT@({total}) * LD@({address(scale)})"
            if found.result_zero is not None:
                return into.rounded(text, found.result_zero, task.epilogue.dtype)
            if addend is not None:
                text = f"{text} + LD@({address(addend)})"
            return into.floats(text)

        types = pointer_types(task, [*self.constants, *epilogue.constants]) | self.scratch.types
        text = write(
            problem,
            epilogue,
            result,
            types,
            self.isa,
            prologue=[*self.scratch.lines, *self.prologue],
            packing=self.packing,
        )
        return kernel(text, self.constants, epilogue, self.isa, self.scratch.size)

    # ---- numbers ---------------------------------------------------------------------------------------

    def _zero(self, zero: _Number, dtype: ir.DataType, name: str) -> int | str:
        """A zero point of unsigned bytes, as a number or as a variable of the kernel."""
        if isinstance(zero, np.ndarray):
            return unsigned_zero(int(zero), dtype)
        shift = " + 128" if dtype == ir.DataType.INT8 else ""
        self.prologue.append(f"const int32_t {name} = (int32_t)x{zero}[0]{shift};")
        return name

    def _scale(self, scale: np.ndarray) -> str:
        name = self._constant(by_channel(scale.reshape(1, -1)))
        if self.found.scale_input is None:
            return name
        count = by_channel(scale.reshape(1, -1)).size
        made = self.scratch.add("scale", "float", count, 4)
        source = f"x{self.found.scale_input}[0]"
        self.prologue.append(f"for (size_t i = 0; i < {count}; i++) {made}[i] = {source} * {name}[i];")
        return made

    # ---- the right matrix ------------------------------------------------------------------------------

    def _constant_weights(self, zero: int | str) -> tuple[str, str, str | None]:
        b = self.task.constant(self.right)
        assert b is not None
        folded = _folded(self.found, b)
        weights = self._constant(pack(folded.weights))
        if isinstance(zero, int):
            bias = self._constant(by_channel(folded.start(zero)))
        else:
            start, sums = (self._constant(by_channel(v.astype(np.int32))) for v in (folded.bias, folded.sums))
            count = -(-self.columns // PANEL) * PANEL
            bias = self.scratch.add("bias", "int32_t", count, 4)
            self.prologue.append(f"for (size_t i = 0; i < {count}; i++) bias[i] = {start}[i] - {zero} * {sums}[i];")
        zeros = None if folded.zeros is None else self._constant(by_channel(folded.zeros.astype(np.int32)))
        return weights, bias, zeros

    def _computed_weights(self, zero: int | str) -> tuple[str, str, str | None]:
        """Statements that pack the right matrix and add up its columns."""
        task, b = self.task, self.b
        assert b is not None
        view = task.view(self.right)
        panels = -(-self.columns // PANEL)
        words = -(-self.depth // 4)
        unsigned = view.dtype == ir.DataType.UINT8
        # The packed bytes are signed, 128 less than unsigned ones: so is their zero point.
        b_zero = self._zero(self.found.b_zero, view.dtype, "zb")
        b_zero = b_zero - 128 if isinstance(b_zero, int) else f"({b_zero} - 128)"
        packed = self.scratch.add("packed", "int8_t", panels * words * 64, 1)
        bias = self.scratch.add("bias", "int32_t", panels * PANEL, 4)
        start = None
        if self.found.bias is not None:
            start = self._constant(by_channel(self.found.bias.astype(np.int32).reshape(1, -1)))
        zeros = None
        if b_zero != 0:
            zeros = self.scratch.add("zeros", "int32_t", panels * PANEL, 4)
            self.prologue.append(f"for (size_t i = 0; i < {panels * PANEL}; i++) zeros[i] = {b_zero};")
        moves = "".join(f" + n{i} * {b.batch[k]}" for i, k in enumerate(self.apart))
        text = render(
            "bytes/pack.c.jinja",
            source=f"x{self.right}{moves}",
            kinds=[(n, c) for n, c in ((PANEL, self.columns // PANEL), (self.columns % PANEL, 1)) if n and c],
            taps=1,
            run=self.depth,
            words=words,
            row=b.row,
            column=b.column,
            flip=unsigned,
            fill=128 if unsigned else 0,
            lanes=self.isa.lanes(),
            zero=zero,
            zeros=zeros,
            start=start,
        )
        self.packing.append(text)
        return packed, bias, zeros

    # ---- the left matrix -------------------------------------------------------------------------------

    def _left(self) -> tuple[str, list[int], bool]:
        """Name and strides of the left matrix, packed where its rows are scattered."""
        a = self.a
        if a.column == 1 or self.depth == 1:
            return "x0", [*a.batch, a.row, a.column], False
        sizes = [self.y.shape[k] for k in self.shared] + [self.rows, self.depth]
        strides = [0] * self.y.rank
        step = self.depth
        for k in (self.y.rank - 2, *reversed(self.shared)):
            strides[k] = step if k == self.y.rank - 2 or a.batch[k] else 0
            step *= self.y.shape[k] if strides[k] else 1
        self.scratch.add("left", c_types.storage(self.x.dtype), math.prod(sizes), 1)
        loops = [(k, self.y.shape[k]) for k in (*self.shared, self.y.rank - 2) if strides[k]]
        steps = {**dict(enumerate(a.batch)), self.y.rank - 2: a.row}
        to = "".join(f" + i{k} * {strides[k]}" for k, _ in loops)
        moves = "".join(f" + n{i} * {steps[k]}" for i, k in enumerate(self.apart))
        origin = moves + "".join(f" + i{k} * {steps[k]}" for k, _ in loops)
        lines = [f"for (size_t i{k} = 0; i{k} < {n}; i{k}++)" for k, n in loops]
        lines.append(f"for (size_t k = 0; k < {self.depth}; k++) left[k{to}] = x0[k * {a.column}{origin}];")
        self.packing.append("\n".join(lines))
        return "left", strides, True


FAMILY = register(Family("integer matrix product", OPERATORS, accepts, generate, wants, rank=20))
