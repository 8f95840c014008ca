"""A model on its way to C: tensors of known type, and nodes that become one kernel each.

It stands between the ONNX graph, which describes what is computed, and the C, which describes where. The stages
(canonical forms, fusion, layout) change nodes in place; tensors are compared by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends import region
from eqsat.backends.backend import Backend
from eqsat.backends.region import Dequantized, Kernel, Region
from eqsat.codegen.kernel import Epilogue, Step, Task, View
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.size_questions import is_free, symbols
from eqsat.schema.symbol import Symbol
from eqsat.schema.types import OpKey

IDENTITY = OpKey("", "Identity")
"""Anchor of elementwise chains and of copies."""
FINDING = "eqsat.codegen"
"""The domain of operators that handle sizes in generated programs."""
SIZES = OpKey(FINDING, "Sizes")
"""Writes free sizes, its attribute ``values``, into a tensor."""
READ_SIZES = OpKey(FINDING, "ReadSizes")
"""Reads sizes that data decides, its attribute ``sizes``, from a tensor; the result is a copy of that."""
ELSEWHERE = OpKey(FINDING, "Elsewhere")
"""An operator without a kernel, which a backend has to compute; the attribute ``node`` is the operator."""
_IF = OpKey("", "If")
"""Its bodies write all results."""
ROUNDS = "rounds"
"""Attribute of steps that only round a result to its type in the model and are not operators of the model."""
RESHAPE = OpKey("", "Reshape")
"""The one spelling of all operators that keep the order of elements; its shape is its output's."""


@dataclass(slots=True, eq=False, repr=False)
class ProgramTensor(region.Tensor):
    """A value that exists at run time.

    Attributes:
        order: Axes from the outermost to the innermost in memory, if selection decided that.
    """

    order: tuple[int, ...] | None = None


ProgramOperand = ProgramTensor | np.ndarray
"""An operand of a node: a tensor or a constant."""

ProgramOperands = list[ProgramOperand | None]
"""Operands or results of a node; None where one is absent or has no reader."""


@dataclass(slots=True, eq=False)
class ProgramNode:
    """One kernel: an anchor followed by elementwise steps.

    Attributes:
        name: For messages and comments: that of the model's node.
        operator: The anchor.
        attributes: All attributes of the anchor.
        inputs: Inputs of the anchor, None where absent.
        outputs: Of the last step, and the anchor's further ones; None for outputs without readers.
        dtype: Element type of the anchor's result.
        operands: Operands of the steps.
        steps: Their inputs count as in :class:`~eqsat.codegen.kernel.Step`.
        group: Number of the group that it belongs to, None where there is none.
        boundary: Whether it writes a result of its group, which is dense and row-major.
        kernel: Region and kernel that it belongs to, in a region that stays whole.
        family: Name of the kernel family that the selection decided on, empty if selection left it open.
    """

    name: str
    operator: OpKey
    attributes: Mapping[str, Any]
    inputs: ProgramOperands
    outputs: list[ProgramTensor | None]
    dtype: ir.DataType
    operands: list[ProgramOperand] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    group: int | None = None
    boundary: bool = False
    family: str = ""
    kernel: tuple[int, int] | None = None

    @property
    def output(self) -> ProgramTensor:
        found = self.outputs[0]
        assert found is not None
        return found

    def reads(self) -> Iterator[ProgramTensor]:
        """Tensors that it reads, each as often as it does."""
        for operand in (*self.inputs, *self.operands):
            if isinstance(operand, ProgramTensor):
                yield operand

    def writes(self) -> Iterator[ProgramTensor]:
        """Tensors that it computes."""
        return (t for t in self.outputs if t is not None)

    @property
    def found(self) -> list[Symbol]:
        """The sizes that it finds in data."""
        return [s for n in self.attributes["sizes"] for s in symbols(n)] if self.reads_sizes else []

    @property
    def reads_sizes(self) -> bool:
        """Whether it reads sizes from data, or compares them with known sizes."""
        return self.operator == READ_SIZES

    @property
    def compares(self) -> bool:
        """Whether the program ends after it if a number is not the size that is known."""
        return self.reads_sizes and not all(map(is_free, self.attributes["sizes"]))

    def depends_on(self) -> Iterator[Symbol]:
        """The free sizes of its operands, results and attributes."""
        for operand in (*self.inputs, *self.operands, *self.outputs):
            if isinstance(operand, np.ndarray):
                sizes = operand.reshape(-1) if operand.dtype == object else ()
            else:
                sizes = () if operand is None else operand.shape
            for n in sizes:
                yield from symbols(n)
        if self.operator == SIZES:
            for n in self.attributes["values"]:
                yield from symbols(n)

    def replace_reads(self, old: ProgramTensor, new: ProgramOperand) -> None:
        """Read another tensor instead."""
        self.inputs = [new if x is old else x for x in self.inputs]
        self.operands = [new if x is old else x for x in self.operands]

    @property
    def is_chain(self) -> bool:
        """Whether it consists only of elementwise operators."""
        return self.operator == IDENTITY

    @property
    def is_elsewhere(self) -> bool:
        """Whether a backend alone computes it."""
        return self.operator == ELSEWHERE

    def describe(self) -> str:
        """``Conv + Add + Relu``."""
        if self.is_elsewhere:
            return str(self.attributes["node"].operator)
        names = [str(s.operator) for s in self.steps if ROUNDS not in s.attributes]
        if self.is_chain and self.steps and not names:
            return "Cast"
        if not self.is_chain or not names:
            names.insert(0, "Copy" if self.is_chain else str(self.operator))
        return " + ".join(names)

    def task(self, view: Callable[[ProgramTensor], View]) -> Task:
        """The task for a family, with the tensors where ``view`` says."""
        inputs = [view(x) if isinstance(x, ProgramTensor) else x for x in self.inputs]
        shape = next(t.shape for t in self.outputs if t is not None)
        if self.is_chain:
            inputs = [x.broadcast(shape) if isinstance(x, View) else x for x in inputs]
        operands = tuple(view(x).broadcast(shape) if isinstance(x, ProgramTensor) else x for x in self.operands)
        return Task(
            self.operator,
            self.attributes,
            tuple(inputs),
            tuple(None if t is None else view(t) for t in self.outputs),
            Epilogue(self.dtype, operands, tuple(self.steps)),
        )

    def provisional_task(self) -> Task:
        """The task with dense views: enough to find a family."""
        return self.task(lambda t: View.dense(t.dtype, t.shape))


