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
from eqsat.backends.read import kernel_nodes, known_constants, operator_of
from eqsat.backends.region import Run
from eqsat.backends.runs import alternating, as_a_whole
from eqsat.errors import BackendError
from eqsat.execute.region_kernels import RegionKernels
from eqsat.model.inference.inlined_bodies import FunctionsByName
from eqsat.ops.evaluate import EvaluateOperator, TensorValue
from eqsat.partition.onnx_nodes import REGION, TARGET
from eqsat.schema.attributes import captured_values, subgraphs
from eqsat.schema.types import TensorType, type_of_array

MOST_SHAPES = 8
"""Combinations of shapes for which a region stays prepared."""
Compile = Callable[[Sequence[ir.Node], Sequence[ir.Value]], tuple[EvaluateOperator, Sequence[ir.Value]]]
"""Turns nodes into an operation: a function that computes some values, and the values that it reads."""

_UNKNOWN = "its types or sizes are not known before the model runs"
_NO_PYTHON = "the backend executes nothing from Python (it does not override prepare)"
_Row = tuple[str, str, str]


def served(function: ir.Function, backends: Mapping[str, Backend]) -> Backend | None:
    """The backend of a region's function, if it has one."""
    marks = function.metadata_props
    return backends.get(marks.get(TARGET, "")) if REGION in marks else None


class ServedRegion:
    """The operation of a region's call.

    Args:
        call: The call of the region.
        functions: The functions of the model.
        backend: The backend of the region's target.
        compile_nodes: Compiles the nodes that the backend does not execute.
    """

    def __init__(self, call: ir.Node, functions: FunctionsByName, backend: Backend, compile_nodes: Compile) -> None:
        self._function = functions[call.op_identifier()]
        self._functions = functions
        self._backend = backend
        self._compile = compile_nodes
        self._constants = known_constants(call, self._function)
        self._kept: dict[Any, tuple[EvaluateOperator, list[_Row]]] = {}

    def __call__(self, inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        """Executes the region.

        Raises:
            BackendError: The backend fails.
        """
        given = dict(zip(self._function.inputs, inputs, strict=False))
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
                tally.add(self._backend, (self._function.name, row[0]), *row)
        return operation(inputs)

    def _prepared(self, types: Mapping[ir.Value, TensorType]) -> tuple[EvaluateOperator, list[_Row]]:
        """The region for operands of some types, and for each kernel why the backend does not execute it."""
        backend, function = self._backend, self._function
        kernels = RegionKernels(function, self._functions, self._constants, types)
        region = kernels.region(function.metadata_props[REGION], backend.target)
        said = refusals(backend, region) if backend.prepares else {}
        order = kernel_nodes(function)
        otherwise = _UNKNOWN if backend.prepares else _NO_PYTHON
        known = {n: said.get(kernels.kernels[n], otherwise) if n in kernels.kernels else _UNKNOWN for n in order}
        reasons = as_a_whole(backend, known)
        taken = {node for node, reason in reasons.items() if not reason}
        producer = {value: node for node in order for value in node.outputs}
        waits = {node: {producer[v] for v in _reads(node) if v in producer} for node in order}
        steps: list[tuple[EvaluateOperator, Sequence[ir.Value], Sequence[ir.Value]]] = []
        number = 0
        for nodes, is_called in alternating(order, waits, taken, joins=backend.joins or backend.whole):
            if is_called:
                run, inputs, outputs = kernels.run(number, region, nodes, whole=backend.whole)
                execute = prepared(backend, run)
                if execute is not None:
                    number += 1
                    steps.append((_checked(backend, run, execute), inputs, outputs))
                    continue
                reasons.update(dict.fromkeys(nodes, "the backend leaves it to numpy"))
            inside = set(nodes)
            read = {*function.outputs, *(v for n in order if n not in inside for v in _reads(n))}
            results = [v for n in nodes for v in n.outputs if v in read]
            operation, reads = self._compile(nodes, results)
            steps.append((operation, reads, results))
        rows = [(n.name or n.op_type, operator_of(n, backend.target), reasons[n]) for n in order]
        return _sequence(function, self._constants, steps), rows


def _reads(node: ir.Node) -> list[ir.Value]:
    captured = [v for body in subgraphs(node) for v in captured_values(body)]
    return [v for v in (*node.inputs, *captured) if v is not None]


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


def _sequence(
    function: ir.Function,
    constants: Mapping[ir.Value, np.ndarray],
    steps: Sequence[tuple[EvaluateOperator, Sequence[ir.Value], Sequence[ir.Value]]],
) -> EvaluateOperator:
    """Steps one after the other, over the values of a function."""

    def execute(inputs: Sequence[TensorValue]) -> tuple[TensorValue, ...]:
        values: dict[ir.Value, TensorValue] = {**constants, **dict(zip(function.inputs, inputs, strict=False))}
        for operation, reads, writes in steps:
            values.update(zip(writes, operation([values[v] for v in reads]), strict=True))
        return tuple(values[v] for v in function.outputs)

    return execute
