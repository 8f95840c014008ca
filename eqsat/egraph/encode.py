"""Lowers an ONNX graph into the e-graph: one e-node for each node, one class for each value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from eqsat.egraph.chunk_writer import ChunkWriter
from eqsat.egraph.engine import Engine, call, integer
from eqsat.egraph.intern import Tables
from eqsat.egraph.language import ORIGINAL, Constructor, has_variadic_outputs
from eqsat.ops.properties import is_deterministic
from eqsat.schema.attributes import captured_values, op_key, to_attrs
from eqsat.schema.types import Attrs, GraphAttr


@dataclass(frozen=True, slots=True)
class EncodedNode:
    """A node of the model: its constructor, attributes (and their id), operands and results as value numbers."""

    constructor: Constructor
    number: int
    attrs: Attrs
    operands: tuple[int | None, ...]
    results: tuple[int, ...]


@dataclass
class Encoding:
    """How values of the model correspond to the e-graph.

    Attributes:
        inputs: The graph inputs; ``(Input k)`` is the k-th.
        values: All encoded values; ``(ref k)`` is the class of the k-th.
        number: Value -> k.
        nodes: Nodes in the model's order.
        constructors: Constructors in order of first use, without wide ones.
        wide: The node that each wide e-node represents; ``(Wide k)`` is the k-th.
    """

    inputs: list[ir.Value] = field(default_factory=list)
    values: list[ir.Value] = field(default_factory=list)
    number: dict[ir.Value, int] = field(default_factory=dict)
    nodes: list[EncodedNode] = field(default_factory=list)
    constructors: list[Constructor] = field(default_factory=list)
    wide: list[EncodedNode] = field(default_factory=list)

    def add(self, value: ir.Value) -> int:
        self.number[value] = len(self.values)
        self.values.append(value)
        return self.number[value]


def node_constructor(node: ir.Node, inputs: int) -> Constructor:
    """The constructor of a node: plain if only its first output is used and may be alone."""
    used = max((i + 1 for i, v in enumerate(node.outputs) if i == 0 or v.uses() or v.is_graph_output()), default=1)
    if has_variadic_outputs(op_key(node)):
        return Constructor(op_key(node), inputs, len(node.outputs))
    return Constructor(op_key(node), inputs, 0 if used == 1 else len(node.outputs))


class Encoder:
    """Writes one model's main graph into an engine."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self.tables = tables
        self.encoding = Encoding()
        self._chunks = ChunkWriter(engine)
        self._wide_numbers: dict[tuple[Constructor, int, tuple[int | None, ...]], int] = {}
        self._constant: set[int] = set()

    def number(self, model: ir.Model) -> Encoding:
        """Numbers values and nodes; nothing is written yet."""
        encoding = self.encoding
        for value in model.graph.initializers.values():
            encoding.add(value)
        for value in model.graph.inputs:
            if value not in encoding.number:
                encoding.inputs.append(value)
                encoding.add(value)
        for node in model.graph:
            inputs, attrs = operands(node)
            constructor = node_constructor(node, len(inputs))
            training = len(node.inputs) > 2 and node.inputs[2] is not None
            shared = is_deterministic(constructor.op, attrs, training=training)
            number = self.tables.attrs.id(attrs) if shared else self.tables.attrs.fresh(attrs)
            read = tuple(None if v is None else encoding.number[v] for v in inputs)
            used = node.outputs if constructor.outputs else node.outputs[:1]
            results = tuple(encoding.add(v) for v in used)
            encoding.nodes.append(EncodedNode(constructor, number, attrs, read, results))
        encoding.constructors = [c for c in dict.fromkeys(n.constructor for n in encoding.nodes) if not c.is_wide]
        return encoding

    def write(self, types: Sequence[int | None], values: Sequence[int | None]) -> None:
        """Loads all nodes; the constructors must have been declared.

        Args:
            types: Type id of each value, where known; saves egglog a round of analysis for each layer.
            values: Constant id of each value, where known.
        """
        encoding, chunks = self.encoding, self._chunks
        for k, value in enumerate(encoding.values):
            if value.const_value is not None and value.is_initializer():
                constant = integer(self.tables.constants.of_tensor(value.const_value))
                chunks.define(k, call("Const", constant), types[k], values[k])
        for number, value in enumerate(encoding.inputs):
            k = encoding.number[value]
            chunks.define(k, call("Input", integer(number)), types[k], values[k])
        for node in encoding.nodes:
            if node.constructor.is_wide:
                expression = self._wide(node)
            else:
                expression = chunks.node(node.constructor, node.number, node.operands, ORIGINAL)
            found = chunks.results(node.constructor, expression, len(node.results))
            for k, result in zip(node.results, found, strict=True):
                chunks.define(k, result, types[k], values[k])
            chunks.end_node()
        chunks.flush()

    def _wide(self, node: EncodedNode) -> Any:
        """The leaf of a node with very many operands, with the one fact that no rule can derive: whether it is
        constant.
        """
        key = (node.constructor, node.number, node.operands)
        if key not in self._wide_numbers:
            self._wide_numbers[key] = len(self.encoding.wide)
            self.encoding.wide.append(node)
        several = bool(node.constructor.outputs)
        expression = call("WideM" if several else "Wide", integer(self._wide_numbers[key]))
        if not self._constant:
            self._constant = constant_values(self.encoding)
        fact = ("iscm" if several else "isc") if node.results[0] in self._constant else ("livem" if several else "live")
        self._chunks.say(call(fact, expression))
        return expression


def constant_values(encoding: Encoding) -> set[int]:
    """Numbers of the values that follow from constants alone."""
    found = {k for k, value in enumerate(encoding.values) if value.const_value is not None and value.is_initializer()}
    for node in encoding.nodes:
        follows = bool(node.operands) and all(o is None or o in found for o in node.operands)
        if follows and is_deterministic(node.constructor.op, node.attrs):
            found.update(node.results)
    return found


def operands(node: ir.Node) -> tuple[list[ir.Value | None], Attrs]:
    """Inputs without trailing absent ones, followed by the values that subgraphs capture; and the attributes."""
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    attrs = to_attrs(node)
    captured: dict[ir.Value, None] = {}
    for _, attr in attrs:
        if isinstance(attr, GraphAttr):
            for value in captured_values(attr.graph):
                captured.setdefault(value)
    return inputs + list(captured), attrs
