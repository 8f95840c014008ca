"""Matrix products of floats and integers; mirrors ``eqsat/ops/kernels/matmul.py``, ``integer.py`` and ``fused.py``.

Integers wrap around in the result's type, so that the order of summation is of no consequence. Sums of floats run over
the depth one after the other; against numpy's blocked sums the error grows with the depth, in units of the sum of the
products' magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.codegen import dtypes
from eqsat.codegen.expressions.forms import FLOATS
from eqsat.codegen.expressions.quantization import saturated
from eqsat.codegen.kernel import Kernel, Task
from eqsat.codegen.kernels.fused import activated, can_activate
from eqsat.codegen.kernels.loops import MICROSOFT, NUMBERS, are, loops, shape_of
from eqsat.codegen.templates import Result, Template, Tensor

WIDTH = 64
"""Columns whose sums are kept at a time."""
_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
_Finish = Callable[[Sequence[str], str, str], str]


@dataclass(frozen=True)
class Product:
    """Operands of a product as stacks of matrices.

    Attributes:
        left: (*batch, M, K).
        right: (*batch, K, N).
        batch: Common dimensions.
        place: Index of the result from that of the batch, row and column.
    """

    left: Tensor
    right: Tensor
    batch: tuple[int, ...]
    place: Callable[[Sequence[str], str, str], list[str]]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, K and N."""
        return self.left.shape[-2], self.left.shape[-1], self.right.shape[-1]


def stacked(left: Tensor, right: Tensor, y: Result) -> Product:
    """Operands with numpy's rules for vectors and batches."""
    row, column = left.rank == 1, right.rank == 1
    if row:
        left = left.split(0, (1, left.shape[0]))
    if column:
        right = right.split(0, (right.shape[0], 1))
    batch = y.shape[: y.rank - (not row) - (not column)]
    a = left.broadcast((*batch, *left.shape[-2:]))
    b = right.broadcast((*batch, *right.shape[-2:]))

    def place(i: Sequence[str], m: str, n: str) -> list[str]:
        return [*i, *([] if row else [m]), *([] if column else [n])]

    return Product(a, b, batch, place)


def _matrices(template: Template, first: int, second: int) -> tuple[Tensor, Tensor, Result]:
    left, right, y = template.x[first], template.x[second], template.y[0]
    assert left is not None and right is not None and y is not None
    return left, right, y


def product(
    template: Template,
    p: Product,
    accumulator: str,
    result: str,
    finish: _Finish,
    zeros: tuple[Tensor | None, Tensor | None] = (None, None),
    *,
    replaced: _Finish | None = None,
    source: Tensor | None = None,
) -> Kernel:
    """The kernel of a product.

    Args:
        template: What writes it.
        p: The operands.
        accumulator: C type of the sums.
        result: C type of what ``finish`` gives.
        finish: Result from ``sums[n]``, for indices of batch, row and column.
        zeros: Zero points, subtracted from the operands.
        replaced: Elements of the left operand, where they are not simply loaded.
        source: Operand whose range must be known beforehand, as ``scale`` and ``zero``.
    """
    m, k, n = p.sizes

    def left(b: Sequence[str], row: str, at: str) -> str:
        text = p.left.load(*b, row, at)
        zero = "" if zeros[0] is None else f" - {along_rows(zeros[0], p)(b, row)}"
        return f"({accumulator})({text}{zero})"

    def right(b: Sequence[str], at: str, column: str) -> str:
        text = p.right.load(*b, at, column)
        zero = "" if zeros[1] is None else f" - {along_columns(zeros[1], p)(b, column)}"
        return f"({accumulator})({text}{zero})"

    return template.fill(
        "matmul.c.jinja",
        specialised=True,
        contract=accumulator in ("float", "double"),
        batch=p.batch,
        rows=m,
        columns=n,
        depth=k,
        width=min(WIDTH, n),
        accumulator=accumulator,
        left=replaced or left,
        right=right,
        result=result,
        finish=finish,
        place=p.place,
        source=source,
    )


