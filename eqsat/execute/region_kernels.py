"""The kernels of a region for backends in Python, with the types of the arrays that the region is called on.

Types follow from those of the operands alone. So it makes no difference whether sizes are free in the model, whether
the region is in the body of control flow, and whether anybody declared types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.backends.region import Kernel, Operator, Region, RegionOperand, Run, Tensor
from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.model.inference.shape_values import propagate
from eqsat.model.normalize import complete
from eqsat.partition.onnx_nodes import has_subgraphs
from eqsat.partition.plan import PlanNode
from eqsat.partition.read_plan import SavedFunction
from eqsat.partition.subgraphs import reads
from eqsat.schema.attributes import plain
from eqsat.schema.declared_operators import find_declared
from eqsat.schema.types import CONSTANT, Attrs, OpKey, TensorType, tensor_type


class RegionKernels:
    """Reads the kernels of a region.

    Attributes:
        kernels: Kernels with known types, by their positions in the region's plan. A node with graphs has no kernel.

    Args:
        region: The region's function, as read from the model.
        constants: Constant values in it, by their ids in the plan.
        types: Types of its operands that are tensors.
    """

    def __init__(
        self, region: SavedFunction, constants: Mapping[int, np.ndarray], types: Mapping[int, TensorType]
    ) -> None:
        self._region = region
        self._plan = region.scope.plan
        self._outputs = [v for v, _ in self._plan.outputs]
        self._constants = constants
        self._facts = _Facts(dict(types), {})
        self._tensors: dict[int, Tensor] = {}
        for value, array in constants.items():
            self._facts.set_constant(value, array)
        self._readers: dict[int, list[int]] = {}
        for i, node in enumerate(self._plan.nodes):
            for value in (v for v in node.inputs if v is not None):
                self._readers.setdefault(value, []).append(i)
        found = ((i, self._kernel(node)) for i, node in enumerate(self._plan.nodes))
        self.kernels = {i: kernel for i, kernel in found if kernel is not None}

    def region(self, target: str) -> Region:
        """All kernels, as a region."""
        uses = {t: len(self._readers.get(v, ())) + 2 * self._outputs.count(v) for v, t in self._tensors.items()}
        inputs, outputs = (
            tuple(x for v in values if (x := self._operand(v)) is not None)
            for values in ([v for v, _ in self._plan.inputs], self._outputs)
        )
        results = tuple(y for y in outputs if isinstance(y, Tensor))
        kernels = tuple(self.kernels.values())
        return Region(self._region.name, target, kernels, uses, inputs=inputs, outputs=results)

    def run(
        self, number: int, region: Region, positions: Sequence[int], *, whole: bool
    ) -> tuple[Run, list[int], list[int]]:
        """The kernels of some nodes as a run, with the values that it reads and writes: those of a whole region, or
        what the kernels need.
        """
        nodes = [self._plan.nodes[i] for i in positions]
        written = [v for node in nodes for v in node.outputs if v is not None]
        if whole:
            inputs = [v for v, _ in self._plan.inputs if v not in self._constants and self._tensor(v) is not None]
            outputs = list(dict.fromkeys(self._outputs))
        else:
            read = dict.fromkeys(v for node in nodes for v in reads(self._plan, node))
            inputs = [v for v in read if v not in written and v not in self._constants]
            inside = set(positions)
            outputs = [v for v in written if v in self._outputs or not inside.issuperset(self._readers.get(v, ()))]
        kernels = tuple(self.kernels[i] for i in positions)
        tensors = (tuple(self._tensors[v] for v in values) for values in (inputs, outputs))
        return Run(number, kernels[0].name, region, kernels, *tensors), inputs, outputs

    def _kernel(self, node: PlanNode) -> Kernel | None:
        """A node as a kernel; None if a type or size in it is unknown, or if it contains graphs."""
        is_composite = self._plan.is_composite(node)
        if has_subgraphs(node.attrs):
            return None
        inner = self._facts.inside(node) if is_composite else self._facts
        if is_composite and node.body is not None:
            pairs = zip(node.outputs, node.body.results, strict=False)
            self._facts.types.update((v, inner.types[r]) for v, r in pairs if v is not None and r in inner.types)
        else:
            self._facts.infer(node.op, node.attrs, node.inputs, node.outputs)
        known = [v for v in (*node.inputs, *node.outputs) if v is not None and v not in self._constants]
        if any(self._tensor(v) is None for v in known):
            return None
        declared = find_declared(node.op)
        if not is_composite and node.body is not None and not (declared is not None and declared.place):
            return None
        operands = [self._operand(v) for v in node.inputs]
        made = [None if v is None else self._tensors[v] for v in node.outputs]
        is_read = [v in self._readers or v in self._outputs for v in node.outputs]
        results = tuple(tensor if read else None for tensor, read in zip(made, is_read, strict=True))
        rest = tuple(None if read else tensor for tensor, read in zip(made, is_read, strict=True))
        name = node.name or node.op.name
        try:
            if is_composite:
                attributes, operators = plain(node.attrs), self._operators(node, name, operands, made, inner)
            else:
                types = [None if v is None else self._facts.types.get(v) for v in node.inputs]
                attributes = plain(complete(node.op, node.attrs, types, len(node.outputs)))
                operators = (Operator(node.op, attributes, operands, made),)
        except ModelError:
            return None
        unread = rest if is_composite and len(results) > 1 else ()
        return Kernel(name, str(node.op), attributes, tuple(operands), results, operators, unread=unread)

    def _operand(self, value: int | None) -> RegionOperand | None:
        if value is None:
            return None
        return self._constants[value] if value in self._constants else self._tensor(value)

    def _tensor(self, value: int) -> Tensor | None:
        if value not in self._tensors:
            known = _static(self._facts.types.get(value)) or _static(tensor_type(self._region.scope.values[value]))
            if known is None:
                return None
            self._tensors[value] = _made(self._plan.names.get(value, ""), known)
        return self._tensors[value]

    def _operators(
        self,
        node: PlanNode,
        name: str,
        operands: Sequence[RegionOperand | None],
        results: Sequence[Tensor | None],
        inner: _Facts,
    ) -> tuple[Operator, ...]:
        """The operators of a composite.

        Raises:
            ModelError: A type or a size is not known.
        """
        assert node.body is not None
        values: list[RegionOperand | None] = list(operands)
        returned = dict(zip(node.body.results, results, strict=False))
        made: list[Operator] = []
        for step in node.body.nodes:
            numbers = range(len(values), len(values) + step.outputs)
            if step.op == CONSTANT:
                values.append(inner.arrays.get(numbers[0]))
                continue
            inputs = [None if i is None else values[i] for i in step.inputs]
            outputs: list[Tensor | None] = []
            for number in numbers:
                known = _static(inner.types.get(number))
                if known is None:
                    raise ModelError("a known type and size are required", place=f"{name}_{number}")
                outputs.append(returned.get(number) or _made(f"{name}_{number}", known))
            types = [None if i is None else inner.types.get(i) for i in step.inputs]
            attributes = plain(complete(step.op, step.attrs, types, step.outputs))
            made.append(Operator(step.op, attributes, inputs, outputs))
            values += outputs
        return tuple(made)


class _Facts:
    """Known facts about numbered values.

    Attributes:
        types: Types, where known.
        arrays: Arrays of constants, and of values that follow from shapes.
    """

    def __init__(self, types: dict[int, TensorType], arrays: dict[int, np.ndarray]) -> None:
        self.types = types
        self.arrays = arrays

    def set_constant(self, value: int, array: np.ndarray) -> None:
        self.arrays[value] = array
        dtype = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
        self.types[value] = TensorType(dtype, array.shape)

    def infer(self, op: OpKey, attrs: Attrs, inputs: Sequence[int | None], outputs: Sequence[int | None]) -> None:
        """Adds what follows for the results of an operator, if the types of its operands are known."""
        if any(v is not None and v not in self.types for v in inputs):
            return
        types = [None if v is None else self.types[v] for v in inputs]
        arrays = [None if v is None else self.arrays.get(v) for v in inputs]
        try:
            attrs = complete(op, attrs, types, len(outputs))
            found = infer_types(op, attrs, types, arrays, len(outputs))
        except ModelError:
            return
        known = propagate(op, attrs, types, arrays, found)
        for value, kind, array in zip(outputs, found, known, strict=True):
            if value is not None and kind is not None:
                self.types[value] = kind
            if value is not None and array is not None:
                self.arrays[value] = array

    def inside(self, node: PlanNode) -> _Facts:
        """Known facts about the values of a composite's body in a call."""
        assert node.body is not None
        formal = [(i, v) for i, v in enumerate(node.inputs) if v is not None]
        found = _Facts(
            {i: self.types[v] for i, v in formal if v in self.types},
            {i: self.arrays[v] for i, v in formal if v in self.arrays},
        )
        count = node.body.inputs
        for step in node.body.nodes:
            found.infer(step.op, step.attrs, step.inputs, range(count, count + step.outputs))
            count += step.outputs
        return found


def _static(known: TensorType | None) -> TensorType | None:
    return known if known is not None and known.is_static else None


def _made(name: str, known: TensorType) -> Tensor:
    return Tensor(name, known.dtype, tuple(n for n in known.shape or () if isinstance(n, int)))
