"""Predicts the seconds of a generated kernel from the host's file, including fused steps and all operands.

The counterpart is :mod:`eqsat.codegen.profile`, which measures them; ``benchmarks/cost_model.py`` compares both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.emitted import KernelInfo
from eqsat.codegen.kernel import Task, View
from eqsat.codegen.kernels.shared.families import entry_name
from eqsat.rules.ast import Expr, FamilyEntry, Target
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.size_questions import any_free, typical
from eqsat.schema.types import Attrs, Shape, TensorType, type_of_array
from eqsat.targets.condition_names import bind_operands
from eqsat.targets.families import TotalWork, evaluates_function, family_entry, rates
from eqsat.targets.kernel_cost import counted_macs, priced, roofline

_SMALL = 4096
"""Elements of a constant that an expression may read, at most."""
_LINE = 64


def predict(kernel: KernelInfo, target: Target) -> float:
    """Seconds that a run spends in a kernel, on the host that generated code runs on.

    Within control flow these are the seconds of all its calls. Free sizes have their typical values.

    Args:
        kernel: As generating the program gave it.
        target: The host.

    Raises:
        TargetError: The file's expression gives no cost.
    """
    return kernel.times * Prediction(_at_typical_sizes(kernel.task), kernel.family, target).seconds()


class Prediction:
    """The values over which one kernel's cost is evaluated; kept if the same kernel is priced many times.

    Args:
        task: What the kernel computes; of its strides only those of copies between layouts matter.
        family: The kernel family.
        target: The host.

    Attributes:
        entry: The entry of the target's file that prices the kernel, None if there is none.
        work: The work of the kernel.
        env: Names of the entry's expressions and their values.
    """

    entry: FamilyEntry | None
    work: TotalWork
    env: Mapping[str, Any]

    def __init__(self, task: Task, family: str, target: Target) -> None:
        self.family = family
        facts = [_facts(x) for x in task.inputs]
        results = [None if y is None else _type(y) for y in task.outputs]
        operands = bind_operands(task.operator, attributes(task), facts, results)
        operands["y"] = TensorFacts(next(t for t in results if t is not None))  # not the first for recurrent networks
        # An empty tensor takes no time, and has no sizes to divide by.
        has_elements = all(y.elements for y in task.outputs if y is not None)
        self.entry = family_entry(target, entry_name(family), operands) if has_elements else None
        self.work = work(task)
        symbols = {name: getattr(self.work, name) for name in TotalWork.__dataclass_fields__}
        self.env = operands | symbols | rates(target, _first(task))

    def seconds(self, cost: Expr | None = None) -> float:
        """The value of the entry's cost, or of another expression in its place."""
        if cost is None and self.entry is None:
            return roofline(self.env)
        expression = cost if cost is not None or self.entry is None else self.entry.cost
        assert expression is not None
        return priced(expression, self.env, self.family)


def work(task: Task) -> TotalWork:
    """The work of a kernel, anchor and steps."""
    inputs = [None if x is None else _type(x) for x in task.inputs]
    outputs = [None if y is None else _type(y) for y in task.outputs]
    shape = next(y.shape for y in task.outputs if y is not None)
    elements = math.prod(shape)
    steps = task.epilogue.steps
    functions = elements * sum(evaluates_function(step.operator, step.dtype) for step in steps)
    if evaluates_function(task.operator, task.epilogue.dtype):
        functions += elements
    operands = [x for x in (*task.inputs, *task.epilogue.operands) if x is not None]
    results = [y for y in task.outputs if y is not None]
    return TotalWork(
        macs=counted_macs(task.operator, attributes(task), inputs, outputs, exact=True) + elements * len(steps),
        bytes=sum(map(_bytes, (*operands, *results))),
        functions=functions,
        scattered=sum(_bytes(x) for x in operands if isinstance(x, View) and _is_across(x, results[0])),
    )


def attributes(task: Task) -> Attrs:
    """The anchor's attributes in the form of the cost model, without tensors."""
    return tuple((n, v) for n, v in sorted(task.attributes.items()) if not isinstance(v, np.ndarray))


def _at_typical_sizes(task: Task) -> Task:
    def fixed(x: Any) -> Any:
        if not isinstance(x, View) or not (any_free(x.shape) or any_free(x.strides)):
            return x
        return replace(x, shape=tuple(map(typical, x.shape)), strides=tuple(map(typical, x.strides)))

    epilogue = replace(task.epilogue, operands=tuple(map(fixed, task.epilogue.operands)))
    inputs, outputs = (tuple(map(fixed, views)) for views in (task.inputs, task.outputs))
    return replace(task, inputs=inputs, outputs=outputs, epilogue=epilogue)


def _first(task: Task) -> TensorType | None:
    return next((_type(x) for x in (*task.inputs, *task.outputs) if x is not None), None)


def _type(x: View | np.ndarray) -> TensorType:
    return TensorType(x.dtype, x.shape) if isinstance(x, View) else type_of_array(x)


def _facts(x: View | np.ndarray | None) -> TensorFacts | None:
    if x is None:
        return None
    if isinstance(x, View):
        return TensorFacts(_type(x))
    return TensorFacts(_type(x), x if x.size <= _SMALL else None, is_const=True)


def _bytes(x: View | np.ndarray) -> int:
    """Bytes of an operand; elements that strides of 0 repeat count once."""
    if isinstance(x, View):
        return math.prod(n for n, step in zip(x.shape, x.strides, strict=True) if step) * c_types.size(x.dtype)
    return x.size * c_types.size(ir.DataType.from_numpy(x.dtype))


def _is_across(x: View, y: View) -> bool:
    """Whether neighbours of the result are a line of the cache apart, or more, in the operand."""
    if x.shape != y.shape:
        return False
    inner = _innermost(y.shape, y.strides)
    return inner is not None and abs(x.strides[inner]) * c_types.size(x.dtype) >= _LINE


def _innermost(shape: Shape, strides: Shape) -> int | None:
    """The axis along which elements lie side by side."""
    axes = [a for a, (n, step) in enumerate(zip(shape, strides, strict=True)) if n > 1 and step]
    return min(axes, key=lambda a: abs(strides[a]), default=None)
