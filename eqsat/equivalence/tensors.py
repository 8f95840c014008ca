"""Two models side by side: their tensors under one numbering, and which of them are known to be equal.

What is equal is kept as a partition of the tensors. It starts with inputs that belong together and with initializers of
equal content. Operators that read equal tensors make equal tensors, so it grows with everything that is proven.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import onnx_ir as ir

from eqsat.egraph.encode import operands
from eqsat.ops.properties import is_commutative, is_deterministic
from eqsat.schema.attributes import array_of, op_key
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType, type_of


@dataclass(frozen=True, slots=True)
class ModelNode:
    """A node of one of the models.

    Attributes:
        side: 0 for the first model, 1 for the second.
        operands: Numbers of the tensors that it reads; those that its bodies capture come last.
        results: Numbers of its outputs.
        key: Equal for nodes that do the same with equal operands.
        is_opaque: Whether it cannot be part of a rewritten piece: control flow, random numbers.
    """

    side: int
    node: ir.Node
    op: OpKey
    attrs: Attrs
    operands: tuple[int | None, ...]
    results: tuple[int, ...]
    key: Hashable
    is_opaque: bool


class Partition:
    """Disjoint sets of numbers."""

    def __init__(self, size: int) -> None:
        self._above = list(range(size))

    def find(self, k: int) -> int:
        """The number that represents the set: its smallest."""
        while self._above[k] != k:
            self._above[k] = self._above[self._above[k]]
            k = self._above[k]
        return k

    def join(self, a: int, b: int) -> bool:
        """Whether two sets became one."""
        a, b = sorted((self.find(a), self.find(b)))
        self._above[b] = a
        return a != b

    def same(self, a: int, b: int) -> bool:
        return self.find(a) == self.find(b)


@dataclass
class Tensors:
    """The tensors of two models.

    Attributes:
        models: Both models.
        values: Values by number; those of the first model first, each in execution order.
        side: Model of each value, by number.
        operations: Operations of the first model, then of the second, in execution order.
        made_by: Operation and number of the output, by number of the value; None for inputs and initializers.
        fixed: Whether each value follows from constants, by number.
        initial: Numbers of the initializers.
        joined: The partition into equal tensors.
    """

    models: tuple[ir.Model, ir.Model]
    values: list[ir.Value] = field(default_factory=list)
    side: list[int] = field(default_factory=list)
    operations: list[ModelNode] = field(default_factory=list)
    made_by: list[tuple[int, int] | None] = field(default_factory=list)
    fixed: list[bool] = field(default_factory=list)
    initial: set[int] = field(default_factory=set)
    number: dict[ir.Value, int] = field(default_factory=dict)

    @classmethod
    def of(cls, a: ir.Model, b: ir.Model, inputs: Sequence[tuple[str, str]]) -> Tensors:
        """Numbers the tensors.

        Args:
            a: Loaded.
            b: Loaded.
            inputs: Names of inputs that are the same tensor.
        """
        made = cls((a, b))
        for side, model in enumerate((a, b)):
            made._read(side, model)
        made.joined = Partition(len(made.values))
        for left, right in inputs:
            made.joined.join(made._input(a, left), made._input(b, right))
        known: dict[Hashable, int] = {}
        for k in sorted(made.initial):
            first = known.setdefault(content(made.values[k]), k)
            made.joined.join(first, k)
        for operation in made.operations:
            if operation.op == OpKey("", "Identity") and operation.operands[0] is not None:
                made.joined.join(operation.operands[0], operation.results[0])
        made.spread()
        return made

    def __post_init__(self) -> None:
        self.joined = Partition(0)

    def _input(self, model: ir.Model, name: str) -> int:
        return next(self.number[v] for v in model.graph.inputs if v.name == name)

    def _read(self, side: int, model: ir.Model) -> None:
        graph = model.graph
        for value in graph.initializers.values():
            self.initial.add(self._add(side, value, None, fixed=True))
        for value in graph.inputs:
            if value not in self.number:
                self._add(side, value, None, fixed=False)
        for node in graph:
            inputs, attrs = operands(node)
            read = tuple(None if v is None else self.number[v] for v in inputs)
            op = op_key(node)
            training = len(node.inputs) > 2 and node.inputs[2] is not None
            deterministic = is_deterministic(op, attrs, training=training)
            fixed = bool(read) and deterministic and all(k is None or self.fixed[k] for k in read)
            bodies = any(isinstance(v, GraphAttr) for _, v in attrs)
            here = len(self.operations)
            results = tuple(self._add(side, v, (here, i), fixed=fixed) for i, v in enumerate(node.outputs))
            key = (op, canonical(attrs)) if deterministic else (here,)
            made = ModelNode(side, node, op, attrs, read, results, key, bodies or not deterministic)
            self.operations.append(made)

    def _add(self, side: int, value: ir.Value, made_by: tuple[int, int] | None, *, fixed: bool) -> int:
        k = self.number[value] = len(self.values)
        self.values.append(value)
        self.side.append(side)
        self.made_by.append(made_by)
        self.fixed.append(fixed)
        return k

    # ---- questions --------------------------------------------------------------------------------

    def name(self, k: int) -> str:
        return self.values[k].name or ""

    def operator(self, k: int) -> str:
        """The source of a tensor: an operator, or ``constant`` or ``input``."""
        maker = self.maker(k)
        return "constant" if k in self.initial else "input" if maker is None else str(maker.op)

    def type(self, k: int) -> TensorType | None:
        return type_of(self.values[k])

    def maker(self, k: int) -> ModelNode | None:
        """The operation that computes a tensor."""
        made = self.made_by[k]
        return None if made is None else self.operations[made[0]]

    def outputs(self, side: int) -> list[int]:
        return [self.number[v] for v in self.models[side].graph.outputs]

    # ---- growth -----------------------------------------------------------------------------------

    def spread(self) -> bool:
        """Joins the results of operations that do the same with equal operands; whether there were any."""
        changed, again = False, True
        while again:
            again = False
            known: dict[Hashable, ModelNode] = {}
            for operation in self.operations:
                read = [-1 if k is None else self.joined.find(k) for k in operation.operands]
                if len(read) == 2 and is_commutative(operation.op):
                    read.sort()
                first = known.setdefault((operation.key, *read), operation)
                if first is not operation:
                    for left, right in zip(first.results, operation.results, strict=False):
                        again |= self.joined.join(left, right)
            changed |= again
        return changed


def canonical(attrs: Attrs) -> Hashable:
    """Attributes by meaning: bodies without the names of their tensors."""
    return tuple((name, _body(v.graph) if isinstance(v, GraphAttr) else v) for name, v in attrs)


def _body(graph: ir.Graph) -> Hashable:
    """A body as nested tuples; captured values are numbered in order of first use, as among the operands."""
    known: dict[ir.Value, Hashable] = {value: ("input", i) for i, value in enumerate(graph.inputs)}
    for value in graph.initializers.values():
        known.setdefault(value, ("constant", content(value)))
    captured: dict[ir.Value, Hashable] = {}

    def seen(value: ir.Value | None) -> Hashable:
        if value is None or value in known:
            return None if value is None else known[value]
        return captured.setdefault(value, ("captured", len(captured)))

    nodes: list[Hashable] = []
    for index, node in enumerate(graph):
        read, attrs = operands(node)
        nodes.append((op_key(node), canonical(attrs), tuple(seen(v) for v in read), len(node.outputs)))
        known |= {value: ("result", index, i) for i, value in enumerate(node.outputs)}
    kinds = tuple(str(type_of(v)) for v in graph.inputs)
    return (kinds, tuple(nodes), tuple(seen(v) for v in graph.outputs))


def content(value: ir.Value) -> Hashable:
    """A key for the content of an initializer."""
    tensor = value.const_value
    assert tensor is not None
    array = array_of(tensor)
    text = repr(array.ravel().tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return (tensor.dtype, array.shape, sha256(text).digest())
