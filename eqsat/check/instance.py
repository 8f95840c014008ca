"""An instance of a rule's left side: a small graph with types, attributes and data, ready to be rewritten and run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from eqsat.egraph import magnitudes
from eqsat.model.inference.annotate import annotate
from eqsat.rules.ast import Match, Rule
from eqsat.rules.evaluation import TensorFacts
from eqsat.rules.expand import Clause
from eqsat.schema import opset
from eqsat.schema.attributes import default_attrs, to_protos
from eqsat.schema.types import Attrs, OpKey, TensorAttr, TensorType

MOST_VALUES = 24
"""Elements up to which a tensor is printed whole."""


@dataclass(frozen=True)
class Drawn:
    """A value of the instance.

    Attributes:
        value: Contents of a constant leaf.
        exponent: Exponent of a power of two that no element reaches in magnitude; None if unknown.
        constant: Whether it depends only on constants.
    """

    name: str
    type: TensorType
    constant: bool
    value: np.ndarray | None = None
    exponent: int | None = None

    @property
    def facts(self) -> TensorFacts:
        # A constant may move by itself.
        bound = math.inf if self.exponent is None else magnitudes.bound(self.exponent)
        return TensorFacts(self.type, self.value, self.constant, True, self.constant, self.constant, bound)


@dataclass(frozen=True)
class Leaf:
    """A value that no operator of the pattern produces: an input of the model, or a constant."""

    name: str
    array: np.ndarray
    type: TensorType
    constant: bool
    exponent: int | None = None
    """Exponent of a power of two that bounds the elements' magnitudes."""

    @property
    def facts(self) -> TensorFacts:
        return Drawn(self.name, self.type, self.constant, self.array if self.constant else None, self.exponent).facts

    def __str__(self) -> str:
        head = f"{'const ' if self.constant else ''}{self.type} {self.name}"
        return f"{head} = {show(self.array)}"


@dataclass(frozen=True)
class LeftOperator:
    """One operator of the left side; None means an absent operand."""

    op: OpKey
    attrs: Attrs
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    type: TensorType

    def __str__(self) -> str:
        call = application(self.op, self.attrs, [i or "-" for i in self.inputs])
        return f"{', '.join(self.outputs)} = {call}  # {self.type}"


@dataclass(frozen=True)
class Instance:
    """A concrete left side.

    Attributes:
        steps: In topological order.
        roots: Names of the values that the rule's right side replaces.
        sites: What each operator of the pattern became.
        met: The sides of ``or`` in the conditions that hold, see :mod:`eqsat.check.sides_of_or`.
    """

    rule: Rule
    clause: Clause
    leaves: tuple[Leaf, ...]
    steps: tuple[LeftOperator, ...]
    roots: tuple[str, ...]
    sites: Mapping[Match, LeftOperator] = field(default_factory=dict)
    met: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return "\n".join([*map(str, self.leaves), *map(str, self.steps), f"compared: {', '.join(self.roots)}"])

    def model(self) -> ir.Model:
        """The left side as a model in normal form; nothing is tidied away, so that every rule can meet its pattern."""
        nodes, types = [], {leaf.name: leaf.type for leaf in self.leaves}
        for step in self.steps:
            node = helper.make_node(step.op.name, [i or "" for i in step.inputs], step.outputs, domain=step.op.domain)
            defaults = dict(default_attrs(step.op))
            given = tuple((k, v) for k, v in step.attrs if defaults.get(k) != v)
            node.attribute.extend(to_protos(given, step.op))
            nodes.append(node)
            types[step.outputs[0]] = step.type
        graph = helper.make_graph(
            nodes,
            self.rule.name,
            [_info(leaf.name, leaf.type) for leaf in self.leaves if not leaf.constant],
            [onnx.ValueInfoProto(name=name) for name in self.roots],
            [_tensor(leaf) for leaf in self.leaves if leaf.constant],
        )
        domains = sorted({"", *(step.op.domain for step in self.steps)})
        imports = [helper.make_opsetid(d, opset.opset_version(d)) for d in domains]
        model = ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=opset.IR_VERSION))
        annotate(model)
        return model

    def bounds(self) -> dict[str, int]:
        """The known magnitudes of the model's inputs."""
        return {leaf.name: leaf.exponent for leaf in self.leaves if leaf.exponent is not None and not leaf.constant}

    def inputs(self) -> dict[str, np.ndarray]:
        """The data of the model's inputs."""
        return {leaf.name: leaf.array for leaf in self.leaves if not leaf.constant}


def application(op: OpKey, attrs: Attrs, operands: Sequence[str]) -> str:
    """``Conv<group=2>(x, w)``, without the attributes that have their default."""
    defaults = dict(default_attrs(op))
    said = [f"{k}={_attribute(v)}" for k, v in attrs if defaults.get(k) != v]
    bracket = f"<{', '.join(said)}>" if said else ""
    return f"{op}{bracket}({', '.join(operands)})"


def show(array: np.ndarray) -> str:
    """Contents, the beginning only of a large tensor."""
    if array.size <= MOST_VALUES:
        return _compact(array.tolist())
    return f"{_compact(array.ravel()[:MOST_VALUES].tolist())[:-1]}, ...] ({array.size} elements)"


def _compact(values: object) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_compact, values))}]"
    return f"{values:.9g}" if isinstance(values, float) else str(values)


def _attribute(value: object) -> str:
    if isinstance(value, TensorAttr):
        return show(value.array)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def _info(name: str, known: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, int(known.dtype), known.shape)


def _tensor(leaf: Leaf) -> onnx.TensorProto:
    return ir.to_proto(ir.Tensor(leaf.array, dtype=leaf.type.dtype, name=leaf.name))
