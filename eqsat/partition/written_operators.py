"""A composite that its target file writes as an operator (``as``): the operator in place of a function of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.errors import EqsatError, TargetError
from eqsat.model.normalize import complete
from eqsat.partition.plan import PlanNode
from eqsat.rules import ast
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate
from eqsat.rules.signatures import signature
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import Attrs, OpKey, TensorType


def written_operator(
    node: ENode, snapshot: Snapshot, types: Sequence[TensorType | None], produced: Sequence[int | None]
) -> PlanNode | None:
    """The node of a plan for a chosen composite; None if its target does not write it as an operator.

    Args:
        node: The call of a composite, or another e-node.
        snapshot: The e-graph.
        types: Types of its results, None for one without readers.
        produced: The classes of its results.

    Raises:
        TargetError: An attribute has no value here, or the operator does not accept it.
    """
    instance = node.composite
    written = instance.composite.written if instance is not None else None
    if instance is None or written is None:
        return None
    assert isinstance(written.operator.op, OpKey)
    operands = {name: child for name, child in zip(instance.leaves, node.children, strict=True) if name is not None}
    env = instance.names(types)
    env |= {name: facts_of_class(snapshot, child) for name, child in operands.items() if child is not None}
    inputs = tuple(operands.get(arg.name) if isinstance(arg, ast.Name) else None for arg in written.operator.args)
    outputs = tuple(None if k is None else produced[k] for k in written.outputs)
    return PlanNode(
        op=written.operator.op,
        attrs=_attributes(
            written.operator,
            written.operator.op,
            env,
            [None if child is None else snapshot.types[child] for child in inputs],
            f"{instance.target}.{instance.composite.name}",
        ),
        inputs=inputs,
        outputs=outputs,
        target=0,
    )


def _attributes(
    template: ast.Build, op: OpKey, env: dict[str, object], types: Sequence[TensorType | None], kernel: str
) -> Attrs:
    known = signature(op)
    allowed = set(known.attributes) if known is not None else set()
    found: dict[str, object] = {}
    for name in template.spread:
        node = env[name]
        assert isinstance(node, NodeFacts)
        found.update({k: v for k, v in node.attrs if k in allowed})
    try:
        for name, expr in template.attrs:
            value = evaluate(expr, env)
            found[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return complete(op, make_attrs(op, found, place=str(template.place)), types)
    except (Unknown, EqsatError) as error:
        raise TargetError(
            f"attributes that `{op}` accepts are required after `as`",
            place=str(template.place),
            actual=f"{kernel}: {error}",
        ) from error


def facts_of_class(snapshot: Snapshot, eclass: int) -> TensorFacts:
    """What expressions of rule and target files can learn of a class."""
    value = snapshot.value[eclass]
    return TensorFacts(snapshot.types[eclass], None if value is None else value.numpy(), snapshot.is_fixed(eclass))
