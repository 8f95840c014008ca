"""Concrete instances of composites: one plain pattern (clause) with shapes, as a body with types and bound names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.model.attributes import make_attrs
from eqsat.model.body import Body, BodyNode
from eqsat.model.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.model.types import Attrs, OpKey, TensorType
from eqsat.rules import ast
from eqsat.rules.expand import Clause
from eqsat.rules.expression import NodeFacts, TensorFacts, holds

FLOAT = ir.DataType.FLOAT
Operand = tuple[int, ...] | np.ndarray | TensorType
"""A tensor of float32 by its shape, one of another element type, or a constant."""


def facts(operand: Operand, dtype: ir.DataType = FLOAT) -> TensorFacts:
    """What is known of an operand."""
    if isinstance(operand, TensorType):
        return TensorFacts(operand)
    if isinstance(operand, np.ndarray):
        return TensorFacts(TensorType(ir.DataType.from_numpy(operand.dtype), operand.shape), operand, True)
    return TensorFacts(TensorType(dtype, operand))


@dataclass
class Instance:
    """A clause with types.

    Attributes:
        inputs: Facts of the leaves, in order of first occurrence.
        types: Of all values of the body.
        env: The clause's names.
    """

    body: Body
    inputs: list[TensorFacts]
    types: list[TensorType]
    env: dict[str, object]

    @property
    def output(self) -> TensorType:
        return self.types[self.body.results[0]]

    def fact(self, number: int) -> TensorFacts:
        """Facts of a value of the body."""
        return self.inputs[number] if number < self.body.inputs else TensorFacts(self.types[number])

    def failing(self, composite: ast.Composite) -> ast.Condition | None:
        return holds(composite.where, self.env)


@dataclass
class _Maker:
    operands: Mapping[str, Operand]
    attributes: Mapping[str, Mapping[str, Any]]
    leaves: dict[str, int] = field(default_factory=dict)
    nodes: list[BodyNode] = field(default_factory=list)
    types: list[TensorType] = field(default_factory=list)
    made: dict[ast.Match, int] = field(default_factory=dict)
    env: dict[str, object] = field(default_factory=dict)

    def collect(self, pattern: ast.Pattern | None) -> None:
        match pattern:
            case ast.Var():
                self.leaves.setdefault(pattern.name, len(self.leaves))
            case ast.Match():
                for arg in pattern.args:
                    self.collect(arg)
            case None:
                pass
            case _:
                raise AssertionError(f"not in the shipped targets: {pattern}")

    def value(self, pattern: ast.Pattern | None) -> int | None:
        if pattern is None:
            return None
        if isinstance(pattern, ast.Var):
            return self.leaves[pattern.name]
        assert isinstance(pattern, ast.Match)
        if pattern not in self.made:
            inputs = tuple(self.value(arg) for arg in pattern.args)
            op = pattern.ops[0]
            given = self.attributes.get(pattern.bind or "", self.attributes.get(op.name, {}))
            types = [None if i is None else self.types[i] for i in inputs]
            attrs = complete(op, make_attrs(op, given), types)
            values = [None if i is None or i >= len(self.leaves) else self.known(i) for i in inputs]
            (result,) = infer_types(op, attrs, types, values)
            assert result is not None and result.is_static, (op, types)
            self.nodes.append(BodyNode(op, attrs, inputs))
            self.types.append(result)
            self.made[pattern] = len(self.types) - 1
            self.bind(pattern, op, attrs, result)
        return self.made[pattern]

    def known(self, number: int) -> np.ndarray | None:
        operand = self.operands[list(self.leaves)[number]]
        return operand if isinstance(operand, np.ndarray) else None

    def bind(self, pattern: ast.Match, op: OpKey, attrs: Attrs, result: TensorType) -> None:
        if pattern.bind is not None:
            self.env[pattern.bind] = NodeFacts(op, attrs, TensorFacts(result))
        for attribute in pattern.attrs:
            assert attribute.name is not None, "not in the shipped targets"
            self.env[attribute.name] = dict(attrs)[attribute.attribute]


def instance(
    clause: Clause,
    operands: Mapping[str, Operand],
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    dtype: ir.DataType = FLOAT,
) -> Instance:
    """The body of a clause, typed.

    Args:
        operands: Shape or constant of each of the pattern's variables.
        attributes: Attributes of nodes by their name in the pattern, else by operator.
    """
    maker = _Maker(operands, attributes or {})
    (root,) = clause.roots
    maker.collect(root)
    inputs = [facts(operands[name], dtype) for name in maker.leaves]
    for name, found in zip(maker.leaves, inputs, strict=True):
        assert found.type is not None
        maker.types.append(found.type)
        maker.env[name] = found
    result = maker.value(root)
    assert result is not None
    for alias, name in clause.aliases.items():
        maker.env[alias] = maker.env[name]
    return Instance(Body(len(inputs), tuple(maker.nodes), (result,)), inputs, maker.types, maker.env)
