"""Concrete instances of composites: one plain pattern (clause) with shapes, as a body with types and bound names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from eqsat.model.inference.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.rules import ast
from eqsat.rules.evaluation import NodeFacts, TensorFacts, holds
from eqsat.rules.expand import Clause
from eqsat.schema.attributes import make_attrs, to_protos
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.opset import IR_VERSION, PINNED_OPSET
from eqsat.schema.types import Attrs, OpKey, TensorType

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
            case ast.Name():
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
        if isinstance(pattern, ast.Name):
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


def variables(pattern: Any) -> list[str]:
    """Names of a plain pattern's leaves, each as often as it occurs."""
    if pattern is None:
        return []
    return [n for a in pattern.args for n in variables(a)] if isinstance(pattern, ast.Match) else [pattern.name]


def model_of(
    made: Instance, clause: Clause, operands: Mapping[str, Operand], rng: np.random.Generator
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The clause as a model of its own, and data for its inputs."""
    names = list(dict.fromkeys(variables(clause.roots[0])))
    feed: dict[str, np.ndarray] = {}
    inputs, constants = [], []
    for name, fact in zip(names, made.inputs, strict=True):
        assert fact.type is not None
        if fact.value is not None:
            constants.append(numpy_helper.from_array(np.asarray(operands[name]), name))
            continue
        dtype = fact.type.dtype.numpy()
        shape = [int(d) for d in fact.type.shape or ()]
        info = None if dtype == np.float32 else np.iinfo(dtype)
        feed[name] = (
            rng.normal(0, 1, shape).astype(dtype)
            if info is None
            else rng.integers(info.min, info.max + 1, shape).astype(dtype)
        )
        inputs.append(helper.make_tensor_value_info(name, int(fact.type.dtype), shape))
    values = [*names, *(f"v{i}" for i in range(len(made.body.nodes)))]
    nodes = []
    for i, node in enumerate(made.body.nodes):
        operand_names = ["" if k is None else values[k] for k in node.inputs]
        proto = helper.make_node(node.op.name, operand_names, [f"v{i}"], domain=node.op.domain)
        proto.attribute.extend(
            a for a in to_protos(node.attrs, node.op) if a.name != "dilations" or "Pool" not in node.op.name
        )
        nodes.append(proto)
    result = made.output
    output = helper.make_tensor_value_info(values[made.body.results[0]], int(result.dtype), result.shape)
    graph = helper.make_graph(nodes, "composite", inputs, [output], constants)
    imports = [
        helper.make_opsetid("", PINNED_OPSET),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("eqsat", 1),
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION), feed
