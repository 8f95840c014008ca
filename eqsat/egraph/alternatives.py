"""Adds equal programs for pieces of the model that no pattern describes, as e-nodes beside those of the model.

A rule matches operators. The result of all rounds of a loop is not a pattern of operators, so Python finds it. The
e-graph then contains both programs of the piece, rules see both, and extraction chooses by cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import onnx_ir as ir

from eqsat.egraph.chunk_writer import ChunkWriter
from eqsat.egraph.encode import Encoding, node_constructor, operands
from eqsat.egraph.engine import Engine, call, integer
from eqsat.egraph.intern import Tables
from eqsat.egraph.language import Constructor
from eqsat.ops.properties import is_deterministic
from eqsat.schema.attributes import op_key, to_attrs
from eqsat.schema.types import type_of


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another program of a piece of the model.

    Attributes:
        name: Name of the pass that found it, in place of a rule's name.
        model: The loaded program; its inputs have the names of the model's values.
        results: Name of the equal value, by output of the program.
        numerics: How far values may change, as for a rule.
    """

    name: str
    model: ir.Model
    results: tuple[str, ...]
    numerics: Literal["exact", "real"] = "exact"


def constructors(alternatives: Sequence[Alternative]) -> Iterator[Constructor]:
    """The constructors of all nodes, which must be declared before they are written."""
    for alternative in alternatives:
        for node in alternative.model.graph:
            yield node_constructor(node, len(operands(node)[0]))


def can_be_written(model: ir.Model) -> bool:
    """Whether all nodes of a piece can become e-nodes: none is random or has so many operands that it would be a
    leaf.
    """
    return all(
        is_deterministic(op_key(node), to_attrs(node), training=len(node.inputs) > 2)
        and not node_constructor(node, len(operands(node)[0])).is_wide
        for node in model.graph
    )


def write_alternatives(
    engine: Engine,
    tables: Tables,
    encoding: Encoding,
    alternatives: Sequence[Alternative],
    rules: Sequence[int],
    first: int,
) -> None:
    """Unites values of the model with the results of the alternatives.

    Args:
        rules: For each alternative the rule number of its e-nodes.
        first: The first free number of a value.
    """
    outer = {value.name: k for k, value in enumerate(encoding.values)}
    for alternative, rule in zip(alternatives, rules, strict=True):
        writer = _Writer(engine, tables, rule, first)
        writer.write(alternative, outer)
        first = writer.free


class _Writer:
    """Writes one alternative."""

    def __init__(self, engine: Engine, tables: Tables, rule: int, free: int) -> None:
        self.tables = tables
        self.rule = rule
        self.free = free
        self._chunks = ChunkWriter(engine)
        self._numbers: dict[ir.Value, int] = {}

    def write(self, alternative: Alternative, outer: dict[str | None, int]) -> None:
        graph, chunks = alternative.model.graph, self._chunks
        for value in graph.initializers.values():
            assert value.const_value is not None
            self._define(value, call("Const", integer(self.tables.constants.of_tensor(value.const_value))))
        for value in graph.inputs:
            self._numbers[value] = outer[value.name]
        for node in graph:
            inputs, attrs = operands(node)
            constructor = node_constructor(node, len(inputs))
            read = [None if v is None else self._numbers[v] for v in inputs]
            expression = chunks.node(constructor, self.tables.attrs.id(attrs), read, self.rule)
            results = node.outputs if constructor.outputs else node.outputs[:1]
            for value, result in zip(results, chunks.results(constructor, expression, len(results)), strict=True):
                self._define(value, result)
            chunks.end_node()
        for value, name in zip(graph.outputs, alternative.results, strict=True):
            chunks.unite(outer[name], chunks.read(self._numbers[value]))
        chunks.flush()

    def _define(self, value: ir.Value, expression: Any) -> None:
        kind = type_of(value)
        self._chunks.define(self.free, expression, None if kind is None else self.tables.types.id(kind))
        self._numbers[value], self.free = self.free, self.free + 1