def along_rows(v: Tensor, p: Product) -> Callable[[Sequence[str], str], str]:
    """Elements of a parameter of the left operand: one for all, or one for each row."""
    shaped = v.split(0, (v.shape[0], 1)) if v.rank == 1 and v.size > 1 else v
    spread = shaped.broadcast((*p.batch, p.sizes[0], 1)) if v.size > 1 else v.vector(0, len(p.batch) + 2)
    return lambda b, row: spread.load(*b, row, 0)


def along_columns(v: Tensor, p: Product) -> Callable[[Sequence[str], str], str]:
    """Elements of a parameter of the right operand: one for all, or one for each column."""
    spread = v.broadcast((*p.batch, 1, p.sizes[2])) if v.size > 1 else v.vector(0, len(p.batch) + 2)
    return lambda b, column: spread.load(*b, 0, column)


def _accumulator(dtype: ir.DataType) -> str:
    """Type of the sums: unsigned for integers, as they wrap around."""
    if dtype in FLOATS:
        return dtypes.computed(dtype)
    return "uint64_t" if dtypes.size(dtype) == 8 else "uint32_t"


def _plain(template: Template, p: Product, y: Result, scale: str = "") -> Kernel:
    return product(template, p, _accumulator(y.value_dtype), y.c, lambda b, m, n: f"({y.c})sums[n]{scale}")


@loops("matrix loops", "MatMul", accepts=lambda task: are(task, NUMBERS))
def matmul(task: Task) -> Kernel:
    """Matrix product with numpy's broadcasting."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 1)
    return _plain(template, stacked(left, right, y), y)


@loops("matrix loops", "FusedMatMul", "TransposeMatMul", domain=MICROSOFT, accepts=lambda task: are(task, FLOATS))
def fused_matmul(task: Task) -> Kernel:
    """``alpha * A' B'``; ``transBatch`` moves the first axis before the last but one."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 1)
    attributes = task.attributes
    left = _arranged(left, bool(attributes.get("transA")), bool(attributes.get("transBatchA")))
    right = _arranged(right, bool(attributes.get("transB")), bool(attributes.get("transBatchB")))
    alpha = attributes["alpha"]
    scale = "" if alpha == 1.0 else f" * {dtypes.literal(alpha, y.value_dtype)}"
    return _plain(template, stacked(left, right, y), y, scale)


def _arranged(x: Tensor, transpose: bool, batch: bool) -> Tensor:
    axes = list(range(x.rank))
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if transpose and x.rank > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    return x.transpose(axes)


def _gemm(task: Task, activation: str = "") -> Kernel:
    template = Template(task)
    left, right, y = _matrices(template, 0, 1)
    attributes = task.attributes
    left = left.transpose((1, 0)) if attributes["transA"] else left
    right = right.transpose((1, 0)) if attributes["transB"] else right
    c = template.x[2] if task.has(2) else None
    p = stacked(left, right, y)
    dtype = y.value_dtype
    alpha, beta = attributes["alpha"], attributes["beta"]

    def scaled(value: str, factor: float) -> str:
        if factor == 1.0:
            return value
        if dtype in FLOATS:
            return f"{value} * {dtypes.literal(factor, dtype)}"
        number = dtypes.literal(factor, ir.DataType.DOUBLE)
        return template.convert(f"((double){value} * {number})", ir.DataType.DOUBLE, dtype)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        value = scaled(f"({y.c})sums[n]", alpha)
        if c is not None and beta != 0.0:
            term = scaled(c.broadcast(y.shape).load(m, n), beta)
            value = f"({value}) + ({term})" if dtype in FLOATS else f"({y.c})((uint64_t)({value}) + (uint64_t)({term}))"
        return activated(activation, value, attributes) if activation else value

    return product(template, p, _accumulator(dtype), y.c, finish)


@loops("matrix loops", "Gemm", accepts=lambda task: are(task, NUMBERS))
def gemm(task: Task) -> Kernel:
    """``alpha * A' B' + beta * C``."""
    return _gemm(task)


@loops("matrix loops", "FusedGemm", domain=MICROSOFT, accepts=lambda task: are(task, FLOATS) and can_activate(task))
def fused_gemm(task: Task) -> Kernel:
    """Gemm, then an activation."""
    return _gemm(task, str(task.attributes.get("activation") or ""))


