"""The input of a backend: the kernels of a region as plain values, for execution from Python or in C."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.schema.types import OpKey, Shape


@dataclass(slots=True, eq=False)
class Tensor:
    """A value that exists at run time. Tensors are identities, compared as such.

    Attributes:
        name: In the model; generated for inserted tensors.
        dtype: Element type.
        shape: Dimensions. In C, a backend with :attr:`Backend.free_sizes` also gets dimensions that the program
            receives as arguments. Such a dimension is an expression that is added, multiplied and divided like a number
            (``//`` and ``%``). :meth:`Writer.size` gives its C, :meth:`Writer.greatest` its greatest value. It is equal
            to what it equals for all sizes. A comparison whose answer depends on the sizes raises an error; in
            :meth:`Backend.refuse` it refuses the kernel.
    """

    name: str
    dtype: ir.DataType
    shape: Shape

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name.lower()}{list(self.shape)}"


RegionOperand = Tensor | np.ndarray
"""An operand of an operator: a tensor or a constant."""


@dataclass(frozen=True, slots=True, eq=False)
class Dequantized:
    """A float constant before it was dequantized.

    Attributes:
        array: The constant.
        quantized: The integers.
        scale: One scale, or one per index of an axis.
        zero: Likewise; None for zero.
    """

    array: np.ndarray
    quantized: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """A standard operator that is part of a kernel.

    Attributes:
        operator: Domain and name; as text ``Conv`` or ``com.microsoft.QGemm``.
        attributes: All of them, defaults filled in.
        inputs: Tensors and constants, None where absent.
        outputs: None for outputs without readers.
    """

    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: Sequence[RegionOperand | None]
    outputs: Sequence[Tensor | None]

    @property
    def output(self) -> Tensor:
        """The first result."""
        found = self.outputs[0]
        assert found is not None
        return found

    def reads(self) -> Iterator[Tensor]:
        """Tensors that it reads, each as often as it does."""
        return (x for x in self.inputs if isinstance(x, Tensor))

    def writes(self) -> Iterator[Tensor]:
        """Tensors that it computes."""
        return (t for t in self.outputs if t is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One kernel of a region: the call of a composite, or a plain operator.

    Attributes:
        name: Of the node in the partitioned model.
        operator: ``npu.conv_relu`` for a composite of the target ``npu``; ``Add`` or ``com.microsoft.QGemm`` for an
            operator.
        attributes: By name. Those of an operator are complete. Those of a composite are the attributes of the operators
            that it matched; where two operators have the same one, the later one's has the name of its operator in
            front (``pads``, ``max_pool_pads``).
        operands: In the order of the composite's pattern, or of the operator's inputs. Constants are arrays; None where
            an operand is absent.
        results: None for results without readers.
        operators: Its operators, in order: standard operators with their literals. In generated C they are
            spelled canonically; from Python as in the model.
        call: C call that the target's file gives, its holes still open; empty without one.
        unread: Of a composite with several results, at the place of each without readers a tensor of its type, to which
            the kernel may write; None elsewhere.
    """

    name: str
    operator: str
    attributes: Mapping[str, Any]
    operands: tuple[RegionOperand | None, ...]
    results: tuple[Tensor | None, ...]
    operators: tuple[Operator, ...] = ()
    call: str = ""
    unread: tuple[Tensor | None, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operators that it consists of."""
        return tuple(str(o.operator) for o in self.operators)


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A piece of a model that was put on a target.

    Attributes:
        name: Such as ``npu_0``.
        target: Name of the target.
        kernels: In an order of execution.
        uses: Number of reads of each tensor, in the region and after it.
        dequantized: Where float constants come from, by the identity of the array.
        inputs: Arguments of its call, in the order of its function in the model. Constants are the last ones.
        outputs: Tensors that it returns, likewise.
    """

    name: str
    target: str
    kernels: tuple[Kernel, ...]
    uses: Mapping[Tensor, int] = field(default_factory=dict)
    dequantized: Mapping[int, Dequantized] = field(default_factory=dict)
    inputs: tuple[RegionOperand, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Kernels of a region that a backend takes and that are executed at once.

    Attributes:
        number: Number of the run among those of its target in the program.
        name: Name of its first kernel, for messages.
        region: The region that contains it.
        kernels: In order.
        inputs: Tensors that exist before it; in C ``x0``, ``x1``, ..., dense and row-major. Of a backend that takes
            whole regions they are those of the region, in its order.
        outputs: Tensors that are read later; in C ``y0``, ``y1``, ..., likewise.
    """

    number: int
    name: str
    region: Region
    kernels: tuple[Kernel, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
