"""The kernels of a region for backends in Python, with the types of the arrays that the region is called on.

Types follow from those of the operands alone. So it makes no difference whether sizes are free in the model, whether
the region is in the body of control flow, and whether anybody declared types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.backends.read import (
    attributes_of,
    composite_of,
    is_constant,
    is_declared,
    kernel_nodes,
    key_of,
    known_type,
    operator_of,
    places_of,
    plain,
)
from eqsat.backends.region import Kernel, Operator, Region, RegionOperand, Run, Tensor
from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.model.inference.inlined_bodies import FunctionsByName
from eqsat.model.inference.shape_values import propagate
from eqsat.model.normalize import complete
from eqsat.partition.function_bodies import bound_node
from eqsat.partition.onnx_nodes import TARGET
from eqsat.schema.attributes import array_of, subgraphs, to_attrs
from eqsat.schema.types import TensorType

NodeAttributes = Mapping[str, ir.Attr]


class RegionKernels:
    """Reads the kernels of a region's function.

    Attributes:
        kernels: Kernels with known types, by node. A node with graphs has no kernel.

    Args:
        function: The region's function.
        functions: Functions of the model.
        constants: Constant values in it.
        types: Types of its operands that are tensors.
    """

    def __init__(
        self,
        function: ir.Function,
        functions: FunctionsByName,
        constants: Mapping[ir.Value, np.ndarray],
        types: Mapping[ir.Value, TensorType],
    ) -> None:
        self._function = function
        self._functions = functions
        self._constants = constants
        self._facts = _Facts(dict(types), {})
        self._tensors: dict[ir.Value, Tensor] = {}
        for value, array in constants.items():
            self._facts.set_constant(value, array)
        self.kernels: dict[ir.Node, Kernel] = {}
        for node in kernel_nodes(function):
            kernel = self._kernel(node)
            if kernel is not None:
                self.kernels[node] = kernel

    def region(self, name: str, target: str) -> Region:
        """All kernels, as a region."""
        uses: dict[Tensor, int] = {}
        for value, tensor in self._tensors.items():
            returned = sum(v is value for v in self._function.outputs)
            uses[tensor] = len(list(value.uses())) + 2 * returned
        inputs, outputs = (
            tuple(x for v in values if (x := self._operand(v)) is not None)
            for values in (self._function.inputs, self._function.outputs)
        )
        results = tuple(y for y in outputs if isinstance(y, Tensor))
        return Region(name, target, tuple(self.kernels.values()), uses, inputs=inputs, outputs=results)

    def run(
        self, number: int, region: Region, nodes: Sequence[ir.Node], *, whole: bool
    ) -> tuple[Run, list[ir.Value], list[ir.Value]]:
        """The kernels of some nodes as a run, with the values that it reads and writes: those of a whole region, or
        what the kernels need.
        """
        written = {v for n in nodes for v in n.outputs if v.name}
        inside = set(nodes)
        reads = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v.name)
        inputs = [v for v in reads if v not in written and v not in self._constants]
        outputs = [
            v
            for n in nodes
            for v in n.outputs
            if v in written and (self._is_returned(v) or any(user not in inside for user, _ in v.uses()))
        ]
        if whole:
            inputs = [v for v in self._function.inputs if v not in self._constants and self._tensor(v) is not None]
            outputs = list(dict.fromkeys(self._function.outputs))
        kernels = tuple(self.kernels[node] for node in nodes)
        tensors = (tuple(self._tensors[v] for v in values) for values in (inputs, outputs))
        return Run(number, kernels[0].name, region, kernels, *tensors), inputs, outputs

    def _is_returned(self, value: ir.Value) -> bool:
        return any(value is v for v in self._function.outputs)

    def _is_read(self, value: ir.Value) -> bool:
        return self._is_returned(value) or bool(value.uses())

    def _kernel(self, node: ir.Node) -> Kernel | None:
        """A node as a kernel; None if a type or size in it is unknown, or if it contains graphs."""
        composite = composite_of(node, self._functions)
        inner = self._facts
        if composite is None:
            self._facts.infer(node, {})
        else:
            inner = _inside(composite, node, self._facts)
            for value, result in zip(composite.outputs, node.outputs, strict=False):
                if value in inner.types:
                    self._facts.types[result] = inner.types[value]
        known = [v for v in (*node.inputs, *node.outputs) if v is not None and v.name and v not in self._constants]
        if any(self._tensor(v) is None for v in known):
            return None
        plain_call = composite is None and node.op_identifier() in self._functions and not is_declared(node)
        if plain_call or any(True for _ in subgraphs(node)):
            return None
        places = places_of(node, composite)
        operands: list[RegionOperand | None] = [None] * (max(places, default=-1) + 1)
        for place, value in zip(places, node.inputs, strict=False):
            operands[place] = self._operand(value)
        results = tuple(self._tensors[v] if v.name and self._is_read(v) else None for v in node.outputs)
        several = composite is not None and len(results) > 1
        pairs = zip(node.outputs, results, strict=True) if several else ()
        unread = tuple(self._tensors[v] if result is None else None for v, result in pairs)
        try:
            operators = self._operators(node, composite, inner)
        except ModelError:
            return None
        target = self._function.metadata_props.get(TARGET, "")
        name, operator = node.name or node.op_type, operator_of(node, target)
        return Kernel(name, operator, attributes_of(node), tuple(operands), results, operators, unread=unread)

    def _operand(self, value: ir.Value | None) -> RegionOperand | None:
        if value is None or not value.name:
            return None
        return self._constants[value] if value in self._constants else self._tensor(value)

    def _tensor(self, value: ir.Value) -> Tensor | None:
        if value not in self._tensors:
            known = _static(self._facts.types.get(value)) or _static(known_type(value))
            if known is None:
                return None
            self._tensors[value] = _made(value, known)
        return self._tensors[value]

    def _operators(self, node: ir.Node, composite: ir.Function | None, inner: _Facts) -> tuple[Operator, ...]:
        """The operators of a kernel.

        Raises:
            ModelError: A type or a size is not known.
        """
        if composite is None:
            outputs = [self._tensors[v] if v.name else None for v in node.outputs]
            inputs = [self._operand(v) for v in node.inputs]
            return (Operator(key_of(node), attributes_of(node), inputs, outputs),)
        formal = zip(composite.inputs, (self._operand(v) for v in node.inputs), strict=False)
        values: dict[ir.Value, RegionOperand | None] = dict(formal)
        results = dict(zip(composite.outputs, (self._tensors.get(v) for v in node.outputs), strict=False))
        made: list[Operator] = []
        for step in composite:
            if is_constant(step):
                values[step.outputs[0]] = inner.arrays[step.outputs[0]]
                continue
            inputs = [None if v is None else values.get(v) for v in step.inputs]
            outputs = []
            for value in step.outputs:
                known = _static(inner.types.get(value))
                if known is None:
                    raise ModelError("a known type and size are required", place=value.name or "")
                values[value] = results.get(value) or _made(value, known)
                outputs.append(values[value])
            bound = bound_node(step, {**composite.attributes, **node.attributes})
            types = [None if v is None else inner.types.get(v) for v in step.inputs]
            attrs = complete(key_of(step), to_attrs(bound), types, len(step.outputs))
            made.append(Operator(key_of(step), plain(attrs), inputs, outputs))
        return tuple(made)


class _Facts:
    """Known facts about the values of a function.

    Attributes:
        types: Types, where known.
        arrays: Arrays of constants, and of values that follow from shapes.
    """

    def __init__(self, types: dict[ir.Value, TensorType], arrays: dict[ir.Value, np.ndarray]) -> None:
        self.types = types
        self.arrays = arrays

    def set_constant(self, value: ir.Value, array: np.ndarray) -> None:
        self.arrays[value] = array
        dtype = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
        self.types[value] = TensorType(dtype, array.shape)

    def infer(self, node: ir.Node, attributes: NodeAttributes) -> None:
        """Adds what follows for the results of an operator, if the types of its operands are known.

        Args:
            node: The operator.
            attributes: Of the function around it.
        """
        if is_constant(node):
            self.set_constant(node.outputs[0], array_of(node.attributes["value"].as_tensor()))
            return
        given = [None if v is None or not v.name else v for v in node.inputs]
        if any(v is not None and v not in self.types for v in given) or any(True for _ in subgraphs(node)):
            return
        types = [None if v is None else self.types[v] for v in given]
        arrays = [None if v is None else self.arrays.get(v) for v in given]
        op = key_of(node)
        try:
            attrs = complete(op, to_attrs(bound_node(node, attributes)), types, len(node.outputs))
            found = infer_types(op, attrs, types, arrays, len(node.outputs))
        except ModelError:
            return
        self.types.update((v, kind) for v, kind in zip(node.outputs, found, strict=True) if kind is not None)
        known = propagate(op, attrs, types, arrays, found)
        self.arrays.update((v, array) for v, array in zip(node.outputs, known, strict=True) if array is not None)


def _inside(composite: ir.Function, call: ir.Node, outside: _Facts) -> _Facts:
    """Known facts about the values of a composite's function in a call."""
    formal = [(v, x) for v, x in zip(composite.inputs, call.inputs, strict=False) if x is not None]
    inside = _Facts(
        {v: outside.types[x] for v, x in formal if x in outside.types},
        {v: outside.arrays[x] for v, x in formal if x in outside.arrays},
    )
    for node in composite:
        inside.infer(node, {**composite.attributes, **call.attributes})
    return inside


def _static(known: TensorType | None) -> TensorType | None:
    return known if known is not None and known.is_static else None


def _made(value: ir.Value, known: TensorType) -> Tensor:
    return Tensor(value.name or "", known.dtype, tuple(n for n in known.shape or () if isinstance(n, int)))