@loops("integer matrix loops", "MatMulInteger", accepts=lambda task: are(task, _BYTES))
def matmul_integer(task: Task) -> Kernel:
    """Product of 8-bit operands in int32."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 1)
    zeros = (_zero(template, 2), _zero(template, 3))
    p = stacked(left, right, y)
    return product(template, p, "uint32_t", "int32_t", lambda b, m, n: "(int32_t)sums[n]", zeros)


def _zero(template: Template, number: int) -> Tensor | None:
    return template.x[number] if template.task.has(number) else None


@loops("integer matrix loops", "QLinearMatMul", accepts=lambda task: are(task, _BYTES, 0, 2, 3, 5, 7))
def qlinear_matmul(task: Task) -> Kernel:
    """Product of quantized operands, requantized."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 3)
    p = stacked(left, right, y)
    a_scale, b_scale, y_scale, y_zero = (template.x[k] for k in (1, 4, 6, 7))
    assert a_scale is not None and b_scale is not None and y_scale is not None and y_zero is not None
    rows, columns = along_rows(a_scale, p), along_columns(b_scale, p)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        scale = f"((float){rows(b, m)} * (float){columns(b, n)} / (float){only(y_scale)})"
        return saturated(f"rintf((float)(int32_t)sums[n] * {scale}) + (float){only(y_zero)}", y.value_dtype)

    return product(template, p, "uint32_t", y.c, finish, (template.x[2], template.x[5]))


def only(operand: Tensor | None) -> str:
    """The element of an operand that has one; 0 where it is absent."""
    return "0" if operand is None else operand.load(*["0"] * operand.rank)


def _to_float(template: Template, p: Product, y: Result, a_scale: str, b_scale: Tensor, bias: Tensor | None) -> _Finish:
    columns = along_columns(b_scale, p)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        value = f"(float)(int32_t)sums[n] * ({a_scale} * {columns(b, n)})"
        return value if bias is None else f"{value} + {bias.vector(0, 1).load(n)}"

    return finish


@loops("integer matrix loops", "MatMulIntegerToFloat", domain=MICROSOFT, accepts=lambda task: are(task, _BYTES, 0, 1))
def matmul_integer_to_float(task: Task) -> Kernel:
    """Product of 8-bit operands, scaled, plus a bias."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 1)
    p = stacked(left, right, y)
    b_scale = template.x[3]
    assert b_scale is not None
    finish = _to_float(template, p, y, only(template.x[2]), b_scale, _zero(template, 6))
    return product(template, p, "uint32_t", y.c, finish, (_zero(template, 4), _zero(template, 5)))


@loops(
    "integer matrix loops",
    "DynamicQuantizeMatMul",
    domain=MICROSOFT,
    accepts=lambda task: are(task, FLOATS, 0) and are(task, _BYTES, 1),
)
def dynamic_quantize_matmul(task: Task) -> Kernel:
    """As above, with the left operand quantized by its own range."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 1)
    p = stacked(left, right, y)
    b_scale = template.x[2]
    assert b_scale is not None
    finish = _to_float(template, p, y, "scale", b_scale, _zero(template, 4))

    def quantized(b: Sequence[str], m: str, k: str) -> str:
        real = p.left.load(*b, m, k)
        return f"(uint32_t)(saturate_float(rintf({real} / scale) + zero, 0.0f, 255.0f) - (int32_t)zero)"

    zeros = (None, _zero(template, 3))
    return product(template, p, "uint32_t", y.c, finish, zeros, replaced=quantized, source=left)


