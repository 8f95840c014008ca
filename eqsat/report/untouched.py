"""The summary of a model that is left unchanged: it is too large for an e-graph, or the time was over too early.

One walk over the operators that prices each of them on the host; nothing is listed by operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from eqsat.egraph.encode import operands
from eqsat.ops.functions import ANNOTATIONS
from eqsat.ops.properties import is_deterministic
from eqsat.report import summary as report
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.attributes import op_key
from eqsat.schema.types import TensorType, type_of
from eqsat.targets.cost import CostModel


def summarize_untouched(
    model: ir.Model,
    costs: CostModel,
    seconds: Mapping[str, float],
    objective: str,
    numerics: str,
    reason: str,
    notes: Sequence[str],
) -> report.Summary:
    """The summary of a model that is executed unchanged on the host.

    Args:
        reason: Why the search ended, as ``stop_reason`` of saturation and extraction.
        notes: The same as sentences.

    Raises:
        TargetError: The host's file gives no cost of an operator.
    """
    cost, running = _host_cost(model, costs)
    totals = report.Totals(cost, running, 0, 0, running)
    graph = model.graph
    host = costs.targets[0].name
    region = report.RegionRow(
        f"{host}_0",
        host,
        running,
        running,
        tuple(v.name or "" for v in graph.inputs),
        tuple(v.name or "" for v in graph.outputs),
        cost,
    )
    return report.Summary(
        model=graph.name or "model",
        targets=tuple(t.name for t in costs.targets),
        objective=objective,
        numerics=numerics,
        before=totals,
        after=totals,
        bound=0.0,
        gap=1.0 if cost > 0 else 0.0,
        stop_reason=reason,
        saturation=report.Saturation(0, 0, 0, reason),
        seconds=dict(seconds),
        kernels=(),
        regions=(region,) if running else (),
        host_operators=(),
        rules=(),
        notes=tuple(notes),
    )


def _host_cost(model: ir.Model, costs: CostModel) -> tuple[float, int]:
    """Seconds on the host, and how many operators run; constant expressions do not."""
    fixed: set[ir.Value] = set(model.graph.initializers.values())
    types: dict[ir.Value, TensorType | None] = {}
    parts: list[float] = []
    for node in model.graph:
        op = op_key(node)
        inputs, attrs = operands(node)
        follows = bool(inputs) and all(v is None or v in fixed for v in inputs)
        if follows and is_deterministic(op, attrs):
            fixed.update(node.outputs)
            continue
        for value in (*inputs, *node.outputs):
            if value is not None and value not in types:
                types[value] = type_of(value)
        facts = [None if v is None else TensorFacts(types[v], None, v in fixed, True) for v in inputs]
        read = [types[v] if v.uses() or v.is_graph_output() else None for v in node.outputs]
        if op not in ANNOTATIONS:
            parts.append(costs.operator(0, op, attrs, facts, read, place=node.name or str(op)))
    return sum(parts), len(parts)
