"""The result as plain operators: composites are taken apart, and their inner values found again in the e-graph.

A composite is one e-node, and its inner values have no class of their own. If the e-graph has the inner operator with
the same operands, the value is that class, and a cut there separates a convolution from the piece of its activation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_body
from eqsat.ops.evaluate import evaluate
from eqsat.partition.plan import Plan, PlanNode
from eqsat.schema.types import CONSTANT, Attrs, OpKey, TensorType

_Key = tuple[OpKey, Attrs, tuple[int | None, ...]]


@dataclass
class Kernels:
    """A plan without composites.

    Attributes:
        nodes: In a topological order, each a standard operator or a function of eqsat's.
        types: Types of values that are not classes of the e-graph; they are numbered after the classes.
        constants: Those of them that are constant.
    """

    nodes: list[PlanNode] = field(default_factory=list)
    types: dict[int, TensorType] = field(default_factory=dict)
    constants: dict[int, np.ndarray] = field(default_factory=dict)


def flattened(plan: Plan, snapshot: Snapshot) -> Kernels:
    """The kernels of a plan as operators."""
    found = Kernels()
    if all(node.body is None for node in plan.nodes):
        found.nodes += plan.nodes
        return found
    known = {
        (n.op, n.attrs, n.children): n.eclass for n in reversed(snapshot.nodes) if n.kind == "op" and not n.outputs
    }
    taken = {c for node in plan.nodes for c in node.outputs if c is not None} | {c for c, _ in plan.inputs}
    # Kernels that read a constant must not wait for a composite that computes the same within.
    taken |= plan.constants.keys()
    for node in plan.nodes:
        if node.body is None:
            found.nodes.append(node)
        else:
            _take_apart(node, snapshot, known, taken, found)
    return found


def _take_apart(node: PlanNode, snapshot: Snapshot, known: dict[_Key, int], taken: set[int], found: Kernels) -> None:
    body = node.body
    assert body is not None and body.inputs == len(node.inputs)
    body = body.without({i for i, c in enumerate(node.inputs) if c is None})
    operands = [None if c is None else _type(snapshot, found, c) for c in node.inputs]
    try:
        types: list[TensorType | None] = list(infer_body(body, operands))
    except EqsatError:
        types = [None] * (body.inputs + sum(n.outputs for n in body.nodes))
    values: list[int | None] = list(node.inputs)
    results = {v: c for v, c in zip(body.results, node.outputs, strict=False) if c is not None}
    for inner in body.nodes:
        inputs = tuple(None if v is None else values[v] for v in inner.inputs)
        outputs: list[int | None] = []
        for _ in range(inner.outputs):
            at = len(values)
            eclass = results.get(at)
            if eclass is None and inner.outputs == 1:
                eclass = known.get((inner.op, inner.attrs, inputs))
                if eclass in taken or (eclass is not None and snapshot.types[eclass] != types[at]):
                    eclass = None
            if eclass is None:
                eclass = len(snapshot.classes) + len(found.types) + len(found.constants)
                kind = types[at]
                if inner.op == CONSTANT:
                    array = evaluate(inner.op, inner.attrs, [])[0]
                    assert array is not None
                    found.constants[eclass] = array
                else:
                    assert kind is not None
                    found.types[eclass] = kind
            taken.add(eclass)
            values.append(eclass)
            outputs.append(eclass)
        if inner.op != CONSTANT or outputs[0] not in found.constants:
            found.nodes.append(PlanNode(inner.op, inner.attrs, inputs, tuple(outputs), node.target, rule=node.rule))


def _type(snapshot: Snapshot, found: Kernels, number: int) -> TensorType | None:
    return snapshot.types[number] if number < len(snapshot.types) else found.types.get(number)
