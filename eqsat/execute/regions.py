"""Regions of a partitioned model that a backend executes from Python; numpy executes the kernels that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.backends.backend import Backend, Prepared
from eqsat.backends.read import (
    attributes_of,
    composite_of,
    is_constant,
    is_declared,
    kernel_nodes,
    key_of,
    known_constants,
    known_type,
    operator_of,
    places_of,
    plain,
)
from eqsat.backends.runs import alternating, asked, refusals
from eqsat.backends.values import Kernel, Operand, Operator, Region, Run, Tensor
from eqsat.errors import BackendError, ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.ops.evaluate import Operation, Value
from eqsat.partition.bodies import bound_node
from eqsat.partition.emit import REGION, TARGET
from eqsat.schema.attributes import array_of, captured_values, subgraphs, to_attrs
from eqsat.schema.types import TensorType

Compile = Callable[[Sequence[ir.Node], Sequence[ir.Value]], tuple[Operation, Sequence[ir.Value]]]
"""Turns nodes into an operation: a function that computes some values, and the values that it reads."""


def served(function: ir.Function, backends: Mapping[str, Backend]) -> Backend | None:
    """The backend of a region's function, if it has one."""
    marks = function.metadata_props
    return backends.get(marks.get(TARGET, "")) if REGION in marks else None


def region_operation(
    call: ir.Node,
    functions: Mapping[ir.OperatorIdentifier, ir.Function],
    backend: Backend,
    compile_nodes: Compile,
) -> Operation | None:
    """The operation of a region's call; None if the backend executes none of its kernels from Python.

    Args:
        call: The call of the region.
        functions: The functions of the model.
        backend: The backend of the region's target.
        compile_nodes: Compiles the nodes that the backend refuses.

    Raises:
        BackendError: The backend fails.
    """
    function = functions[call.op_identifier()]
    reader = _Reader(call, function, functions)
    kernels = {node: kernel for node in kernel_nodes(function) if (kernel := reader.kernel(node)) is not None}
    region = Region(function.metadata_props[REGION], backend.target, tuple(kernels.values()), reader.uses())
    said = refusals(backend, region)
    taken = {node for node, kernel in kernels.items() if not said.get(kernel)}
    order = kernel_nodes(function)
    producer = {value: node for node in order for value in node.outputs}
    waits = {node: {producer[v] for v in _reads(node) if v in producer} for node in order}
    steps: list[tuple[Operation, Sequence[ir.Value], Sequence[ir.Value]]] = []
    number = 0
    for nodes, called in alternating(order, waits, taken, joins=backend.joins):
        if called:
            run, inputs, outputs = reader.run(number, region, nodes, [kernels[n] for n in nodes])
            with asked(backend, "prepare"):
                prepared = backend.prepare(run)
            if prepared is not None:
                number += 1
                steps.append((_checked(backend, run, prepared), inputs, outputs))
                continue
        results = [v for n in nodes for v in n.outputs if v.name]
        operation, reads = compile_nodes(nodes, results)
        steps.append((operation, reads, results))
    return _sequence(function, known_constants(call, function), steps) if number else None


