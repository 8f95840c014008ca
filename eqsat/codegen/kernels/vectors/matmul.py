"""Matrix products of float32: Gemm, MatMul and FusedMatMul, with constant or computed matrices, in any strides.

The left matrix is read where it lies. A constant right matrix is packed when the program is generated; a computed one
is read in place if its rows are contiguous and close together, and else packed into scratch memory first, which costs
one pass over it. Batches with the same right matrix are one tall product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from eqsat.codegen.elementwise_spelling import spelled
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants, dense_strides
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.kernels.shared.nests import Axis, collapse
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.codegen.kernels.vectors.column_product import ColumnProduct
from eqsat.codegen.kernels.vectors.column_product import write as write_column_product
from eqsat.codegen.kernels.vectors.epilogue import SLACK, VectorEpilogue, is_vector_epilogue, preceded
from eqsat.codegen.kernels.vectors.implicit_gemm import (
    ImplicitGemm,
    Packed,
    WeightRows,
    as_halves,
    pack,
    packed_size,
    panel_width,
    write,
)
from eqsat.codegen.program import RESHAPE, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size_questions import any_free, is_free, typical
from eqsat.schema.types import OpKey, Shape

_FLOAT = ir.DataType.FLOAT
_FEW_ROWS = 4
"""Up to this many rows, reading the weights takes longer than the products."""
_MANY_ROWS = 24
"""Rows of the left matrix from which on packing a scattered right one pays."""
_LONG = 32
"""Steps of the reduction from which on vectors along it pay for a single column."""
_NEAR = 128
"""Floats between rows up to which a right matrix is read in place."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix, or a batch of them: its pointer and its strides."""

    name: str
    shape: Shape
    strides: Shape
    array: np.ndarray | None = None

    def transposed(self) -> Matrix:
        """A view with rows and columns exchanged."""
        order = (*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2)
        shape = tuple(self.shape[axis] for axis in order)
        return replace(self, shape=shape, strides=tuple(self.strides[axis] for axis in order))

    def batch(self, rank: int) -> list[int]:
        """Strides along the batch axes of a result of some rank; 0 where the matrix is the same."""
        own = len(self.shape) - 2
        strides = [0 if n == 1 else s for n, s in zip(self.shape[:own], self.strides[:own], strict=True)]
        return [0] * (rank - 2 - own) + strides


def _matrix(task: Task, index: int, transpose: str, name: str) -> Matrix:
    found, is_transposed = task.inputs[index], bool(task.attributes.get(transpose, 0))
    assert found is not None
    if isinstance(found, View):
        matrix = Matrix(name, found.shape, found.strides)
        return matrix.transposed() if is_transposed else matrix
    # The program stores it as it is read.
    array = found.swapaxes(-1, -2) if is_transposed else found
    return Matrix("w0", array.shape, dense_strides(array.shape), array)


def _rank(value: View | np.ndarray | None) -> int:
    return -1 if value is None else len(value.shape)


def _accepts(task: Task) -> bool:
    given = [v for v in task.inputs if v is not None]
    if (
        task.output.dtype != _FLOAT
        or any(to_dtype(v.dtype) != _FLOAT or 0 in v.shape for v in given)
        or 0 in task.output.shape
    ):
        return False
    a, b, attributes = task.inputs[0], task.inputs[1], task.attributes
    if _rank(a) < 2 or _rank(b) < 2 or not (isinstance(a, View) or isinstance(b, View)):
        return False
    if attributes.get("transBatchA", 0) or attributes.get("transBatchB", 0):
        return False
    # A computed addend with a factor would be a product of its own.
    if len(task.inputs) > 2 and isinstance(task.inputs[2], View) and attributes.get("beta", 1.0) != 1:
        return False
    return is_vector_epilogue(task.epilogue)


def _wants(task: Task) -> Wants:
    inputs = tuple(Want(order=tuple(range(_rank(v)))) if isinstance(v, View) else Want() for v in task.inputs)
    operands = tuple((-1 - k, 0) for k, o in enumerate(task.epilogue.operands) if isinstance(o, View))
    return Wants(inputs, (Want(order=tuple(range(task.output.rank))),), operands)


@dataclass(frozen=True, slots=True)
class _Addend:
    """The addend of the product: a vector added to every row, or steps before the epilogue."""

    row: np.ndarray
    steps: tuple[tuple[str, View | np.ndarray], ...]


