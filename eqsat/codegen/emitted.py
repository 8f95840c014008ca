"""The result of generating a program: its text, its interface and its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.backends.coverage import Coverage
from eqsat.codegen.backend_code import Served
from eqsat.codegen.kernel import Task, View
from eqsat.codegen.memory import MemoryPlan
from eqsat.schema.size_questions import as_dim, greatest

if TYPE_CHECKING:
    from eqsat.codegen.select import KernelSelection


SMALL = 4096
"""Elements of a constant that are kept for reports."""


@dataclass(frozen=True)
class EntryParameter:
    """A parameter of the entry function.

    Attributes:
        name: Of the model's tensor.
        c_name: Of the parameter.
        c_type: Of an element.
        size: Bytes of an element.
        shape: Dimensions.
        dtype: Element type, in lower case.
        shape_name: Of the parameter for the shape, empty unless data decides that.
    """

    name: str
    c_name: str
    c_type: str
    size: int
    shape: tuple[int, ...]
    dtype: str
    shape_name: str = ""

    @property
    def found(self) -> bool:
        """Whether data decides its shape, so that the program reports it."""
        return bool(self.shape_name)

    @property
    def elements(self) -> int:
        """At the greatest sizes, if the program receives sizes."""
        return greatest(math.prod(self.shape))

    @property
    def dims(self) -> tuple[int | str, ...]:
        """The shape in the symbols of the model."""
        return tuple(map(as_dim, self.shape))


@dataclass(frozen=True)
class SizeArgument:
    """A size that the entry function receives.

    Attributes:
        name: Of the symbol in the model.
        c_name: Of the parameter.
        variable: Of the variable in kernels.
        least, most: Its range.
        typical: Where costs were taken, and the program checks itself.
    """

    name: str
    c_name: str
    variable: str
    least: int
    most: int
    typical: int


@dataclass(frozen=True)
class MapEntry:
    """A line of the memory map."""

    name: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class KernelInfo:
    """Facts about one kernel in its place, for reports and benchmarks.

    Attributes:
        name: Of the model's node.
        what: The operators in it.
        family: The kernel family that generated it.
        shape: Of the first result.
        task: The task; of large constants only type and shape.
        times: How often a run calls it: more or less than once inside of control flow, by guess where data decides.
        shared: Whether threads share it.
        result: Name of the first tensor that it writes.
    """

    name: str
    what: str
    family: str
    shape: tuple[int, ...]
    task: Task = field(repr=False, compare=False)
    times: float = 1.0
    shared: bool = False
    result: str = ""


@dataclass
class Emitted:
    """The generated text.

    Attributes:
        name: Prefix of everything.
        model: Name of the model.
        header: ``<name>.h``.
        source: ``<name>.c``.
        weights: The block of constants, bytes at an aligned address.
        inputs: Of the entry function.
        outputs: Those of the entry function likewise.
        sizes: The entry function's parameters for free sizes.
        arena: Bytes that the caller provides.
        plan: How the arena is used.
        memory_map: The same by tensor.
        kernels: In order of execution, those in bodies of control flow included.
        selection: The kernels that extraction chose; None if there was no choice.
        served: The runs that backends execute, one entry per target.
        files: Headers and sources of the backends, text by name.
        coverage: How many kernels of a target's regions its backend executes.
        threads: Number of threads that may share a kernel; if more than one, the entry function receives a pool.
        shared: Number of kernels that they share.
    """

    name: str
    model: str
    header: str
    source: str
    weights: np.ndarray
    inputs: list[EntryParameter]
    outputs: list[EntryParameter]
    arena: int
    plan: MemoryPlan
    memory_map: list[MapEntry]
    kernels: list[KernelInfo]
    selection: KernelSelection | None = None
    served: list[Served] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    coverage: dict[str, Coverage] = field(default_factory=dict)
    sizes: list[SizeArgument] = field(default_factory=list)
    threads: int = 1
    shared: int = 0

    @property
    def runs(self) -> int:
        """How many runs of kernels backends execute."""
        return sum(len(served.runs) for served in self.served)


def without_weights(task: Task) -> Task:
    """A task to be kept: large constants are replaced by one element that is repeated."""

    def shell(operand: View | np.ndarray | None) -> Any:
        if not isinstance(operand, np.ndarray) or operand.size <= SMALL:
            return operand
        return np.broadcast_to(np.zeros((), operand.dtype), operand.shape)

    epilogue = replace(task.epilogue, operands=tuple(map(shell, task.epilogue.operands)))
    return replace(task, inputs=tuple(map(shell, task.inputs)), epilogue=epilogue)
