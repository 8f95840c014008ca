"""Single kernels as C: tasks are made from arrays, compiled together, called through ctypes, and compared with numpy.

Views may be given any order of axes and gaps between elements, so that no kernel can rely on dense operands; gaps hold
a pattern that must survive.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.canonical import canonical
from eqsat.codegen.isa import SCALAR
from eqsat.codegen.kernel import Family, GeneratedKernel, Step, Task, View
from eqsat.codegen.kernels.shared.families import families
from eqsat.codegen.program import ProgramNode, ProgramOperand, ProgramTensor
from eqsat.schema.types import OpKey
from tests.codegen.kernels import kernel_cases
from tests.codegen.kernels.kernel_cases import FILL, INCLUDES, SANITIZERS, Memory, stored

FLAGS = ("-pedantic", "-ffp-contract=off")


def spread(shape: Sequence[int], dtype: ir.DataType, rng: np.random.Generator | None) -> Memory:
    """Memory of a tensor: dense, or with random order of axes and gaps."""
    shape = tuple(shape)
    order = list(range(len(shape)))
    gaps = [0] * len(shape)
    if rng is not None:
        order = [int(a) for a in rng.permutation(len(shape))]
        gaps = [int(g) for g in rng.integers(0, 3, len(shape))]
    strides = [0] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step * (1 + gaps[axis]) if rng is not None and axis == order[-1] else step
        step = strides[axis] * max(shape[axis], 1) + gaps[axis]
    return Memory(View(dtype, shape, tuple(strides)), np.full(step * c_types.size(dtype), FILL, np.uint8), 0)


@dataclass
class Case:
    """One kernel with its data.

    Attributes:
        name: As a C identifier.
        task: What is generated.
        inputs: Memory of inputs that are views, by index.
        operands: Memory of operands that are views, by index.
        outputs: Memory of the outputs, by index.
    """

    name: str
    task: Task
    inputs: dict[int, Memory]
    operands: dict[int, Memory]
    outputs: dict[int, Memory]
    kernel: GeneratedKernel | None = field(default=None)

    def results(self) -> list[np.ndarray | None]:
        """Outputs as arrays of the model's types."""
        found: list[np.ndarray | None] = []
        for i, view in enumerate(self.task.outputs):
            if view is None:
                found.append(None)
                continue
            held = np.ascontiguousarray(self.outputs[i].array())
            wanted = view.dtype.numpy()
            same = held.dtype.itemsize == wanted.itemsize
            found.append((held.view(wanted) if same else held.astype(wanted)).reshape(view.shape))
        return found


def memory(array: np.ndarray, rng: np.random.Generator | None) -> Memory:
    """A copy of an array in memory."""
    dtype = ir.DataType.from_numpy(array.dtype)
    made = spread(array.shape, dtype, rng)
    made.array()[...] = c_types.as_stored(array).reshape(array.shape)
    return made


