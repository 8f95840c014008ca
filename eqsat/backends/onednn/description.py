"""The description of a region for the generated program, in oneDNN's terms: tensors, operations, post-operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat.backends.region import Tensor
from eqsat.schema.types import Shape

MOST_POSTS = 24
"""Links of a chain of post-operations; oneDNN takes 32, and some links become two."""
MOST_AXES = 12
"""Dimensions of a tensor."""
DTYPES = {
    ir.DataType.FLOAT: "dnnl_f32",
    ir.DataType.INT32: "dnnl_s32",
    ir.DataType.INT8: "dnnl_s8",
    ir.DataType.UINT8: "dnnl_u8",
}
LIMITS = {ir.DataType.INT8: (-128.0, 127.0), ir.DataType.UINT8: (0.0, 255.0)}
"""Smallest and largest value of the types that a float is rounded to."""
VIEWS = ("RESHAPE", "PERMUTE", "SLICE")
"""Operations that only look at a tensor in another way."""


class NoPrimitive(Exception):
    """Raised for a kernel without oneDNN primitives; gives the reason."""


@dataclass(eq=False, slots=True)
class Memory:
    """A tensor as oneDNN sees it.

    Attributes:
        dtype: Element type.
        shape: Dimensions; a scalar has one of one element.
        tensor: Of the program, where it is one.
        array: Its elements, of a constant.
        strides: Of a constant that is stored in another order of axes, in elements.
    """

    dtype: ir.DataType
    shape: Shape
    tensor: Tensor | None = None
    array: np.ndarray | None = None
    strides: Shape = ()


@dataclass(eq=False, slots=True)
class Post:
    """A post-operation.

    Attributes:
        algorithm: ``dnnl_eltwise_...``, ``dnnl_binary_...`` or ``dnnl_prelu``.
        alpha: Of an elementwise function.
        beta: Likewise.
        operand: The second one of a binary operation, and the slopes of ``dnnl_prelu``.
    """

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: Memory | None = None


@dataclass(eq=False, slots=True)
class Operation:
    """A primitive, or a view; fields as in the generated table.

    Attributes:
        kind: Name in ``enum kind`` of the generated program.
        dst: Its result.
        src: The tensor that it reads.
        weights: Second operand.
        bias: One float32 per output channel, in the result's scale.
        scales: Scales of the sum of products of integers: one, or one per output channel.
        sources: Operands of a concatenation.
        algorithm: The algorithm, for kinds with several.
        numbers: Further fields by name.
        posts: Post-operations on each element.
        limits: Limits of an integer result, to which values still have to be rounded if post-operations follow.
    """

    kind: str
    dst: Memory
    src: Memory | None = None
    weights: Memory | None = None
    bias: Memory | None = None
    scales: Memory | None = None
    sources: list[Memory] = field(default_factory=list)
    algorithm: str = ""
    numbers: dict[str, float | int | tuple[int, ...]] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    limits: tuple[float, float] | None = None
    name: str = ""

    def reads(self) -> Iterator[Memory]:
        for memory in (self.src, self.weights, self.bias, self.scales, *self.sources, *(p.operand for p in self.posts)):
            if memory is not None:
                yield memory


@dataclass(eq=False, slots=True)
class Subregion:
    """Operations that oneDNN executes together: a region, or the part of it that has primitives.

    Attributes:
        name: For messages.
        operations: Operations in order.
        inputs: Memory of each operand of the group, None where the operations do not read it.
        outputs: Memory of each result.
    """

    name: str
    operations: list[Operation]
    inputs: list[Memory | None] = field(default_factory=list)
    outputs: list[Memory] = field(default_factory=list)