def _addend(task: Task, b: Matrix) -> _Addend:
    """The factor of the product (if it cannot go into the weights) and the third operand of Gemm."""
    columns = b.shape[-1]
    alpha, beta = float(task.attributes.get("alpha", 1.0)), float(task.attributes.get("beta", 1.0))
    steps: list[tuple[str, View | np.ndarray]] = []
    if b.array is None and alpha != 1:
        steps.append(("Mul", np.array(alpha, np.float32)))
    c = task.inputs[2] if len(task.inputs) > 2 else None
    row = np.zeros(0 if is_free(columns) else columns)
    if isinstance(c, View):
        steps.append(("Add", c.broadcast(task.output.shape)))
    elif c is not None:
        scaled = beta * c.astype(np.float64)
        if b.array is not None and (c.size == 1 or (c.size == columns and c.shape[-1] == columns)):
            row = np.broadcast_to(scaled.reshape(-1), (columns,))
        else:
            steps.append(("Add", scaled.astype(np.float32)))
    return _Addend(row, tuple(steps))


def generate(task: Task, isa: Isa, left: str = "x0", right: str = "x1") -> GeneratedKernel:
    """A kernel of a product, whose views may have any strides; ``left`` and ``right`` point to computed matrices."""
    a, b, y = _matrix(task, 0, "transA", left), _matrix(task, 1, "transB", right), task.output
    addend = _addend(task, b)
    along_rows = isa.vectors and _is_column_product(a, b, y)
    own = len(task.epilogue.operands)
    pointers = {own + k: "x2" for k, (_, operand) in enumerate(addend.steps) if isinstance(operand, View)}
    constants = [] if a.array is None else [np.append(a.array.ravel(), np.zeros(SLACK, np.float32))]
    epilogue = VectorEpilogue(
        preceded(task.epilogue, addend.steps),
        y.shape,
        y.rank - 2 if along_rows else y.rank - 1,
        isa,
        first_constant=int(a.array is not None or b.array is not None),
        names=pointers,
    )
    made = {"y0": y.strides, **epilogue.strides}
    axes = [
        (n, {a.name: sa} | {name: s[k] for name, s in made.items()}, sb)
        for k, (n, sa, sb) in enumerate(zip(y.shape, a.batch(y.rank), b.batch(y.rank), strict=False))
    ]
    shared = [Axis(n, strides) for n, strides, sb in axes if sb == 0]
    rows = Axis(y.shape[-2], {a.name: a.strides[-2]} | {name: s[-2] for name, s in made.items()})
    steps = b.shape[-2]
    if along_rows:
        every = [Axis(n, strides | {b.name: sb}) for n, strides, sb in axes]
        alpha = float(task.attributes.get("alpha", 1.0))
        if b.array is not None:
            weights = b.array.astype(np.float64).ravel() * alpha
            constants.append(np.append(weights, np.zeros(SLACK)).astype(np.float32))
        bias = float(addend.row[0]) if addend.row.size else 0.0
        column = ColumnProduct(a.name, b.name, (*every, rows), steps, bias)
        body, helpers = finish(write_column_product(column, epilogue, isa), isa)
        return GeneratedKernel(body, (*constants, *epilogue.constants), helpers=(*epilogue.helpers, *helpers))
    problem = ImplicitGemm(
        input=a.name,
        weights=b.name,
        output="y0",
        outer=(),
        pixels=collapse([*shared, rows]),
        taps=((steps, a.strides[-1]),),
        channels=b.shape[-1],
        channel={name: s[-1] for name, s in made.items()},
    )
    prologue, scratch = "", 0
    apart = [(n, strides, sb) for n, strides, sb in axes if sb != 0]
    if b.array is not None:
        matrices = b.array.reshape(-1, steps, b.shape[-1]).swapaxes(1, 2).astype(np.float64)
        matrices = matrices * float(task.attributes.get("alpha", 1.0))
        packed = pack(matrices, np.broadcast_to(addend.row, (len(matrices), b.shape[-1])))
        halves = as_halves(packed) if typical(math.prod(p.extent for p in problem.pixels)) <= _FEW_ROWS else None
        problem = replace(problem, layout=Packed(half=halves is not None))
        constants.append(packed if halves is None else halves)
        size = packed_size(b.shape[-1], steps)
        # From elements of the array to matrices, and to floats of packed matrices.
        apart = [(n, strides, sb // (steps * b.shape[-1]) * size) for n, strides, sb in apart]
    elif b.strides[-1] != 1 or (
        typical(b.strides[-2]) > _NEAR and typical(math.prod(p.extent for p in problem.pixels)) >= _MANY_ROWS
    ):
        moves = "".join(f" + n{i} * {sb}" for i, (_, _, sb) in enumerate(apart))
        prologue, scratch = packing(b, moves, isa)
        problem = replace(problem, weights="panels", layout=Packed(bias=False))
        apart = [(n, strides, 0) for n, strides, _ in apart]
    else:
        problem = replace(problem, layout=WeightRows(b.strides[-2]))
    problem = replace(problem, outer=tuple(Axis(n, strides | {problem.weights: sb}) for n, strides, sb in apart))
    declaration = "float *restrict panels = (float *)scratch;\n" if scratch else ""
    body, helpers = finish(declaration + write(problem, epilogue, isa, prologue), isa)
    return GeneratedKernel(body, (*constants, *epilogue.constants), scratch, (*epilogue.helpers, *helpers))


def _is_column_product(a: Matrix, b: Matrix, y: View) -> bool:
    """Whether rows and a single column are contiguous, and all sizes are known."""
    if any_free((*a.shape, *b.shape, *y.strides)):
        return False
    (rows, steps), (_, columns) = a.shape[-2:], b.shape[-2:]
    contiguous = (a.strides[-1] == 1 or steps == 1) and (b.strides[-2] == 1 or steps == 1)
    return columns == 1 and contiguous and rows >= _FEW_ROWS and steps >= _LONG


def packing(b: Matrix, moves: str, isa: Isa) -> tuple[str, int]:
    """Statements that pack the right matrix into ``panels``, and the bytes these take."""
    steps, columns = b.shape[-2:]
    width = panel_width(columns)
    kinds = [(width, size, count) for _, size, count in split(columns, width)]
    if is_free(columns):
        live = columns % width
        kinds = [(width, width, columns // width), *([(width, live, -(-live // width))] if live != 0 else [])]
    text = render(
        "vectors/pack_panels.c.jinja",
        panels=kinds,
        rows=steps,
        row=b.strides[-2],
        column=b.strides[-1],
        source=f"{b.name}{moves}",
        target="panels",
        lanes=isa.lanes(),
    )
    return f"{{\n{text}}}\n", 4 * (packed_size(columns, steps, bias=False) + SLACK)


register(
    Family(
        "packed matrix product",
        (OpKey("", "MatMul"), OpKey("", "Gemm"), OpKey("com.microsoft", "FusedMatMul")),
        _accepts,
        generate,
        _wants,
        rank=10,
    )
)


@spelled("MatMul")
def _of_vectors(node: ProgramNode) -> list[ProgramNode] | None:
    """A product with a vector is one with a matrix of one row or column; None for other products, and other types."""
    a, b = node.inputs
    if a is None or b is None or node.dtype != _FLOAT or (len(a.shape) > 1 and len(b.shape) > 1):
        return None
    before: list[ProgramNode] = []

    def as_matrix(x: ProgramOperand, shape: Shape) -> ProgramOperand:
        if not isinstance(x, ProgramTensor):
            return x.reshape(shape)
        made = ProgramTensor(f"{x.name}_matrix", x.dtype, shape)
        before.append(ProgramNode(f"{node.name}_operand", RESHAPE, {}, [x], [made], x.dtype))
        return made

    shape = [*node.output.shape]
    if len(a.shape) == 1:
        a = as_matrix(a, (1, *a.shape))
        shape.insert(len(shape) - (len(b.shape) > 1), 1)
    if len(b.shape) == 1:
        b = as_matrix(b, (*b.shape, 1))
        shape.append(1)
    product = ProgramTensor(f"{node.output.name}_matrix", node.output.dtype, tuple(shape))
    made = ProgramNode(node.name, node.operator, node.attributes, [a, b], [product], node.dtype)
    return [*before, made, ProgramNode(f"{node.name}_result", RESHAPE, {}, [product], list(node.outputs), node.dtype)]