def case(
    name: str,
    operator: OpKey,
    attributes: Mapping[str, Any],
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[tuple[Sequence[int], Any] | None],
    *,
    constant: Sequence[int] = (),
    steps: Sequence[Step] = (),
    operands: Sequence[np.ndarray] = (),
    constant_operands: Sequence[int] = (),
    dtype: Any = None,
    rng: np.random.Generator | None = None,
) -> Case | None:
    """A case for one operator, in the form in which lowering gives it to a family.

    Args:
        name: Of the C function.
        operator: The operator.
        attributes: All of them.
        inputs: Arrays, None where absent.
        outputs: Shape and numpy type of each output, None where nobody reads it.
        constant: Inputs that are known when the C is written.
        steps: What is fused after it; value 0 is its result.
        operands: Of the steps.
        constant_operands: Those that are constants.
        dtype: Type of the operator's own result; that of output 0 by default.
        rng: For random orders of axes and gaps; dense without.

    Returns:
        None for an operator that needs no kernel, or more than one.
    """
    held: dict[ProgramTensor, Memory] = {}

    def tensor(array: np.ndarray, label: str) -> ProgramTensor:
        made = ProgramTensor(label, ir.DataType.from_numpy(array.dtype), array.shape)
        held[made] = memory(array, rng)
        return made

    given: list[ProgramOperand | None] = [
        x if x is None or i in constant else tensor(x, f"input {i}") for i, x in enumerate(inputs)
    ]
    results: list[ProgramTensor | None] = []
    for i, output in enumerate(outputs):
        results.append(None)
        if output is not None:
            kind = ir.DataType.from_numpy(np.dtype(output[1]))
            made = ProgramTensor(f"output {i}", kind, tuple(int(n) for n in output[0]))
            held[made] = spread(made.shape, kind, rng)
            results[-1] = made
    first = next(t for t in results if t is not None)
    own = ir.DataType.from_numpy(np.dtype(dtype)) if dtype is not None else first.dtype
    node = ProgramNode(name, operator, attributes, given, results, own)
    plain, _ = canonical(node)
    if not plain:
        return None
    # What lowering makes several nodes of is tested as one, by the family that takes it as it is.
    node = plain[0] if len(plain) == 1 else node
    if steps:
        assert not node.steps, "steps after an elementwise operator are that operator's own test"
        node.steps = list(steps)
        node.operands = [x if k in constant_operands else tensor(x, f"operand {k}") for k, x in enumerate(operands)]
    if any(isinstance(x, ProgramTensor) and x not in held for x in (*node.inputs, *node.operands, *node.outputs)):
        return None
    task = node.task(lambda t: held[t].view)
    family = found_family(task)
    if rng is not None and family is not None and any(w.strict for w in family.wants(task).inputs):
        return case(
            name, operator, attributes, inputs, outputs, constant=constant, steps=steps, operands=operands,
            constant_operands=constant_operands, dtype=dtype,
        )  # fmt: skip
    return Case(
        name,
        task,
        {i: held[x] for i, x in enumerate(node.inputs) if isinstance(x, ProgramTensor)},
        {k: held[x] for k, x in enumerate(node.operands) if isinstance(x, ProgramTensor)},
        {i: held[y] for i, y in enumerate(node.outputs) if y is not None},
    )


def found_family(task: Task) -> Family | None:
    """The family of loops that takes a task."""
    return next((f for f in families(task.operator) if f.rank == 0 and f.accepts(task)), None)


def refused(case: Case) -> bool:
    """Whether no family of loops takes the task; else its kernel is made."""
    found = found_family(case.task)
    if found is None:
        return True
    case.kernel = found.generate(case.task, SCALAR)
    return False


def compiled(cases: Sequence[Case], flags: Sequence[str] = ()) -> ctypes.CDLL:
    """All cases as one library."""
    flags = (*FLAGS, *flags, *(SANITIZERS if os.environ.get("EQSAT_TEST_SANITIZE") else ()))
    made = [(c, c.kernel) for c in cases if c.kernel is not None]
    helpers = dict.fromkeys(h for _, kernel in made for h in kernel.helpers)
    functions = [kernel_cases.function(c.name, c.task, kernel, SCALAR)[0] for c, kernel in made]
    return kernel_cases.compiled(INCLUDES + "\n".join([*helpers, *functions]), kernel_cases.QUICK, flags)


def call(library: ctypes.CDLL, case: Case) -> list[np.ndarray | None]:
    """Run a case; returns its outputs."""
    kernel = case.kernel
    assert kernel is not None
    arrays: list[np.ndarray] = [
        m.buffer for views in (case.inputs, case.operands, case.outputs) for _, m in sorted(views.items())
    ]
    arrays += [held for name, held in stored(kernel, slack=0).items() if name != "scratch" or kernel.scratch]
    getattr(library, case.name)(*[ctypes.c_void_p(a.ctypes.data) for a in arrays])
    for i, m in case.outputs.items():
        assert m.untouched(), f"{case.name} writes beside output {i}"
    return case.results()


def run(cases: Sequence[Case], flags: Sequence[str] = ()) -> list[list[np.ndarray | None]]:
    """Compile and run cases, all of which some family must take."""
    for c in cases:
        assert not refused(c), f"{c.name}: no family takes {c.task.operator} {dict(c.task.attributes)}"
    library = compiled(cases, flags)
    return [call(library, c) for c in cases]


__all__ = ["Case", "Memory", "case", "compiled", "refused", "run"]