@loops("integer matrix loops", "QGemm", domain=MICROSOFT, accepts=lambda task: are(task, _BYTES, 0, 3))
def qgemm(task: Task) -> Kernel:
    """``alpha * A' B' + C`` of quantized operands, requantized or, without an output scale, as floats."""
    template = Template(task)
    left, right, y = _matrices(template, 0, 3)
    left = left.transpose((1, 0)) if task.attributes["transA"] else left
    right = right.transpose((1, 0)) if task.attributes["transB"] else right
    p = stacked(left, right, y)
    b_scale = template.x[4]
    assert b_scale is not None
    columns = along_columns(b_scale, p)
    c = _zero(template, 6)
    alpha = dtypes.literal(task.attributes["alpha"], ir.DataType.FLOAT)

    def finish(b: Sequence[str], m: str, n: str) -> str:
        total = "sums[n]" if c is None else f"(sums[n] + (uint32_t){c.broadcast(y.shape).load(m, n)})"
        scale = f"({alpha} * {only(template.x[1])} * {columns(b, n)})"
        if not task.has(7):
            return f"(float)(int32_t){total} * {scale}"
        value = f"rintf((float)(int32_t){total} * ({scale} / {only(template.x[7])})) + (float){only(template.x[8])}"
        return saturated(value, y.value_dtype)

    return product(template, p, "uint32_t", y.c, finish, (_zero(template, 2), _zero(template, 5)))


@loops("dynamic quantization", "DynamicQuantizeLinear", accepts=lambda task: are(task, FLOATS, 0), epilogue=False)
def dynamic_quantize_linear(task: Task) -> Kernel:
    """To uint8 with the scale and zero point of the data's own range."""
    return Template(task).fill("dynamic_quantize.c.jinja")


# ---- Einstein summation ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation of ``Einsum`` whose ellipses are written out as upper-case digits' places.

    Attributes:
        operands: Labels of each operand's axes.
        result: Labels of the result's axes.
        sizes: Length of each label.
    """

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    sizes: dict[str, int]


def equation(text: str, shapes: Sequence[tuple[int, ...]]) -> Equation | None:
    """Parse an equation; None if it does not fit the operands."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return None
    hidden = 0
    for term, shape in zip(terms, shapes, strict=True):
        if "..." in term:
            hidden = max(hidden, len(shape) - len(term.replace("...", "")))
    operands: list[tuple[str, ...]] = []
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        many = len(shape) - len(term.replace("...", ""))
        if many < 0 or (many and "..." not in term):
            return None
        before, _, after = term.partition("...")
        labels = (*before, *(f"...{hidden - many + k}" for k in range(many)), *after)
        for label, n in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), n) if n else 0
        operands.append(labels)
    dots = tuple(f"...{k}" for k in range(hidden))
    if arrow:
        before, found, after = right.partition("...")
        result = (*before, *(dots if found else ()), *after)
    else:
        every = [label for labels in operands for label in labels]
        result = (*dots, *sorted(label for label in set(every) if every.count(label) == 1 and label not in dots))
    return Equation(tuple(operands), result, sizes) if all(label in sizes for label in result) else None


def _equation(task: Task) -> Equation | None:
    return equation(str(task.attributes["equation"]), [shape_of(task, i) for i in range(len(task.inputs))])


@loops("Einstein summation", "Einsum", accepts=lambda task: are(task, NUMBERS) and _equation(task) is not None)
def einsum(task: Task) -> Kernel:
    """Sums of products over the labels that the result has not got."""
    template = Template(task)
    y = template.y[0]
    found = _equation(task)
    assert y is not None and found is not None
    summed = sorted(found.sizes.keys() - set(found.result))
    dtype = y.value_dtype
    accumulator = "double" if dtype in FLOATS else _accumulator(dtype)
    operands = []
    for number in range(len(task.inputs)):
        x = template.x[number]
        assert x is not None
        operands.append(x)

    def term(i: Sequence[str], j: Sequence[str]) -> str:
        at = dict(zip(found.result, i, strict=True)) | dict(zip(summed, j, strict=True))
        factors = []
        for x, labels in zip(operands, found.operands, strict=True):
            index = ["0" if n == 1 else at[label] for label, n in zip(labels, x.shape, strict=True)]
            factors.append(f"({accumulator}){x.load(*index)}")
        return " * ".join(factors)

    return template.fill(
        "einsum.c.jinja",
        kept=y.shape,
        summed=[found.sizes[label] for label in summed],
        accumulator=accumulator,
        product=term,
        finish=f"({y.c})total",
    )