def elsewhere(node: ProgramNode) -> ProgramNode:
    """A node for an operator that a backend alone computes."""
    dtype = next((t.dtype for t in node.outputs if t is not None), node.dtype)
    return ProgramNode(node.name, ELSEWHERE, {"node": node}, list(node.inputs), list(node.outputs), dtype)


@dataclass(slots=True, eq=False)
class WholeKernel:
    """A kernel of a region that stays whole; its nodes know its number.

    Attributes:
        name, operator, attributes, call: See :class:`~eqsat.backends.region.Kernel`.
        operands: See there.
        places: Tensors for the results of a composite with several; None for a result of unknown type.
        results: See there, without those that the region's program only passes through: these are operands.
    """

    name: str
    operator: str
    attributes: Mapping[str, Any]
    operands: ProgramOperands
    places: list[ProgramTensor | None]
    call: str = ""
    results: ProgramOperands = field(default_factory=list)


@dataclass(slots=True, eq=False)
class WholeRegion:
    """A region that stays whole.

    Attributes:
        name: Such as ``dnnl_0``.
        target: Name of the target.
        backend: The backend that executes its kernels; None for plain C.
        kernels: In order.
        inputs: The arguments of its function, in order.
        outputs: The results of its function, in order.
    """

    name: str
    target: str
    backend: Backend | None
    kernels: list[WholeKernel] = field(default_factory=list)
    inputs: ProgramOperands = field(default_factory=list)
    outputs: ProgramOperands = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Group:
    """Nodes that stay together: the portable form of a backend's run, or a region that is a function of plain C.

    Attributes:
        region: The region that contains it.
        backend: The backend that executes it if the program is compiled for it; None for plain C.
        kernels: Of the run.
        inputs: Of a backend's run: tensors that exist before it.
        operands: The inputs, or dense row-major copies of them.
        results: Tensors that are read later, dense and row-major.
        elsewhere: Names of its operators that only the backend computes. If there are any, there is no portable form.
    """

    region: Region
    backend: Backend | None
    kernels: tuple[Kernel, ...]
    inputs: tuple[ProgramTensor, ...] = ()
    operands: list[ProgramTensor] = field(default_factory=list)
    results: list[ProgramTensor] = field(default_factory=list)
    elsewhere: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Program:
    """A lowered model.

    Attributes:
        name: Of the model.
        inputs: Tensors that the caller gives, in order; also those that nothing reads.
        outputs: Names and tensors of the results, in order; a tensor may be returned under several names.
        nodes: In an order of execution.
        regions: The regions that stay whole; nodes refer to them by number.
        groups: Runs of backends and functions of plain C, which nodes refer to by number.
        dequantized: The origins of dequantized constants, by identity.
        sizes: The free sizes that the program receives, by symbol.
    """

    name: str
    inputs: list[ProgramTensor]
    outputs: list[tuple[str, ProgramTensor]]
    nodes: list[ProgramNode]
    regions: list[WholeRegion] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    dequantized: dict[int, Dequantized] = field(default_factory=dict)
    sizes: tuple[tuple[str, FreeSize], ...] = ()

    @property
    def found(self) -> list[Symbol]:
        """The sizes that data decides, in the order in which the program finds them."""
        return [s for node in self.nodes for s in node.found]

    def consumers(self) -> dict[ProgramTensor, list[ProgramNode]]:
        """Nodes that read each tensor, each once."""
        found: dict[ProgramTensor, list[ProgramNode]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.reads()):
                found.setdefault(tensor, []).append(node)
        return found

    def producers(self) -> dict[ProgramTensor, ProgramNode]:
        """The node that computes each tensor."""
        return {tensor: node for node in self.nodes for tensor in node.writes()}

    def remove_dead(self) -> None:
        """Drop nodes that no output depends on."""
        needed: set[ProgramTensor] = {tensor for _, tensor in self.outputs}
        sizes = {s for _, tensor in self.outputs for n in tensor.shape for s in symbols(n)}
        kept: list[ProgramNode] = []
        for node in reversed(self.nodes):
            if needed.isdisjoint(node.writes()) and sizes.isdisjoint(node.found) and not node.compares:
                continue
            if node.operator != _IF:
                node.outputs = [t if i == 0 or t in needed else None for i, t in enumerate(node.outputs)]
            needed.update(node.reads())
            sizes.update(node.depends_on())
            kept.append(node)
        self.nodes = kept[::-1]