class _Reader:
    """Reads the kernels of a region's function."""

    def __init__(
        self, call: ir.Node, function: ir.Function, functions: Mapping[ir.OperatorIdentifier, ir.Function]
    ) -> None:
        self.function = function
        self.functions = functions
        self.constants = known_constants(call, function)
        self.tensors: dict[ir.Value, Tensor] = {}

    def uses(self) -> dict[Tensor, int]:
        found: dict[Tensor, int] = {}
        for value, tensor in self.tensors.items():
            returned = sum(v is value for v in self.function.outputs)
            found[tensor] = len(list(value.uses())) + 2 * returned
        return found

    def kernel(self, node: ir.Node) -> Kernel | None:
        """A node as a kernel; None if a type or a size in it is not known, or if it contains graphs."""
        composite = composite_of(node, self.functions)
        known = [*node.inputs, *node.outputs]
        if any(v is not None and v.name and v not in self.constants and self._tensor(v) is None for v in known):
            return None
        plain_call = composite is None and node.op_identifier() in self.functions and not is_declared(node)
        if plain_call or any(True for _ in subgraphs(node)):
            return None
        places = places_of(node, composite)
        operands: list[Operand | None] = [None] * (max(places, default=-1) + 1)
        for place, value in zip(places, node.inputs, strict=False):
            operands[place] = self._operand(value)
        results = tuple(self.tensors[v] if v.name and self._is_read(v) else None for v in node.outputs)
        target = self.function.metadata_props.get(TARGET, "")
        try:
            operators = self._operators(node, composite)
        except ModelError:
            return None
        name = node.name or node.op_type
        several = composite is not None and len(results) > 1
        pairs = zip(node.outputs, results, strict=True) if several else ()
        unread = tuple(self.tensors[v] if result is None else None for v, result in pairs)
        kernel = Kernel(name, operator_of(node, target), attributes_of(node), tuple(operands), results, operators)
        return replace(kernel, unread=unread)

    def run(
        self, number: int, region: Region, nodes: Sequence[ir.Node], kernels: Sequence[Kernel]
    ) -> tuple[Run, list[ir.Value], list[ir.Value]]:
        """Kernels as a run, with the values that it reads and writes."""
        written = {v for n in nodes for v in n.outputs if v.name}
        inside = set(nodes)
        reads = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v.name)
        inputs = [v for v in reads if v not in written and v not in self.constants]
        outputs = [
            v
            for n in nodes
            for v in n.outputs
            if v in written and (self._is_returned(v) or any(user not in inside for user, _ in v.uses()))
        ]
        made = Run(
            number,
            kernels[0].name,
            region,
            tuple(kernels),
            tuple(self.tensors[v] for v in inputs),
            tuple(self.tensors[v] for v in outputs),
        )
        return made, inputs, outputs

    def _is_returned(self, value: ir.Value) -> bool:
        return any(value is v for v in self.function.outputs)

    def _is_read(self, value: ir.Value) -> bool:
        return self._is_returned(value) or bool(value.uses())

    def _operand(self, value: ir.Value | None) -> Operand | None:
        if value is None or not value.name:
            return None
        return self.constants[value] if value in self.constants else self._tensor(value)

    def _tensor(self, value: ir.Value) -> Tensor | None:
        if value not in self.tensors:
            known = known_type(value)
            if known is None or not known.is_static:
                return None
            self.tensors[value] = Tensor(value.name or "", known.dtype, tuple(int(n) for n in known.shape))
        return self.tensors[value]

    def _operators(self, node: ir.Node, composite: ir.Function | None) -> tuple[Operator, ...]:
        """The operators of a kernel."""
        if composite is None:
            outputs = [self.tensors[v] if v.name else None for v in node.outputs]
            inputs = [self._operand(v) for v in node.inputs]
            return (Operator(key_of(node), attributes_of(node), inputs, outputs),)
        values: dict[ir.Value, Operand | None] = dict(
            zip(composite.inputs, (self._operand(v) for v in node.inputs), strict=False)
        )
        results = dict(zip(composite.outputs, (self.tensors.get(v) for v in node.outputs), strict=False))
        made: list[Operator] = []
        attributes = {**composite.attributes, **node.attributes}
        for inner in composite:
            if is_constant(inner):
                values[inner.outputs[0]] = array_of(inner.attributes["value"].as_tensor())
                continue
            bound = bound_node(inner, attributes)
            inputs = [None if v is None else values.get(v) for v in inner.inputs]
            types = [_type(x) for x in inputs]
            op = key_of(bound)
            attrs = complete(op, to_attrs(bound), types, len(inner.outputs))
            arrays = [x if isinstance(x, np.ndarray) else None for x in inputs]
            known = infer_types(op, attrs, types, arrays, len(inner.outputs))
            outputs: list[Tensor | None] = []
            for value, kind in zip(inner.outputs, known, strict=True):
                tensor = results.get(value) or _inner(value, kind)
                values[value] = tensor
                outputs.append(tensor)
            made.append(Operator(op, plain(attrs), inputs, outputs))
        return tuple(made)


def _inner(value: ir.Value, kind: TensorType | None) -> Tensor:
    if kind is None or kind.shape is None or not kind.is_static:
        raise ModelError("a known type and size are required", place=value.name or "")
    return Tensor(value.name or "", kind.dtype, tuple(int(n) for n in kind.shape if isinstance(n, int)))


def _type(operand: Operand | None) -> TensorType | None:
    if operand is None:
        return None
    if isinstance(operand, Tensor):
        return TensorType(operand.dtype, operand.shape)
    return TensorType(ir.DataType.from_numpy(operand.dtype), operand.shape)


def _reads(node: ir.Node) -> list[ir.Value]:
    captured = [v for body in subgraphs(node) for v in captured_values(body)]
    return [v for v in (*node.inputs, *captured) if v is not None]


def _checked(backend: Backend, run: Run, prepared: Prepared) -> Operation:
    """The prepared function of a backend, with its results checked against the declared types."""

    def execute(arrays: Sequence[Value]) -> tuple[Value, ...]:
        with asked(backend, "prepare"):
            results = tuple(prepared([np.asarray(x) for x in arrays]))
        found = [(a.dtype, a.shape) if isinstance(a, np.ndarray) else type(a).__name__ for a in results]
        wanted = [(t.dtype.numpy(), t.shape) for t in run.outputs]
        if found != wanted:
            raise BackendError(
                f"{_described(wanted)} for the outputs of {run.region.name} is required",
                place=f"backend of {backend.target!r}, what {type(backend).__name__}.prepare returned",
                actual=_described(found),
            )
        return results

    return execute


def _described(kinds: Sequence[Any]) -> str:
    return ", ".join(f"{k[0]}{list(k[1])}" if isinstance(k, tuple) else str(k) for k in kinds) or "nothing"


def _sequence(
    function: ir.Function,
    constants: Mapping[ir.Value, np.ndarray],
    steps: Sequence[tuple[Operation, Sequence[ir.Value], Sequence[ir.Value]]],
) -> Operation:
    """Steps one after the other, over the values of a function."""

    def execute(inputs: Sequence[Value]) -> tuple[Value, ...]:
        values: dict[ir.Value, Value] = {**constants, **dict(zip(function.inputs, inputs, strict=False))}
        for operation, reads, writes in steps:
            values.update(zip(writes, operation([values[v] for v in reads]), strict=True))
        return tuple(values[v] for v in function.outputs)

    return execute
