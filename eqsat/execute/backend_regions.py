"""Regions of a partitioned model that a backend executes from Python; numpy executes the kernels that it refuses.

A region is prepared when arrays reach it, for their types and shapes. What was prepared is kept for later arrays of the
same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends.asking import asked, prepared, refusals
from eqsat.backends.backend import Backend, Prepared
from eqsat.backends.coverage import counting
from eqsat.backends.region import Run
from eqsat.backends.runs import alternating, as_a_whole
from eqsat.errors import BackendError
from eqsat.execute.region_kernels import RegionKernels
from eqsat.ops.evaluate import EvaluateOperator, TensorValue
from eqsat.partition.plan import Plan
from eqsat.partition.read_plan import SavedFunction
from eqsat.partition.regions import node_predecessors
from eqsat.partition.subgraphs import reads
from eqsat.schema.attributes import array_of
from eqsat.schema.types import TensorType, type_of_array

MOST_SHAPES = 8
"""Combinations of shapes for which a region stays prepared."""
Compile = Callable[[Sequence[ir.Node], Sequence[ir.Value]], tuple[EvaluateOperator, Sequence[ir.Value]]]
"""Turns nodes into an operation: a function that computes some values, and the values that it reads."""

_UNKNOWN = "its types or sizes are not known before the model runs"
_NO_PYTHON = "the backend executes nothing from Python (it does not override prepare)"
_Row = tuple[str, str, str]
_Step = tuple[EvaluateOperator, Sequence[int], Sequence[int]]
"""An operation, the values that it reads, and those that it computes."""


class ServedRegion:
    """The operation of a region's call.

    Args:
        call: The call of the region.
        region: The region's function, as read from the model.
        backend: The backend of the region's target.
        compile_nodes: Compiles the nodes that the backend does not execute.
    """

    def __init__(self, call: ir.Node, region: SavedFunction, backend: Backend, compile_nodes: Compile) -> None:
        self._region = region
        self._inputs = [v for v, _ in region.scope.plan.inputs]
        self._backend = backend
        self._compile = compile_nodes
        passed = zip(self._inputs, map(_constant_of, call.inputs), strict=False)
        own = ((v, array_of(tensor)) for v, tensor in region.scope.plan.constants.items())
        self._constants = {v: array for v, array in (*passed, *own) if array is not None}
        self._kept: dict[Any, tuple[EvaluateOperator, list[_Row]]] = {}

    def __call__(self, inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        """Executes the region.

        Raises:
            BackendError: The backend fails.
        """
        given = dict(zip(self._inputs, inputs, strict=False))
        types = {
            v: type_of_array(x) for v, x in given.items() if isinstance(x, np.ndarray) and v not in self._constants
        }
        key = tuple((None if (known := types.get(v)) is None else (known.dtype, known.shape)) for v in given)
        # A run may use it while another thread makes room.
        found = self._kept.pop(key, None) or self._prepared(types)
        self._kept[key] = found
        while len(self._kept) > MOST_SHAPES:
            self._kept.pop(next(iter(self._kept)), None)
        operation, rows = found
        tally = counting()
        if tally is not None:
            for row in rows:
                tally.add(self._backend, (self._region.function.name, row[0]), *row)
        return operation(inputs)

    def _prepared(self, types: Mapping[int, TensorType]) -> tuple[EvaluateOperator, list[_Row]]:
        """The region for operands of some types, and for each kernel why the backend does not execute it."""
        backend, scope = self._backend, self._region.scope
        kernels = RegionKernels(self._region, self._constants, types)
        region = kernels.region(backend.target)
        said = refusals(backend, region) if backend.prepares else {}
        order = range(len(scope.nodes))
        otherwise = _UNKNOWN if backend.prepares else _NO_PYTHON
        known = {i: said.get(kernels.kernels[i], otherwise) if i in kernels.kernels else _UNKNOWN for i in order}
        reasons = as_a_whole(backend, known)
        taken = {i for i, reason in reasons.items() if not reason}
        waits = dict(enumerate(node_predecessors(scope.plan)))
        steps: list[_Step] = []
        number = 0
        for positions, is_called in alternating(order, waits, taken, joins=backend.joins or backend.whole):
            if is_called:
                run, inputs, outputs = kernels.run(number, region, positions, whole=backend.whole)
                execute = prepared(backend, run)
                if execute is not None:
                    number += 1
                    steps.append((_checked(backend, run, execute), inputs, outputs))
                    continue
                reasons.update(dict.fromkeys(positions, "the backend leaves it to numpy"))
            steps.append(self._by_numpy(positions))
        rows = [(n.name or n.op.name, str(n.op), reasons[i]) for i, n in enumerate(scope.plan.nodes)]
        return _sequence(scope.plan, self._constants, steps), rows

    def _by_numpy(self, positions: Sequence[int]) -> _Step:
        """The nodes at some positions, executed by numpy."""
        scope, plan = self._region.scope, self._region.scope.plan
        others = (node for i, node in enumerate(plan.nodes) if i not in positions)
        read = {*(v for v, _ in plan.outputs), *(v for node in others for v in reads(plan, node))}
        results = [v for i in positions for v in plan.nodes[i].outputs if v in read]
        operation, operands = self._compile([scope.nodes[i] for i in positions], [scope.values[v] for v in results])
        return operation, [scope.values.index(v) for v in operands], results


def _constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The elements of an initializer that no caller may override; None for any other value."""
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return array_of(value.const_value)


def _checked(backend: Backend, run: Run, execute: Prepared) -> EvaluateOperator:
    """The prepared function of a backend, with its results checked against the types of the kernels."""

    def checked(arrays: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        with asked(backend, "prepare"):
            returned = execute([np.asarray(x) for x in arrays])
        is_list = isinstance(returned, Iterable) and not isinstance(returned, np.ndarray | str | bytes | Mapping)
        results = tuple(returned) if is_list else ()
        found = [(a.dtype, a.shape) if isinstance(a, np.ndarray) else type(a).__name__ for a in results]
        wanted = [(t.dtype.numpy(), t.shape) for t in run.outputs]
        if found != wanted:
            what = f"{'' if is_list else 'a list of '}{_described(wanted)}"
            raise BackendError(
                f"{what} for the outputs of {run.region.name} is required",
                place=f"backend of {backend.target!r}, what {type(backend).__name__}.prepare returned",
                actual=_described(found) if is_list else type(returned).__name__,
            )
        return results

    return checked


def _described(kinds: Sequence[Any]) -> str:
    return ", ".join(f"{k[0]}{list(k[1])}" if isinstance(k, tuple) else str(k) for k in kinds) or "nothing"


def _sequence(plan: Plan, constants: Mapping[int, np.ndarray], steps: Sequence[_Step]) -> EvaluateOperator:
    """Steps one after the other, over the values of a plan."""
    formal, results = [v for v, _ in plan.inputs], [v for v, _ in plan.outputs]

    def execute(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        values: dict[int, TensorValue] = {**constants, **dict(zip(formal, inputs, strict=False))}
        for operation, operands, writes in steps:
            values.update(zip(writes, operation([values[v] for v in operands]), strict=True))
        return tuple(values[v] for v in results)

    return execute
