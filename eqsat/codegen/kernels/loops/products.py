"""Matrix products as loops: the common part of products of floats and of integers.

Integers wrap around in the result's type, so that the order of summation does not matter. Sums of floats run over the
depth in order. Compared with numpy's blocked sums, the error grows with the depth, in units of the sum of the products'
magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.isa_names import finish as finish_names
from eqsat.codegen.kernel import GeneratedKernel
from eqsat.codegen.kernel_templates import Template, TemplateResult, TemplateTensor
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import any_free, is_free

WIDTH = 64
"""Columns whose sums are kept at a time."""
_FEW_ROWS = 4
"""With fewer rows, a panel of the right operand would be read too rarely to pay for packing it."""
Finish = Callable[[Sequence[str], str, str], str]


@dataclass(frozen=True)
class Product:
    """Operands of a product as stacks of matrices.

    Attributes:
        left: (*batch, M, K).
        right: (*batch, K, N).
        batch: Common dimensions.
        place: Index of the result from that of the batch, row and column.
    """

    left: TemplateTensor
    right: TemplateTensor
    batch: tuple[int, ...]
    place: Callable[[Sequence[str], str, str], list[str]]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, K and N."""
        return self.left.shape[-2], self.left.shape[-1], self.right.shape[-1]


def stacked(left: TemplateTensor, right: TemplateTensor, y: TemplateResult) -> Product:
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


def matrices(template: Template, first: int, second: int) -> tuple[TemplateTensor, TemplateTensor, TemplateResult]:
    """Both operands by their numbers, and the result."""
    left, right = template.operands(first, second)
    return left, right, template.result()


def product(
    template: Template,
    p: Product,
    accumulator: str,
    result: str,
    finish: Finish,
    zeros: tuple[TemplateTensor | None, TemplateTensor | None] = (None, None),
    *,
    replaced: Finish | None = None,
    source: TemplateTensor | None = None,
) -> GeneratedKernel:
    """The kernel of a product.

    Args:
        template: The writer of the kernel.
        p: The operands.
        accumulator: C type of the sums.
        result: C type of the value of ``finish``.
        finish: Result from ``sums[n]``, for indices of batch, row and column.
        zeros: Zero points, subtracted from the operands.
        replaced: Elements of the left operand, if they are not simply loaded.
        source: Operand whose range must be known in advance, because it gives ``scale`` and ``zero``.
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
        "loops/matmul.c.jinja",
        specialised=True,
        contract=accumulator in ("float", "double"),
        batch=p.batch,
        rows=m,
        columns=n,
        depth=k,
        width=WIDTH if is_free(n) else min(WIDTH, n),
        accumulator=accumulator,
        left=replaced or left,
        right=right,
        result=result,
        finish=finish,
        place=p.place,
        source=source,
    )


def product_of_doubles(template: Template, p: Product, finish: Finish, isa: Isa) -> GeneratedKernel | None:
    """The product of float64 in vectors; None if there are few rows or free sizes.

    Args:
        template: The writer of the kernel.
        p: The operands.
        finish: Result from ``sums[n]``, for indices of batch, row and column.
        isa: Instruction set.
    """
    m, k, n = p.sizes
    if any_free((m, k, n)) or k == 0 or m < _FEW_ROWS:
        return None
    wide = max(isa.lanes() // 2, 1)
    made = template.fill(
        "loops/double_product.c.jinja",
        scratch=8 * 2 * wide * k,
        specialised=True,
        contract=True,
        batch=p.batch,
        rows=m,
        columns=n,
        depth=k,
        wide=wide,
        block=8 if isa.registers >= 32 else 4,
        left=lambda b, row, at: p.left.load(*b, row, at),
        right=lambda b, at, column: p.right.load(*b, at, column),
        finish=finish,
        place=p.place,
    )
    body, helpers = finish_names(made.body, isa, "loops/doubles.h.jinja")
    return replace(made, body=body, helpers=(*made.helpers, *helpers))


def along_rows(v: TemplateTensor, p: Product) -> Callable[[Sequence[str], str], str]:
    """Elements of a parameter of the left operand: one for all, or one for each row."""
    shaped = v.split(0, (v.shape[0], 1)) if v.rank == 1 and v.size > 1 else v
    spread = shaped.broadcast((*p.batch, p.sizes[0], 1)) if v.size > 1 else v.vector(0, len(p.batch) + 2)
    return lambda b, row: spread.load(*b, row, 0)


def along_columns(v: TemplateTensor, p: Product) -> Callable[[Sequence[str], str], str]:
    """Elements of a parameter of the right operand: one for all, or one for each column."""
    spread = v.broadcast((*p.batch, 1, p.sizes[2])) if v.size > 1 else v.vector(0, len(p.batch) + 2)
    return lambda b, column: spread.load(*b, 0, column)


def accumulator_of(dtype: ir.DataType) -> str:
    """Type of the sums: unsigned for integers, as they wrap around."""
    if dtype in FLOATS:
        return c_types.computed(dtype)
    return "uint64_t" if c_types.size(dtype) == 8 else "uint32_t"


def plain(template: Template, p: Product, y: TemplateResult, scale: str = "") -> GeneratedKernel:
    return product(template, p, accumulator_of(y.value_dtype), y.c, lambda b, m, n: f"({y.c})sums[n]{scale}")
