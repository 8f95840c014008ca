"""The input and output of a kernel generator: plain data, so that families are independent of the rest.

How an operator passes through this package::

    node ── lower ──► Task (dense views) ── kernels.find ──► Family
         ── Family.wants ──► Wants ── layouts, views, memory ──► Task (final views)
         ── Family.generate, once for each instruction set ──► GeneratedKernel ── emit ──► C function and its call

Operators, attributes and shapes are always ONNX's: a convolution's operand is ``[N, C, H, W]`` whatever its layout.
**A layout consists of strides and nothing else**, so NHWC is a view of that shape with strides ``(H*W*C, 1, W*C, C)``.
Transposed, sliced and reshaped tensors are further views of the same memory. An in-place concatenation gives slices of
its result to the producers as their outputs. A halo is memory around the elements that holds the padding. No kernel may
assume that a view is dense unless its wants require it.

The C function. A generator writes the *body*; the emitter writes the signature, in this order, with these names::

    static void mobilenet_k12_avx512(
        const float *restrict x0,      // inputs that are views: x0, x1, ... by *input* index (constants leave gaps)
        const float *restrict e0,      // operands of the epilogue that are views: e0, e1, ... by *operand* index
        float *restrict y0,            // outputs that are wanted: y0, y1, ... by output index
        const float *restrict w0,      // GeneratedKernel.constants: w0, w1, ...; 64-byte aligned
        ptrdiff_t dim_batch,           // free sizes that the body reads
        void *restrict scratch)        // if GeneratedKernel.scratch > 0; 64-byte aligned

Pointers point at element [0, ..., 0] of the view (not at the halo). ``restrict`` is left out where the memory plan
lets an input and an output share storage. The body must compile without a warning under ``-Wall -Wextra -std=c11``,
for ``SCALAR`` with ``-pedantic``. It may declare anything, and writes only its outputs' elements (neither
halo nor gaps, these may belong to neighbours) and its scratch. Functions of equal text are emitted once, so a body
should depend on nothing but shapes, strides and attributes: weights are parameters, not literals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends.region import Tensor
from eqsat.codegen.isa import Isa
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.types import OpKey, Shape

Halo = tuple[tuple[int, int], ...]
Pad = float | int | Tensor
"""The content of a halo: a number, or the only element of a tensor."""


def dense_strides(shape: Shape, order: tuple[int, ...] | None = None) -> Shape:
    """Strides in elements without gaps; ``order`` lists the axes from the outermost to the innermost."""
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order if order is not None else range(len(shape))):
        strides[axis] = step
        step *= shape[axis] or 1
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class View:
    """Where the elements of a tensor lie, seen from the pointer to element [0, ..., 0].

    Attributes:
        dtype: Element type.
        shape: Dimensions: numbers, or free sizes (:mod:`eqsat.schema.size`).
        strides: Elements from one index to the next, for each axis; 0 repeats (broadcasting). May be negative.
        halo: For each axis the number of indices before 0 and after the last that may be read; they hold ``pad``.
        pad: The value in the halo; 0 where a tensor has it.
        alignment: Bytes that the pointer is a multiple of.
        slack: Bytes after the last element (or its halo) that may be read; their values are undefined. Never written.

    Example:
        >>> View(ir.DataType.FLOAT, (1, 3, 4, 4), dense_strides((1, 3, 4, 4), (0, 2, 3, 1))).strides
        (48, 1, 12, 3)
    """

    dtype: ir.DataType
    shape: Shape
    strides: Shape
    halo: Halo = ()
    pad: float | int = 0
    alignment: int = 1
    slack: int = 0

    @classmethod
    def dense(cls, dtype: ir.DataType, shape: Shape, order: tuple[int, ...] | None = None) -> View:
        """A view without gaps, of rows by default."""
        return cls(dtype, shape, dense_strides(shape, order))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def is_dense(self, order: tuple[int, ...] | None = None) -> bool:
        """Whether the elements lie without gaps in the order of axes; axes of one element may have any stride."""
        if 0 in self.shape:
            return True
        wanted = dense_strides(self.shape, order)
        return all(n == 1 or s == w for n, s, w in zip(self.shape, self.strides, wanted, strict=True))

    def around(self, axis: int) -> tuple[int, int]:
        """Halo of an axis."""
        return self.halo[axis] if self.halo else (0, 0)

    def broadcast(self, shape: Shape) -> View:
        """The same elements repeated to a shape that this one broadcasts to; without halo."""
        lead = len(shape) - self.rank
        strides = tuple(
            0 if axis < lead or (self.shape[axis - lead] == 1 and n != 1) else self.strides[axis - lead]
            for axis, n in enumerate(shape)
        )
        return replace(self, shape=shape, strides=strides, halo=())

    def transpose(self, perm: tuple[int, ...]) -> View:
        """The same elements with permuted axes."""
        halo = tuple(self.halo[p] for p in perm) if self.halo else ()
        return replace(
            self, shape=tuple(self.shape[p] for p in perm), strides=tuple(self.strides[p] for p in perm), halo=halo
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One elementwise operator of an epilogue.

    Attributes:
        operator: Domain and name.
        attributes: All attributes, with defaults.
        inputs: Numbers of values, None for an absent one: 0 is the anchor's result, 1 ... n the operands, then steps.
        dtype: Element type of the result.
    """

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: tuple[int | None, ...]
    dtype: ir.DataType


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Elementwise operators applied to each element that an anchor computes, before it is stored.

    The last step is what is stored in output 0; further outputs of the anchor are not touched by it.

    Attributes:
        dtype: Element type of the anchor's own result, value 0.
        operands: Values 1 ... n: views already broadcast to the output's shape (strides of 0), or constants that
            broadcast to it (reshaped where the operator's own rule is another, as ``axis`` of QuantizeLinear).
        steps: In order. Empty: the result is stored as it is.
    """

    dtype: ir.DataType
    operands: tuple[View | np.ndarray, ...] = ()
    steps: tuple[Step, ...] = ()

    def dtypes(self) -> list[ir.DataType]:
        """Element types of all values by number."""
        operands = [to_dtype(v.dtype) for v in self.operands]
        return [self.dtype, *operands, *(s.dtype for s in self.steps)]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One kernel to generate: an anchor and the elementwise operators fused after it.

    A chain of elementwise operators alone has the anchor ``Identity``, whose result has the *output's* shape: input 0
    is broadcast to it by strides. A copy between layouts is an ``Identity`` without steps.

    Attributes:
        operator: Of the anchor, at the pinned opset; ``com.microsoft`` and eqsat's own domain as well.
        attributes: All attributes, defaults filled in: int, float, str, tuples of these, ``numpy`` arrays for tensors.
        inputs: Views, constants as arrays, None where absent. Trailing absent inputs are None, up to the operator's
            number of inputs.
        outputs: Views; None for an optional output without readers.
        epilogue: The operators fused after output 0.
    """

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: tuple[View | np.ndarray | None, ...]
    outputs: tuple[View | None, ...]
    epilogue: Epilogue

    def view(self, index: int) -> View:
        """Input that must be a view."""
        found = self.inputs[index]
        assert isinstance(found, View)
        return found

    def constant(self, index: int) -> np.ndarray | None:
        """The input if it is present and constant."""
        found = self.inputs[index] if index < len(self.inputs) else None
        return found if isinstance(found, np.ndarray) else None

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def output(self) -> View:
        """Output 0."""
        found = self.outputs[0]
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Want:
    """The requirements and preferences of a kernel for one tensor, before the tensor's place is fixed.

    Attributes:
        order: Axes from the outermost to the innermost in memory; None leaves it open. Without ``strict`` a preference:
            the planner weighs it, the kernel takes any strides.
        strict: The kernel works in this order only (row-major where ``order`` is None); the innermost axis then has
            stride 1 and others may still have gaps.
        dense: No gaps either.
        halo: For each axis the number of elements read before the first and after the last one; always granted.
        pad: The value that the kernel requires in the halo.
        pad_input: The input whose only element is required in the halo; the planner makes it ``pad``.
        follows: The input whose order of axes an output should have, as for elementwise operators and pools; None if
            axes do not correspond. The weakest of all preferences.
    """

    order: tuple[int, ...] | None = None
    strict: bool = False
    dense: bool = False
    halo: Halo = ()
    pad: Pad = 0
    pad_input: int | None = None
    follows: int | None = None


@dataclass(frozen=True, slots=True)
class Wants:
    """Wishes for all tensors of a task.

    Attributes:
        inputs: For each input; those of constants and absent inputs are ignored. Missing ones are ``Want()``.
        outputs: For each output. Operands of the epilogue have the wants of output 0, without its halo.
        in_place: Pairs (input, output) that may share storage if element for element they lie at the same place, and
            pairs (-1 - k, 0) for operand k of the epilogue. Used only if the kernel is the last reader of the input.
    """

    inputs: tuple[Want, ...] = ()
    outputs: tuple[Want, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()

    def input(self, index: int) -> Want:
        return self.inputs[index] if index < len(self.inputs) else Want()

    def output(self, index: int) -> Want:
        return self.outputs[index] if index < len(self.outputs) else Want()


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedKernel:
    """A generated kernel for one instruction set.

    Attributes:
        body: Statements of the C function; see the top of the file for the names of its parameters.
        constants: Arrays for ``w0``, ``w1``, ...: packed weights, tables. Kept once if equal in type and content, so
            pack alike for all instruction sets where that costs no speed. Small floats, bool and 4-bit types are
            stored as :func:`eqsat.codegen.c_types.as_stored` says.
        scratch: Bytes of working memory.
        helpers: Declarations at file scope that the body needs (typedefs, ``static inline`` functions), each emitted
            once, in order; one declaration a string, so that nothing unused is emitted. Names that depend on the
            instruction set end in its name.
        specialised: Whether the text is worth compiling with the instruction set's flags although it may be the same
            text for several (loops that the compiler vectorises). If False, it is emitted once with default flags.
        contract: Whether the compiler may fuse a product and a sum, which then round once. Not where results must agree
            to the bit with another implementation, as in values that are rounded to integers afterwards.
    """

    body: str
    constants: tuple[np.ndarray, ...] = ()
    scratch: int = 0
    helpers: tuple[str, ...] = ()
    specialised: bool = True
    contract: bool = True


@dataclass(frozen=True, slots=True)
class Family:
    """A way to compute some operators.

    Attributes:
        name: For reports: ``"direct convolution"``.
        operators: The anchors that it may compute.
        accepts: Whether it can do a task, given operator, attributes, shapes, types and constants. At this point
        strides
            are provisional and the instruction set is unknown. Called again with a longer epilogue while fusing: the
            first family that accepts the anchor alone also decides how long its epilogue may become.
        generate: Makes the kernel; the views are final and fulfil the wants.
        wants: Its wants for the views.
        rank: Families of higher rank are tried first; plain loops have rank 0.
    """

    name: str
    operators: tuple[OpKey, ...]
    accepts: Callable[[Task], bool]
    generate: Callable[[Task, Isa], GeneratedKernel]
    wants: Callable[[Task], Wants] = field(default=lambda task: Wants())
    rank: int = 0
